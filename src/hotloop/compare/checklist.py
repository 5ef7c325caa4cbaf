"""The items of a checklist, each looked up in a recording."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from hotloop import foreign
from hotloop.compare.expectation import Expectation, Limit
from hotloop.compare.items import Item, passed, unmeasured
from hotloop.compare.losses import ema, learned_at_least
from hotloop.compare.run import Run
from hotloop.compare.speed import Speed, crowd, per_s, samples_per_s
from hotloop.errors import UsageError
from hotloop.measure.steps import Floats
from hotloop.record.recording import Process
from hotloop.record.samples import device_peak, resident, sampled
from hotloop.units import duration, rate, share, size

#: Memory is stable where its second half grows by less than this part of the peak, and by less than 64 MiB.
_STABLE_PART: Final = 0.05
_STABLE_BYTES: Final = 64 * 2**20
_STABLE_SAMPLES: Final = 20

#: Items that others on the machine change.
_TIMED: Final = ("samples_per_s", "steps_per_s", "data_wait", "cpu", "cpu_main", "cpu_worker")


def checklist(asked: Expectation, run: Run, pace: Speed, log: Path | None = None) -> list[Item]:
    """One item per entry of the file, in its order; ``log`` is a text that metrics may stand in.

    Without ``finite_loss`` and ``checkpoint_loads``, which every verdict has.
    """
    items = [
        _JUDGED[name](run)
        if name in _JUDGED
        else _speedup(pace, limit)
        if name == "speedup"
        else _measured(name, limit, run)
        for name, limit in asked.items.items()
        if name not in ("finite_loss", "checkpoint_loads")
    ]
    printed = _last_in(log, list(asked.metrics)) if log is not None else {}
    return [*items, *(_metric(name, limit, run, printed.get(name)) for name, limit in asked.metrics.items())]


def finite_loss(run: Run) -> Item:
    """No NaN or Inf among the losses that were seen."""
    losses = run.trace.losses
    if not len(losses):
        return unmeasured("finite_loss", "no loss was seen")
    bad = np.flatnonzero(~np.isfinite(losses))
    if len(bad):
        words = f"{losses[bad[0]]:g} at loss {bad[0] + 1:,}; {len(bad):,} of {len(losses):,} are not finite"
        return passed("finite_loss", False, words, len(bad), 0)
    return passed("finite_loss", True, f"all {len(losses):,} losses that were seen", 0, 0)


def loss_converges(run: Run) -> Item:
    """The loss fell by more than its own noise, and did not rise again to where it was."""
    losses = run.trace.losses
    losses = losses[np.isfinite(losses)]
    if len(losses) < 40:
        return unmeasured("loss_converges", f"{len(losses)} losses are too few to tell")
    if learned_at_least(losses) <= 0:
        return passed("loss_converges", False, "it did not move by more than its noise")
    course = ema(losses)
    first, last, least = float(course[9]), float(course[-1]), float(course.min())
    words = f"from {first:.4g} to {last:.4g} (smoothed), least {least:.4g}"
    return passed("loss_converges", last < first and last - least < 0.5 * (first - least), words, last)


def _speedup(speed: Speed, limit: Limit) -> Item:
    if speed.ratio is None:
        return unmeasured("speedup", speed.words, limit.words)
    if speed.ci95 is None:
        return unmeasured("speedup", f"{speed.ratio:.2f}x without an interval: too short", limit.words)
    low, high = speed.ci95
    words = f"{speed.ratio:.2f}x [{low:.2f}, {high:.2f}]"
    if speed.doubt:
        words = f"{words}, but others were on the machine: one launch cannot tell (--repeats)"
        return unmeasured("speedup", words, limit.words)
    if limit.holds(low) != limit.holds(high):
        return unmeasured("speedup", f"{words} spans the limit: cannot tell", limit.words)
    return passed("speedup", limit.holds(speed.ratio), words, speed.ratio, limit.words)


def _last_in(log: Path, names: list[str]) -> dict[str, tuple[float, int]]:
    """(last value, how many) of each name in a text: ``NAME 1.5``, ``NAME: 1.5``, ``NAME=1.5``."""
    number = r"([-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf))"
    shapes = {n: re.compile(rf"(?<!\w){re.escape(n)}\s*[:=]?\s*{number}", re.IGNORECASE) for n in names}
    found: dict[str, tuple[float, int]] = {}
    try:
        with io.TextIOWrapper(foreign.opened(log), encoding="utf-8", errors="replace") as lines:
            for line in lines:
                for name, shape in shapes.items():
                    for value in shape.findall(line):
                        found[name] = float(value), found.get(name, (0.0, 0))[1] + 1
    except OSError as error:
        raise UsageError(f"{log} cannot be read: {error.strerror}") from error
    return found


def _metric(name: str, limit: Limit, run: Run, printed: tuple[float, int] | None) -> Item:
    item, logged = f"metrics.{name}", run.trace.metrics
    if printed is not None:
        value, count = printed
        return passed(
            item, limit.holds(value), f"{value:.6g}, the last of {count:,} in the log", value, limit.words
        )
    near = [name] if name in logged else [one for one in logged if one.lower().endswith(name.lower())]
    if len(near) != 1:
        known = ", ".join(sorted(logged)[:6])
        why = f"logged are: {known}" if known else "logged neither to TensorBoard nor to wandb; see --log"
        return unmeasured(item, why, limit.words)
    last, count = logged[near[0]]["last"], logged[near[0]]["count"]
    if last is None:
        return passed(item, False, "the last value is not finite", None, limit.words)
    return passed(item, limit.holds(last), f"{last:.6g}, the last of {count:,}", last, limit.words)


def _measured(name: str, limit: Limit, run: Run) -> Item:
    """An item of ``_MEASURED``; a time is no answer where others had the machine too."""
    learn, form, why = _MEASURED[name]
    value = learn(run)
    if value is None:
        return unmeasured(name, why, limit.words)
    words, holds = form(value), limit.holds(value)
    if name in _TIMED and not holds and (others := crowd(run)):
        return unmeasured(name, f"{words}, but {others}: what it is alone is not known", limit.words)
    steps, ci95 = per_s(run)
    if name.endswith("_per_s") and steps and ci95:
        low, high = (value * edge / steps for edge in ci95)
        if limit.holds(low) != limit.holds(high):
            words = f"{words} [{rate(low)}, {rate(high)}] spans the limit: cannot tell"
            return unmeasured(name, words, limit.words)
    return passed(name, holds, words, value, limit.words)


def _gpus(run: Run, column: str) -> list[tuple[int, float]]:
    """Index and mean of a column while it trained, of each visible GPU that was sampled."""
    gpus = run.recording.machine.get("gpus") or []
    shown = [i for i, gpu in enumerate(gpus) if gpu.get("visible", True)]
    means = ((i, _mean(run, run.recording.system, f"gpu{i}_{column}")) for i in shown)
    return [(i, mean) for i, mean in means if mean is not None]


def _least_of_gpus(run: Run, column: str, by: str = "") -> float | None:
    """The mean of the GPU with the least, as a part of the mean of another column."""
    whole = dict(_gpus(run, by)) if by else {}
    parts = [mean / whole[i] if by else mean for i, mean in _gpus(run, column) if not by or whole.get(i)]
    return min(parts, default=None)


def _full_gpu(run: Run) -> float | None:
    """Most of a GPU's memory that was in use, as a part of it."""
    gpus = run.recording.machine.get("gpus") or []
    shares = [
        float(np.nanmax(run.recording.system[f"gpu{i}_memory_bytes"])) / gpus[i]["memory_bytes"]
        for i, _ in _gpus(run, "memory_bytes")
        if gpus[i].get("memory_bytes")
    ]
    return max(shares, default=None)


