"""Precision, kernels and compilation."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

AUTOCAST_BF16 = Remedy(
    summary="Compute forward passes in bfloat16 where that is safe (torch.autocast).",
    effect="numeric",
    alters="forward passes round to 8 bits of mantissa; parameters stay float32",
    live="hotloop.remedy.live.autocast:AutocastBf16",
    source="hotloop.fix.autocast:bf16",
    config_keys=("amp",),
    words=("with torch.autocast(device_type, dtype=torch.bfloat16): around the forward pass and the loss"),
    excludes=("autocast-fp16",),
)
AUTOCAST_FP16 = Remedy(
    summary="Compute forward passes in float16 where that is safe, with a gradient scaler.",
    effect="numeric",
    alters=(
        "forward passes round to 11 bits of mantissa; an update whose gradients overflow is skipped, as a "
        "few at the start may be"
    ),
    also=("device/amp-off", "device/amp-not-in-effect"),
    source="hotloop.fix.autocast:fp16",
    config_keys=("amp",),
    words=(
        "with torch.autocast(device_type, dtype=torch.float16): around the forward pass and the "
        "loss, and torch.amp.GradScaler around backward and step"
    ),
)
TF32 = Remedy(
    summary="Let float32 matrix products and convolutions use TensorFloat-32 units.",
    effect="numeric",
    alters="float32 products keep 10 bits of mantissa",
    live="hotloop.remedy.live.flags:Tf32",
    source="hotloop.fix.flags:tf32",
    config_keys=("tf32",),
    words=("torch.backends.cuda.matmul.allow_tf32 = True; torch.backends.cudnn.allow_tf32 = True"),
)
CUDNN_BENCHMARK = Remedy(
    summary="Let cuDNN time its convolution algorithms and keep the fastest.",
    effect="numeric",
    alters="another algorithm may round differently, from run to run",
    live="hotloop.remedy.live.flags:CudnnBenchmark",
    source="hotloop.fix.flags:cudnn_benchmark",
    config_keys=("cudnn_benchmark",),
    words="torch.backends.cudnn.benchmark = True",
)
NOT_DETERMINISTIC = Remedy(
    summary="Allow algorithms that are faster but not reproducible bit for bit.",
    effect="numeric",
    alters="two runs with one seed differ in the last bits",
    live="hotloop.remedy.live.flags:NotDeterministic",
    source="hotloop.fix.flags:not_deterministic",
    config_keys=("deterministic",),
    words=(
        "leave out torch.use_deterministic_algorithms(True) and torch.backends.cudnn.deterministic = True"
    ),
)
CHANNELS_LAST = Remedy(
    summary="Lay images and convolution weights out with channels last.",
    effect="numeric",
    alters="other kernels round differently; dropout draws other masks",
    source="hotloop.fix.models:channels_last",
    words=("model = model.to(memory_format=torch.channels_last), and the same for the input images"),
)
COMPILE = Remedy(
    summary="Compile the model (torch.compile).",
    effect="numeric",
    alters="fused kernels round differently; dropout draws other masks",
    parameter=Parameter(
        name="mode",
        kind="text",
        words="a mode of torch.compile",
        default="default",
        choices=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
    ),
    live="hotloop.remedy.live.compiled:Compile",
    source="hotloop.fix.models:compiled",
    config_keys=("compile",),
    words=("model.compile() after the model is on its device, or torch.compile(model, mode={value!r})"),
    excludes=("cuda-graphs", "compile-dynamic"),
)
COMPILE_DYNAMIC = Remedy(
    summary="Compile once for all shapes instead of once for each.",
    effect="numeric",
    alters="kernels for any size round differently",
    source="hotloop.fix.calls:compile_dynamic",
    words=("torch.compile(model, dynamic=True), or torch._dynamo.mark_dynamic on the dimension that varies"),
    excludes=("cuda-graphs",),
)
CUDA_GRAPHS = Remedy(
    summary="Replay the step as one CUDA graph (torch.compile, reduce-overhead).",
    effect="numeric",
    alters="fused kernels round differently; outputs are overwritten by the next replay",
    live="hotloop.remedy.live.compiled:CudaGraphs",
    source="hotloop.fix.models:compiled",
    words=("torch.compile(model, mode='reduce-overhead'); shapes must not change from step to step"),
)
FUSED_ATTENTION = Remedy(
    summary="Call scaled_dot_product_attention instead of writing softmax(q @ k.T) @ v out.",
    effect="numeric",
    alters=(
        "sums are taken in another order, and values differ in the last bits; a row that -inf masks whole "
        "gives zeros, no longer NaN"
    ),
    source="hotloop.fix.attention:fused_attention",
    rewrites=True,
    words=(
        "before: (q @ k.transpose(-2, -1) / d**0.5).softmax(-1) @ v; after: "
        "F.scaled_dot_product_attention(q, k, v, attn_mask=..., scale=...); a mask of truth values is True "
        "where a key takes part, and is_causal=True stands for a triangle"
    ),
)
FUSED_ATTENTION_DROPOUT = Remedy(
    summary="Call scaled_dot_product_attention also where attention weights are dropped.",
    effect="semantic",
    alters="as many weights are dropped as before, but others: random numbers are drawn in another way",
    also=("device/attention-not-fused",),
    source="hotloop.fix.attention:fused_attention",
    words=(
        "torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=..., "
        "dropout_p=self.dropout.p if self.training else 0.0, scale=...)"
    ),
)
NO_CHECKPOINTING = Remedy(
    summary="Keep activations instead of computing them again in backward.",
    effect="numeric",
    alters="memory grows; values may differ in the last bit",
    live="hotloop.remedy.live.checkpointing:NoCheckpointing",
    words=(
        "before: checkpoint(block, x, use_reentrant=False); after: block(x), where the activations fit into "
        "memory"
    ),
)
THREADS = Remedy(
    summary="Give each process its share of the cores instead of all of them.",
    effect="numeric",
    alters="sums over threads round differently in the last bit",
    parameter=Parameter(
        name="num_threads",
        kind="count",
        words=(
            "threads of one process; without a value the cores it may use, divided by the processes "
            "of this node, or one less where loader workers need cores"
        ),
        minimum=1,
        finding_key="suggested",
    ),
    live="hotloop.remedy.live.flags:Threads",
    source="hotloop.fix.flags:threads",
    words=("OMP_NUM_THREADS={value} in the environment, or torch.set_num_threads({value}) at the start"),
)
