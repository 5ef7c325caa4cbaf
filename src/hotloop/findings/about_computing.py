"""What is said of the computation, and of what training does beside it."""

from hotloop.findings.finding import Entry

ENTRIES = {
    # What the device computes, and how.
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
        "Convolutions run with channels first, which tensor cores and CPUs compute slower.",
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
    "device/float64": Entry(
        "The model computes in float64: twice the time of float32 and more on a CPU, up to 64 times on a "
        "GPU.",
        "Convert the data once (array.astype(np.float32), tensor.float()), leave out .double(), and compare "
        "the loss curves.",
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
    "device/unused-gradients": Entry(
        "Backward makes gradients of weights that nothing updates.",
        "Call requires_grad_(False) on that module before training: gradients still pass through it.",
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
    # What Python does in the step.
    "host/anomaly-detection": Entry(
        "Anomaly detection is on: autograd records a Python stack for every operation and checks every "
        "gradient for NaN, which waits for the device each time.",
        "Turn it on only while looking for a NaN.",
    ),
    "host/debug-environment": Entry(
        "A debugging switch of CUDA or PyTorch is set in the source.",
        "Remove the line; set it in the shell while looking for an error.",
    ),
    "host/gc-pauses": Entry(
        "Python's garbage collector visits every object of the process again and again.",
        "Take gc.collect() out of the step: tensors are freed by their reference counts, without it. Without "
        "such a call, gc.freeze() after set-up and gc.disable() with a collection every few hundred steps.",
        ("rarer-gc-collect", "gc-freeze"),
    ),
    "host/launch-bound": Entry(
        "The model's operations are so small that the device finishes each before the next is launched.",
        "Compile the model (torch.compile, mode='reduce-overhead'), or use a larger batch.",
        ("compile", "cuda-graphs"),
    ),
    "host/loop-over-parameters": Entry(
        "Python visits every parameter at every step: to look at gradients, add up norms, average weights.",
        "Use one call for all: clip_grad_norm_ or torch.nn.utils.get_total_norm for norms, torch._foreach_* "
        "for updates.",
        ("foreach-loop", "foreach-lerp"),
    ),
    "host/python-in-step": Entry(
        "Python code of your own runs in every step, and the model waits while it does.",
        "Replace the Python loop by tensor operations, do it every N steps, or move it into the dataset.",
        ("vectorize-hint", "batched-convert"),
    ),
    "host/recomputed-targets": Entry(
        "The step makes its targets from the batch, although nothing of that work depends on the model.",
        "Make them in the dataset, where workers do it in parallel; once for all where nothing in them is "
        "random.",
    ),
    "host/sync-in-step": Entry(
        "The host asks the device for a value and waits until everything before it is finished.",
        "Keep the value on the device (loss.detach()), sum it there, and read it every N steps; branch on "
        "tensors with torch.where.",
        ("defer-item",),
    ),
    "host/thread-oversubscription": Entry(
        "PyTorch computes with more threads than there are cores free for them.",
        "Set OMP_NUM_THREADS (or torch.set_num_threads) to each process's share of the cores.",
        ("threads",),
    ),
    "host/viewer-in-loop": Entry(
        "A viewer, a window or a control socket is served inside the step.",
        "Serve the viewer every few hundred steps, or from another process that reads checkpoints.",
        ("throttle-viewer",),
    ),
    # Ranks that wait for each other, or do each other's work.
    "distributed/barrier-in-step": Entry(
        "torch.distributed.barrier() runs at every step: the host of every rank waits for all others, which "
        "the reduction of the gradients already does on the device.",
        "Remove it, or keep it around checkpoints and evaluation.",
    ),
    "distributed/data-parallel": Entry(
        "nn.DataParallel drives all GPUs from one Python process: it copies the model to every GPU at every "
        "step, and one interpreter launches the work of all.",
        "Use DistributedDataParallel with one process per GPU (torchrun).",
    ),
    "distributed/duplicated-samples": Entry(
        "Every rank goes through the whole dataset: an epoch does as many times the work as there are ranks.",
        "Give the loader sampler=DistributedSampler(dataset) and call its set_epoch in every epoch.",
    ),
    "distributed/set-epoch": Entry(
        "DistributedSampler.set_epoch() is called nowhere: every epoch has the same order of samples.",
        "Call sampler.set_epoch(epoch) at the start of every epoch.",
    ),
    "distributed/slow-collective": Entry(
        "Collectives that the script itself calls take a large part of the step.",
        "Reduce metrics once every N steps, packed into one tensor.",
    ),
    "distributed/straggler": Entry(
        "One rank takes longer over its own work in each step, and the others wait for it.",
        "Give every rank the same work; look at what only this rank does, and at its device and cores.",
    ),
    "distributed/unbalanced-input": Entry(
        "One rank waits longer for its data than the others, or the ranks' epochs have different lengths.",
        "Give every rank the same input work: shard by cost, shuffle, use the same storage.",
    ),
    "distributed/unoverlapped-collective": Entry(
        "Reducing gradients is not hidden behind backward: every step waits for the network.",
        "Accumulate under no_sync(), give each rank larger batches, or compress gradients (bf16 hook); a "
        "tiny model may train faster on fewer ranks.",
    ),
    # Training that goes wrong in its numbers.
    "numerics/backward-in-autocast": Entry(
        "backward() runs inside the autocast block; PyTorch advises against it: the backward pass takes each "
        "operation's type from the forward pass by itself.",
        "Let only the forward pass and the loss stand inside `with autocast`.",
    ),
    "numerics/clip-before-unscale": Entry(
        "Gradients are clipped while they are still multiplied by the loss scale.",
        "Call scaler.unscale_(optimizer) between backward and clipping.",
    ),
    "numerics/loss-diverged": Entry(
        "The loss had fallen and then rose far above what it had reached.",
        "Go back to a checkpoint before the rise; lower or warm up the learning rate, clip gradients.",
    ),
    "numerics/missing-scaler": Entry(
        "The forward pass runs in float16, and nothing scales the loss: gradients below 6e-8 become zero.",
        "Use dtype=torch.bfloat16, or torch.amp.GradScaler around backward and step.",
    ),
    "numerics/no-zero-grad": Entry(
        "Gradients are reset nowhere in this file: each step moves along the sum of all gradients so far.",
        "Call optimizer.zero_grad() before backward.",
    ),
    "numerics/non-finite-loss": Entry(
        "A loss is NaN or infinite: what is trained after it is worthless.",
        "Stop; look at the batch and learning rate of that step (torch.autograd.set_detect_anomaly).",
    ),
    "numerics/optimizer-in-step": Entry(
        "The optimizer is made anew at every step: its moments start from zero each time.",
        "Make it once, before the loop.",
    ),
    "numerics/scaler-not-updated": Entry(
        "A gradient scaler is never updated: after an overflow every later step overflows and is skipped.",
        "Call scaler.update() after scaler.step(optimizer).",
    ),
    "numerics/scaler-skipping": Entry(
        "The gradient scaler finds infinite gradients in many steps and skips them.",
        "Use bfloat16 where the device has it, lower the learning rate, or clip gradients.",
    ),
    "numerics/step-without-scaler": Entry(
        "The loss is scaled; the optimizer steps on the scaled gradients.",
        "Step through the scaler: scaler.step(optimizer) and scaler.update().",
    ),
    # Settings that do not do what they say.
    "config/accumulation-mismatch": Entry(
        "The optimizer steps after another number of backward passes than is configured.",
        "Use the configured value in the loop, or correct the configuration.",
    ),
    "config/dead-key": Entry(
        "A setting is declared and no code reads it: changing it changes nothing.",
        "Pass it to where it belongs, or remove it.",
    ),
    "config/deprecated-amp": Entry(
        "torch.cuda.amp is deprecated since PyTorch 2.4 and warns at every start.",
        "Write torch.amp.autocast('cuda', …) and torch.amp.GradScaler('cuda', …).",
    ),
    "config/ignored-value": Entry(
        "The training loader was built with another value than the configured one.",
        "Pass the configured value to the DataLoader, or remove it from the configuration.",
        ("num-workers",),
    ),
    "config/learning-rate-not-scaled": Entry(
        "A configuration changes the batch size of the one it is made from, and keeps its learning rate.",
        "Scale the learning rate with the batch for SGD, by its square root for Adam, with warm-up.",
    ),
    "config/overridden-flag": Entry(
        "A switch was configured one way and stood the other way while training.",
        "Keep the line that is meant, and delete the other.",
    ),
    "config/too-many-workers-for-cores": Entry(
        "More loader workers want to compute than there are cores: each batch takes longer.",
        "Use at most one worker less than cores; more pay only where samples wait for storage.",
        ("num-workers",),
    ),
    "config/unmatched-value": Entry(
        "A switch is configured as on, and the code compares it with words it can never equal.",
        "Write what the code compares with, or compare with the configured value there.",
    ),
    "config/unsafe-load": Entry(
        "torch.load(weights_only=False) runs whatever code the file holds.",
        "Leave it out (True since torch 2.6); allow single classes with "
        "torch.serialization.add_safe_globals. For files of your own making, ignore this line.",
    ),
    # What training does beside training, and how often.
    "cadence/checkpoint": Entry(
        "Checkpoints are written so often, or are so large, that training waits for the disk.",
        "Write checkpoints by time rather than by step, or copy the state to host memory and write it in a "
        "thread.",
        ("less-frequent-checkpoint", "asynchronous-checkpoint"),
    ),
    "cadence/evaluation": Entry(
        "Evaluation is run so often, or over so much data, that training waits for it.",
        "Evaluate every N steps, N such that it takes under 5 % of the time.",
        ("evaluation-workers", "less-frequent-evaluation"),
    ),
    "cadence/images": Entry(
        "Figures are drawn, or images written or sent, while training waits.",
        "Draw images once per evaluation or every few hundred steps, small, or in another process.",
        ("fewer-images",),
    ),
    "cadence/logging": Entry(
        "Writing numbers takes a visible part of each step.",
        "Log every 50-100 steps, and keep running values as tensors until then.",
        ("throttled-logging",),
    ),
    "cadence/progress-output": Entry(
        "Something is printed in every step: print, a progress bar, its postfix.",
        "Print every N steps, or give the progress bar mininterval=1 and set its postfix rarely.",
        ("fewer-prints", "throttled-progress"),
    ),
    # How the speed changes, and what is said of it.
    "trend/misleading-metric": Entry(
        "A number the script prints about its own speed does not say what its name says.",
        "Record torch.cuda.Event(enable_timing=True) before and after, and read elapsed_time when it is "
        "printed; or call torch.cuda.synchronize() before both readings, in runs that only measure.",
    ),
    "trend/slow-warmup": Entry(
        "The first steps take so much longer than the steady ones that it shows in the whole run.",
        "Keep what is compiled or tuned for the next run (compile cache, fixed shapes), or warm up with one "
        "batch before what is timed.",
    ),
    "trend/step-outliers": Entry(
        "Rare steps take many times longer than the rest, and together they matter.",
        "Look at what these steps do beside training: evaluation, checkpoints, the garbage collector.",
    ),
    "trend/throughput-decay": Entry(
        "Steps get slower and slower as the run goes on.",
        "Look for what grows with the run: a list that is gone through, a cache, a log that is written anew.",
    ),
}