def _hot_gpu(run: Run) -> float | None:
    columns = [run.recording.system[f"gpu{i}_temperature_c"] for i, _ in _gpus(run, "temperature_c")]
    return max((float(np.nanmax(one)) for one in columns), default=None)


def _cores(run: Run, processes: Iterable[Process]) -> list[float]:
    """Cores that each process used on average while it trained."""
    found = (_mean(run, columns, "cpu_ratio") for columns in sampled(run.recording, processes))
    return [mean for mean in found if mean is not None]


def _cpu_worker(run: Run) -> float | None:
    found = _cores(run, (worker for rank in run.recording.ranks for worker in rank.workers))
    return float(np.mean(found)) if found else None


def host_memory(run: Run) -> float | None:
    """Peak of the training processes and their workers in bytes."""
    line = _resident(run)
    return float(line.max()) if line is not None else None


def _cache_hit_rate(run: Run) -> float | None:
    last = {note["id"]: note for note in run.process.notes.get("cache", ())}
    hits, misses = (float(sum(note[name] for note in last.values())) for name in ("hits", "misses"))
    return hits / (hits + misses) if hits + misses else None


#: How an item is learned, how its number is said, and why there may be none.
_MEASURED: Final[Mapping[str, tuple[Callable[[Run], float | None], Callable[[float], str], str]]] = {
    "samples_per_s": (
        samples_per_s, lambda one: f"{rate(one)} samples/s", "too few steady steps, or of unknown size"
    ),
    "steps_per_s": (lambda run: per_s(run)[0], lambda one: f"{rate(one)} steps/s", "too few steady steps"),
    "gpu_utilization": (
        lambda run: _least_of_gpus(run, "util_ratio"),
        lambda one: f"{share(one)} on average while it trained", "too few samples of a GPU",
    ),
    "gpu_power": (
        lambda run: _least_of_gpus(run, "power_w", "power_limit_w"),
        lambda one: f"{share(one)} of its limit on average", "too few samples of a GPU's power",
    ),
    "gpu_temperature": (_hot_gpu, lambda one: f"{one:.0f} °C at most", "too few samples of a GPU"),
    "gpu_memory": (_full_gpu, lambda one: f"{share(one)} of it at most", "too few samples of a GPU"),
    "data_wait": (
        lambda run: run.lead.per_step("data_wait"), lambda one: f"{duration(one)} per step", ""
    ),
    "cache_hit_rate": (_cache_hit_rate, lambda one: f"{one:.1%} of reads", "no hotloop.feed cache was read"),
    "device_memory": (
        lambda run: device_peak(run.recording), lambda one: f"peak {size(one)}",
        "no memory of a device was used",
    ),
    "host_memory": (host_memory, lambda one: f"peak {size(one)}, workers included", "too few samples"),
    "cpu": (
        lambda run: _mean(run, run.recording.system, "cpu_ratio"),
        lambda one: f"{share(one)} of the machine on average",
        "too few samples while it trained",
    ),
    "cpu_main": (
        lambda run: max(_cores(run, run.recording.ranks), default=None),
        lambda one: f"{share(one)} of a core, the busiest training process",
        "too few samples while it trained",
    ),
    "cpu_worker": (
        _cpu_worker, lambda one: f"{share(one)} of a core, mean of the workers",
        "no worker was sampled often enough",
    ),
    "disk_busy": (
        lambda run: _mean(run, run.recording.system, "disk_busy_ratio"),
        lambda one: f"busy {share(one)} of the time",
        "the disk was not sampled",
    ),
}  # fmt: skip


