"""What the device computes, and how."""

from hotloop.findings.entry import Entry

ENTRIES = {
    "device/amp-not-in-effect": Entry(
        "The configuration says mixed precision, and no training forward ran under autocast.",
        "Enter torch.autocast around forward and loss, with the configured dtype, or remove the key.",
        ("autocast-bf16",),
    ),
    "device/amp-off": Entry(
        "The model computes in float32: the device's tensor cores hardly work.",
        "Try torch.autocast('cuda', dtype=torch.bfloat16) around the forward pass and the loss, and compare "
        "the loss curves.",
        ("autocast-bf16",),
    ),
    "device/attention-not-fused": Entry(
        "Attention is written out: the matrix of all weights is written to memory and read again.",
        "Use torch.nn.functional.scaled_dot_product_attention; a bias or mask goes into attn_mask.",
        ("fused-attention",),
    ),
    "device/batch-past-the-knee": Entry(
        "Half the batch would make as many samples a second: the larger one only takes memory.",
        "Halve the batch size and the learning rate; it changes the training.",
    ),
    "device/batch-too-small": Entry(
        "The batch gives the device so little to do that it idles between launches.",
        "Try a larger batch with the learning rate scaled along; it changes the training.",
        ("batch-size",),
    ),
    "device/channels-last-off": Entry(
        "Convolutions in half precision run with channels first: cuDNN transposes around each of them.",
        "Call model.to(memory_format=torch.channels_last) and the same for the images.",
        ("channels-last",),
    ),
    "device/compile-in-loop": Entry(
        "torch.compile() is called at every step: its guards, and often its code, are made again each time.",
        "Compile once, before the loop.",
    ),
    "device/compile-off": Entry(
        "A device-bound model runs operation by operation; compiled, small operations would be fused.",
        "Try model = torch.compile(model) before the loop, where shapes are fixed; the first steps take "
        "long.",
        ("compile",),
    ),
    "device/cudnn-benchmark-off": Entry(
        "cuDNN picks convolution kernels by rule; with fixed shapes it could measure them once.",
        "Set torch.backends.cudnn.benchmark = True where input shapes stay the same.",
        ("cudnn-benchmark",),
    ),
    "device/deterministic-on": Entry(
        "Deterministic algorithms are on: some kernels are slower, and cuDNN may not choose.",
        "Put them behind an option for the runs that need them.",
        ("not-deterministic",),
    ),
    "device/graph-breaks": Entry(
        "torch.compile could not put the model into one graph: nothing is fused across the pieces.",
        "Remove .item(), print and data-dependent branches from forward; see TORCH_LOGS=graph_breaks.",
    ),
    "device/hot-module": Entry(
        "One submodule takes at least 30 % of forward and backward.",
        "Start there when the model itself is to become faster.",
    ),
    "device/low-intensity": Entry(
        "The device is occupied all the time and draws little power: its kernels move small tensors.",
        "Larger batches, fused kernels (torch.compile) or several runs on one device use it better.",
    ),
    "device/optimizer-not-fused": Entry(
        "The optimizer updates its tensors one after the other.",
        "Construct the optimizer with fused=True. One written by hand: build torch's in its place, or update "
        "all parameters at once (torch._foreach_*).",
        ("fused-optimizer", "foreach"),
    ),
    "device/recompiles": Entry(
        "torch.compile keeps compiling while the run goes on: a shape, a flag or a Python number changes.",
        "Pad to fixed shapes (drop_last=True) or compile with dynamic=True; keep changing numbers out of "
        "forward.",
        ("compile-dynamic",),
    ),
    "device/recompute-checkpointing": Entry(
        "Gradient checkpointing computes forward twice to save memory that is free.",
        "Switch checkpointing off, or use it for the largest stages only.",
        ("no-checkpointing",),
    ),
    "device/tf32-off": Entry(
        "float32 matrix products run in full precision on a device that knows TF32.",
        "Call torch.set_float32_matmul_precision('high'); leave torch.backends.cudnn.allow_tf32 on. Check "
        "the loss once.",
        ("tf32",),
    ),
}
