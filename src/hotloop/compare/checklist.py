"""The items of a checklist, each looked up in a recording."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from hotloop.compare.expectation import Expectation, Limit
from hotloop.compare.items import Item, passed, unmeasured
from hotloop.compare.losses import ema, learned_at_least
from hotloop.compare.run import Run
from hotloop.compare.speed import Speed, crowd, per_s, samples_per_s
from hotloop.compare.trace import Floats
from hotloop.errors import UsageError
from hotloop.measure.others import span_s
from hotloop.record.totals import at_times, device_peak, sampled, total
from hotloop.units import duration, rate, share, size

#: Samples of the system that a mean is told from.
_LEAST_SAMPLES: Final = 3
#: Memory is stable where its second half grows by less than this part of the peak, and by less than 64 MiB.
_STABLE_PART: Final = 0.05
_STABLE_BYTES: Final = 64 * 2**20
_STABLE_SAMPLES: Final = 10

#: Items that others on the machine change.
_TIMED: Final = ("samples_per_s", "steps_per_s", "data_wait", "cpu")

Value = tuple[float, str]


def checklist(
    asked: Expectation, run: Run, speed: Speed, checkpoint: Item, log: Path | None = None
) -> list[Item]:
    """One item per entry of the file, in its order; ``log`` is a text that metrics may stand in."""
    items = []
    for name, limit in asked.items.items():
        if name in _JUDGED:
            items.append(_JUDGED[name](run))
            continue
        if name == "speedup":
            items.append(_speedup(speed, limit))
            continue
        if name == "checkpoint_loads":
            items.append(replace(checkpoint, name=name))
            continue
        found = _MEASURED[name](run)
        if isinstance(found, str):
            items.append(unmeasured(name, found, limit.words))
            continue
        value, words = found
        doubt = _doubt(name, value, limit, run) if name in _TIMED else ""
        if doubt:
            items.append(unmeasured(name, f"{words}{doubt}", limit.words))
        else:
            items.append(passed(name, limit.holds(value), words, value, limit.words))
    printed = _last_in(log, list(asked.metrics)) if log is not None else {}
    return [*items, *(_metric(name, limit, run, printed) for name, limit in asked.metrics.items())]


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
        with log.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                for name, shape in shapes.items():
                    for value in shape.findall(line):
                        found[name] = float(value), found.get(name, (0.0, 0))[1] + 1
    except OSError as error:
        raise UsageError(f"{log} cannot be read: {error.strerror}") from error
    return found


def _metric(name: str, limit: Limit, run: Run, printed: Mapping[str, tuple[float, int]]) -> Item:
    item = f"metrics.{name}"
    if name in printed:
        value, count = printed[name]
        return passed(
            item, limit.holds(value), f"{value:.6g}, the last of {count:,} in the log", value, limit.words
        )
    note = run.trace.metrics.get(name)
    if note is None:
        near = [one for one in run.trace.metrics if one.lower().endswith(name.lower())]
        note = run.trace.metrics[near[0]] if len(near) == 1 else None
    if note is None:
        known = ", ".join(sorted(run.trace.metrics)[:6])
        why = f"logged are: {known}" if known else "logged neither to TensorBoard nor to wandb; see --log"
        return unmeasured(item, why, limit.words)
    if note["last"] is None:
        return passed(item, False, "the last value is not finite", None, limit.words)
    value = float(note["last"])
    return passed(item, limit.holds(value), f"{value:.6g}, the last of {note['count']:,}", value, limit.words)


def _doubt(name: str, value: float, limit: Limit, run: Run) -> str:
    """Why a time says nothing about a limit: others had the machine too, or its interval spans the limit."""
    if not limit.holds(value) and (others := crowd(run)):
        return f", but {others}: what it is alone is not known"
    steps, ci95 = per_s(run)
    if not name.endswith("_per_s") or steps is None or ci95 is None:
        return ""
    low, high = (value * edge / steps for edge in ci95)
    if limit.holds(low) == limit.holds(high):
        return ""
    return f" [{rate(low)}, {rate(high)}] spans the limit: cannot tell"


# -- values: a number with words, or why there is none ------------------------------------------------------


def _value_of(
    learn: Callable[[Run], float | None], words: Callable[[float], str], why: str
) -> Callable[[Run], Value | str]:
    """A value with its words; ``why`` there is none."""

    def measured(run: Run) -> Value | str:
        value = learn(run)
        return why if value is None else (value, words(value))

    return measured


def _busy_gpu(run: Run) -> float | None:
    gpus = run.recording.machine.get("gpus") or []
    shown = [i for i, gpu in enumerate(gpus) if gpu.get("visible", True)]
    return min((mean for i in shown if (mean := _mean(run, f"gpu{i}_util_ratio")) is not None), default=None)


def host_memory(run: Run) -> float | None:
    """Peak of the training processes and their workers in bytes."""
    line = _resident(run)
    return float(line.max()) if line is not None else None


def _cache_hit_rate(run: Run) -> Value | str:
    last = {note["id"]: note for note in run.process.notes.get("cache", ())}
    hits, misses = (float(sum(note[name] for note in last.values())) for name in ("hits", "misses"))
    asked = hits + misses
    if not asked:
        return "no hotloop.feed cache was read"
    value = hits / asked
    return value, f"{value:.1%} of {asked:,.0f} reads"


_MEASURED: Final[Mapping[str, Callable[[Run], Value | str]]] = {
    "samples_per_s": _value_of(
        samples_per_s, lambda value: f"{rate(value)} samples/s", "too few steady steps, or of unknown size"
    ),
    "steps_per_s": _value_of(
        lambda run: per_s(run)[0], lambda value: f"{rate(value)} steps/s", "too few steady steps"
    ),
    "gpu_utilization": _value_of(
        _busy_gpu, lambda value: f"{share(value)} on average while it trained", "too few samples of a GPU"
    ),
    "data_wait": _value_of(
        lambda run: run.lead.per_step("data_wait"), lambda value: f"{duration(value)} per step", ""
    ),
    "cache_hit_rate": _cache_hit_rate,
    "device_memory": _value_of(
        lambda run: device_peak(run.recording),
        lambda value: f"peak {size(value)}",
        "no memory of a device was used",
    ),
    "host_memory": _value_of(
        host_memory, lambda value: f"peak {size(value)}, workers included", "too few samples"
    ),
    "cpu": _value_of(
        lambda run: _mean(run, "cpu_ratio"),
        lambda value: f"{share(value)} of the machine on average",
        "too few samples while it trained",
    ),
    "disk_busy": _value_of(
        lambda run: _mean(run, "disk_busy_ratio"),
        lambda value: f"busy {share(value)} of the time",
        "the disk was not sampled",
    ),
}


def host_memory_stable(run: Run) -> Item:
    """The second half of training needs no more memory than noise; what came to rest within it is no leak."""
    name = "host_memory_stable"
    line = _resident(run)
    if line is None or len(line) < _STABLE_SAMPLES:
        return unmeasured(name, f"{0 if line is None else len(line)} samples are too few to tell a trend")
    grown, least = _grown(line[len(line) // 2 :]), max(_STABLE_PART * float(line.max()), _STABLE_BYTES)
    words = (
        f"{'+' if grown >= 0 else '-'}{size(abs(grown))} over the second half, peak {size(float(line.max()))}"
    )
    last = line[-(len(line) // 4) :]
    if grown >= least and len(last) >= _STABLE_SAMPLES // 2 and 2 * _grown(last) < least / 2:
        return unmeasured(name, f"{words}; the last quarter is at rest, so a longer run would tell")
    return passed(name, grown < least, words, grown)


_JUDGED: Final[Mapping[str, Callable[[Run], Item]]] = {
    "finite_loss": finite_loss,
    "loss_converges": loss_converges,
    "host_memory_stable": host_memory_stable,
}


def _grown(line: Floats) -> float:
    """What a line through the samples rises by from the first to the last."""
    return float(np.polyfit(np.arange(len(line)), line, 1)[0] * (len(line) - 1))


def _mean(run: Run, column: str) -> float | None:
    values, at = run.recording.system.get(column), run.recording.system.get("t_s")
    if values is None or at is None:
        return None
    start, end = span_s(run.recording, run.process, run.lead)
    inside = values[(at >= start) & (at <= end) & np.isfinite(values)]
    return float(inside.mean()) if len(inside) >= _LEAST_SAMPLES else None


def _resident(run: Run) -> Floats | None:
    """Memory of the training processes and their workers over the training span, in bytes."""
    recording = run.recording
    workers = [worker for rank in recording.ranks for worker in rank.workers]
    resident = total(sampled(recording, recording.ranks), "rss_bytes", whole=False)
    if resident is None:
        return None
    at, held = resident
    # Workers share most of their pages with the process that started them.
    held = held + at_times(total(sampled(recording, workers), "pss_bytes", whole=False), at)
    start, end = span_s(recording, run.process, run.lead)
    inside = held[(at >= start) & (at <= end)]
    return inside if len(inside) >= _LEAST_SAMPLES else None
