"""What Python does in the step."""

from hotloop.findings.entry import Entry

ENTRIES = {
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
        "PyTorch computes with more threads than there are cores.",
        "Set OMP_NUM_THREADS (or torch.set_num_threads) to each process's share of the cores.",
        ("threads",),
    ),
    "host/viewer-in-loop": Entry(
        "A viewer, a window or a control socket is served inside the step.",
        "Serve the viewer every few hundred steps, or from another process that reads checkpoints.",
        ("throttle-viewer",),
    ),
}
