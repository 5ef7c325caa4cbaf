"""What a step needs beside the model: loss, metrics, stage times, memory lines, the step log."""

import json
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch
from torch.nn import functional

#: Above this share of the machine's memory every memory line is followed by a warning.
CRITICAL_SHARE = 0.9


def charbonnier(found, wanted, epsilon=1e-3):
    return (found - wanted).square().add(epsilon**2).sqrt().mean()


def psnr(found, wanted):
    """Decibels, of pictures (N, C, H, W) in 0..1 each, averaged."""
    error = (found.clamp(0, 1) - wanted).square().mean(dim=(1, 2, 3))
    return (-10 * torch.log10(error.clamp(min=1e-10))).mean()


def ssim(found, wanted):
    """Structural similarity (Wang and others, 2004) with a Gaussian window of 11, pictures in 0..1."""
    at = torch.arange(11, device=found.device, dtype=found.dtype) - 5
    line = torch.exp(-at.square() / (2 * 1.5**2))
    line = line / line.sum()
    channels = found.shape[1]
    window = (line[:, None] * line).expand(channels, 1, 11, 11)

    def blur(x):
        return functional.conv2d(x, window, groups=channels)

    found = found.clamp(0, 1)
    mean_f, mean_w = blur(found), blur(wanted)
    var_f, var_w = blur(found * found) - mean_f**2, blur(wanted * wanted) - mean_w**2
    both = blur(found * wanted) - mean_f * mean_w
    first = (2 * mean_f * mean_w + 0.01**2) / (mean_f**2 + mean_w**2 + 0.01**2)
    return (first * (2 * both + 0.03**2) / (var_f + var_w + 0.03**2)).mean()


class StageTimer:
    """Milliseconds of the forward pass by stage, from the host's clock.

    On a GPU that shows when work was queued, and who had to wait for it.
    """

    def __init__(self):
        self.totals, self.num_steps = {}, 0

    @contextmanager
    def __call__(self, name):
        start = time.time()
        yield
        self.add(name, 1e3 * (time.time() - start))

    def add(self, name, ms):
        self.totals[name] = self.totals.get(name, 0.0) + ms

    def step(self):
        self.num_steps += 1

    def table(self):
        """{stage: mean milliseconds a step} since the last time, then begin anew."""
        means = {name: total / max(1, self.num_steps) for name, total in self.totals.items()}
        self.totals, self.num_steps = {}, 0
        return means


class DeviceTimer(StageTimer):
    """The same from the device's own clock, read when the table is wanted: nothing waits in between."""

    def __init__(self):
        super().__init__()
        self.pending = []

    @contextmanager
    def __call__(self, name):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        yield
        end.record()
        self.pending.append((name, begin, end))

    def table(self):
        torch.cuda.synchronize()
        for name, begin, end in self.pending:
            self.add(name, begin.elapsed_time(end))
        self.pending = []
        return super().table()


def timing_line(step, means):
    """The three slowest stages with their share of all stages; those inside others do not count twice."""
    outer = {name: ms for name, ms in means.items() if not name.startswith("Spike TSA")}
    total = sum(outer.values())
    slowest = sorted(outer.items(), key=lambda pair: -pair[1])[:3]
    words = ", ".join(f"{name} {ms:.2f}ms ({ms / total:.1%})" for name, ms in slowest)
    return f"[Step {step}] Forward {total:.2f}ms: {words}"


def memory_line(where):
    """The guide's memory line, and a warning when the machine is nearly full."""
    machine, own = psutil.virtual_memory(), psutil.Process().memory_info().rss
    used = machine.total - machine.available
    line = (
        f"[{where}] Memory - Process: {own / 2**20:.1f}MB ({own / machine.total:.1%}), "
        f"System: {used / 2**30:.1f}/{machine.total / 2**30:.1f}GB ({used / machine.total:.1%})"
    )
    if used / machine.total >= CRITICAL_SHARE:
        line += (
            f"\n⚠️  WARNING: System memory usage is critically high ({used / machine.total:.1%})!\n"
            "   Consider reducing CACHE_SIZE_GB or TOTAL_WORKERS in config."
        )
    return line


class StepLog:
    """One JSON object per step: seconds by phase, samples per second, loss."""

    def __init__(self, path):
        self.path, self.marks = path, []
        if path:
            Path(path).write_text("")

    def start(self):
        self.marks = [("start", time.perf_counter())]

    def mark(self, name):
        self.marks.append((name, time.perf_counter()))

    def write(self, step, num_samples, loss):
        if not self.path:
            return
        row = dict.fromkeys(("data_wait", "h2d", "fwd", "bwd", "opt", "other"), 0.0)
        for (_, before), (name, after) in zip(self.marks, self.marks[1:], strict=False):
            row[name] = after - before
        seconds = self.marks[-1][1] - self.marks[0][1]
        row.update(step=step, samples_per_s=num_samples / seconds, loss=float(loss))
        with open(self.path, "a") as file:
            file.write(json.dumps(row) + "\n")
