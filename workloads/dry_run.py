"""A dry run of a training system, ``train.py --scale full --dry-run``: its model, what it takes, one update.

The model has the size of the scale; data of the right shapes is made in a folder that is deleted, and the
batch is cut down so that a CPU gets to its first update within a minute.
"""

import math
import resource
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

MIB, GIB = 2**20, 2**30


class DoneError(Exception):
    """The first update is done."""


class Watch:
    """Sees the first module that is called with what it is given, and ends the training after an update."""

    def __init__(self):
        self.begun, self.module, self.batch, self.optimizer = time.monotonic(), None, (), None
        self.seconds = math.nan

    def called(self, module, given):
        if self.module is None and not isinstance(module, torch.nn.Sequential):
            self.module, self.batch = module, [one for one in given if isinstance(one, torch.Tensor)]

    def updated(self, optimizer, *_):
        self.optimizer, self.seconds = optimizer, time.monotonic() - self.begun
        raise DoneError


def dry_run(title, train, sample, share=1.0, batch_bytes=None):
    """Call ``train(folder)``, which trains in an empty folder, until its first update; print what it took.

    ``sample`` says what was trained on; ``share`` is the part of a whole batch that it was. Of a model whose
    first call is not given the batch, ``batch_bytes`` has its size.
    """
    watch = Watch()
    hooks = (
        register_module_forward_pre_hook(watch.called),
        register_optimizer_step_post_hook(watch.updated),
    )
    try:
        with tempfile.TemporaryDirectory() as folder, suppress(DoneError):
            train(Path(folder))
    finally:
        for hook in hooks:
            hook.remove()
    if watch.optimizer is None:
        raise SystemExit(f"error: dry run of {title}: it ended without an update")
    print(report(title, watch, sample, share, batch_bytes))


def report(title, watch, sample, share, batch_bytes):
    parameters = [one for group in watch.optimizer.param_groups for one in group["params"]]
    own, states = sum(one.nbytes for one in parameters), watch.optimizer.state
    kept = sum(v.nbytes for one in states.values() for v in one.values() if torch.is_tensor(v))
    kept *= own / sum(one.nbytes for one in states)  # others have none until they have a gradient
    seen = sum(one.nbytes for one in watch.batch) if batch_bytes is None else batch_bytes
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    device = parameters[0].device
    lines = {
        "parameters": f"{sum(one.numel() for one in parameters):,}: {own / MIB:,.1f} MiB, gradients as much",
        "optimizer": f"{type(watch.optimizer).__name__}: {kept / MIB:,.1f} MiB of state",
        "one batch": f"{seen / share / MIB:,.1f} MiB that the model is given; here {sample}",
        "host": f"at most {peak / GIB:,.2f} GiB in this process, of {memory() / GIB:,.1f} GiB",
        "first update": f"{watch.seconds:.1f} s after the start, its data made, on {device}",
    }
    if device.type == "cuda":
        lines["device"] = f"at most {torch.cuda.max_memory_allocated() / GIB:,.2f} GiB"
    return "\n".join([f"dry run: {title}", *(f"  {name:<13} {text}" for name, text in lines.items())])


def memory():
    """Bytes of memory of this machine."""
    with open("/proc/meminfo") as file:
        return int(file.readline().split()[1]) * 1024