def host_memory_stable(run: Run) -> Item:
    """The second half of training needs no more memory than noise; what came to rest within it is no leak."""
    name = "host_memory_stable"
    line = _resident(run)
    if line is None or len(line) < _STABLE_SAMPLES:
        return unmeasured(name, f"{0 if line is None else len(line)} samples are too few to tell a trend")
    half, last = (
        # What a straight line through them rises by.
        float(np.polyfit(np.arange(len(part)), part, 1)[0] * (len(part) - 1))
        for part in (line[len(line) // 2 :], line[-(len(line) // 4) :])
    )
    least = max(_STABLE_PART * float(line.max()), _STABLE_BYTES)
    sign = "+" if half >= 0 else "-"
    words = f"{sign}{size(abs(half))} over the second half, peak {size(float(line.max()))}"
    if half >= least and 4 * last < least:
        return unmeasured(name, f"{words}; the last quarter is at rest, so a longer run would tell")
    return passed(name, half < least, words, half)


_JUDGED: Final[Mapping[str, Callable[[Run], Item]]] = {
    "loss_converges": loss_converges,
    "host_memory_stable": host_memory_stable,
}


def _mean(run: Run, columns: Mapping[str, Any], column: str) -> float | None:
    values, at = columns.get(column), columns.get("t_s")
    inside = None if values is None or at is None else run.while_training(at, values)
    return None if inside is None else float(inside.mean())


def _resident(run: Run) -> Floats | None:
    """Memory of the training processes and their workers over the training span, in bytes."""
    line = resident(sampled(run.recording, run.recording.processes))
    return None if line is None else run.while_training(*line)
