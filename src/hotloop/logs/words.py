"""What was recognized in a log, what it says in words, and facts of it that are no verdict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotloop import units
from hotloop.findings import Finding
from hotloop.logs.log import Log, Section
from hotloop.logs.meanings import PHASE_ROLES, Floats
from hotloop.logs.pauses import LEAST_VALUES, level
from hotloop.logs.rates import Series

_ROLES = {
    "time": "step time", "data_time": "data time", "rate": "steps/s", "sample_rate": "samples/s",
    "token_rate": "tokens/s", "loss": "loss", "lr": "learning rate", "device_bytes": "device memory",
    "host_bytes": "process memory", "system_bytes": "system memory", "hit_rate": "cache hit rate",
    "gpu_util": "GPU utilization", "power": "power", "forward": "forward", "backward": "backward",
    "optimizer": "optimizer", "transfer": "transfer", "collective": "collective", "step": "step",
    "epoch": "epoch", "bar_rate": "progress bar", "evaluation": "evaluation time",
    "checkpoint": "checkpoint time", "batch_size": "batch size", "disk_util": "disk busy",
}  # fmt: skip

#: A few values further apart than this are not called steady.
_APART = 1.25


def recognized(log: Log) -> tuple[str, ...]:
    """What the file's numbers are, how many rows of them, and which clock it has."""
    rows = sum(stream.num_rows for stream in log.read.streams)
    if not rows:
        return ()
    roles = [
        words for role, words in _ROLES.items() if any(s.get(role) is not None for s in log.read.streams)
    ]
    roles += _evaluations(log)
    if log.stages:
        roles.append(f"{len(log.stages)} stages")
    out = [f"{rows:,} rows: " + (", ".join(roles) or "durations under names of their own")]
    if any(stream.get("clock") is not None for stream in log.read.streams):
        out.append("clock: time of day")
    elif any(stream.get("elapsed") is not None for stream in log.read.streams):
        out.append("clock: elapsed time")
    else:
        out.append("no clock")
    if log.series is not None:
        out.append(f"throughput from {log.series.how}")
    return tuple(out)


def _evaluations(log: Log) -> list[str]:
    """At which steps the log says that it evaluates; several lines of one step are one evaluation."""
    said = [column for stream in log.read.streams if (column := stream.get("evaluated")) is not None]
    if not said:
        return []
    steps = np.unique(np.concatenate(said))
    steps = steps[np.isfinite(steps)]
    every = f", every {np.median(np.diff(steps)):,.0f} steps" if len(steps) > 1 else ""
    return [f"{len(steps):,} evaluation{'s'[: len(steps) > 1]}{every}"]


def verdict(log: Log, findings: Sequence[Finding]) -> str:
    """One sentence: the gravest finding, else how the run goes, else nothing."""
    for finding in findings:
        if finding.severity in ("high", "medium") or finding.id == "trend/misleading-metric":
            return finding.message
    wait = next((phase for phase in log.phases if phase.name == "data_wait"), None)
    series = log.series
    busy = [float(np.nanmean(column)) for s in log.trained() if (column := s.get("gpu_util")) is not None]
    if series is not None and len(series.rate) >= 3:
        low, high = min(log.levels), max(log.levels)
        pace = f"{units.rate(log.levels[-1])} {series.unit}"
        if low < high:
            moves = f"Throughput moves between {units.rate(low)} and {units.rate(high)} {series.unit}"
            return f"{moves}, {pace} at the end."
        known = series.rate[np.isfinite(series.rate) & (series.rate > 0)]
        if len(known) < LEAST_VALUES and known.max() > _APART * known.min():
            return (
                f"{units.rate(known.min())} to {units.rate(known.max())} {series.unit} in {len(known)} "
                "values: too few to tell whether it changes."
            )
        fed = f", {units.share(wait.share)} of each step waiting for data" if wait is not None else ""
        return f"Steady at {pace} from first to last{fed}."
    if busy:
        shares = list(dict.fromkeys(map(units.share, (min(busy), max(busy)))))
        which = "The GPU computes" if len(busy) == 1 else f"The {len(busy)} GPUs compute"
        return f"{which} {' to '.join(shares)} of the time."
    disks = {
        s.name: float(np.nanmean(column)) for s in log.trained() if (column := s.get("disk_util")) is not None
    }
    if disks:
        name = max(disks, key=lambda one: disks[one])
        return f"The disk {name} is busy {units.share(disks[name])} of the time."
    if findings:
        return findings[0].message
    return "Nothing in this file says how fast it trains." if log.read.streams else ""


# What else changed


_ALONG = (
    *PHASE_ROLES, "batch_size", "host_bytes", "device_bytes", "system_bytes", "gpu_util", "hit_rate"
)  # fmt: skip
_LEAST = 0.2


def changed_along(log: Log, series: Series, at: int) -> tuple[str, ...]:
    """Other numbers whose level is another one there, and a new epoch that begins there; one text each."""
    edges = [*log.starts, len(series.line)]
    i = log.starts.index(at)
    begin, turn, end = series.line[edges[i - 1]], series.line[at], series.line[edges[i + 1] - 1]
    said = []
    for role in _ALONG:
        found = log.column(role)
        if found is None:
            continue
        lines = found[0].columns["line"]
        earlier, later = (
            found[1][(lines >= begin) & (lines < turn)],
            found[1][(lines >= turn) & (lines <= end)],
        )
        before, after = level(earlier), level(later)
        if _differs(before, after, earlier):
            said.append(f"{_ROLES[role]} goes from {_value(role, before)} to {_value(role, after)} there")
    return (*said, *_epoch(series, at))


def _differs(before: float, after: float, earlier: Floats) -> bool:
    if not (np.isfinite(before) and np.isfinite(after)):
        return False
    ratio = after / before
    spread = float(np.nanquantile(earlier, 0.9) / max(1e-30, np.nanquantile(earlier, 0.1)))
    return (ratio > 1 + _LEAST or ratio < 1 - _LEAST) and max(ratio, 1 / ratio) > 0.8 * spread


def _epoch(series: Series, at: int) -> tuple[str, ...]:
    epoch = series.stream.get("epoch")
    if epoch is None or at == 0:
        return ()
    lines = series.stream.columns["line"]
    here = epoch[min(int(np.searchsorted(lines, series.line[at])), len(epoch) - 1)]
    before = epoch[min(int(np.searchsorted(lines, series.line[at - 1])), len(epoch) - 1)]
    if here == before + 1 and float(here).is_integer():
        return (f"epoch {here:.0f} begins there",)
    return ()


def _value(role: str, value: float) -> str:
    if role.endswith("_bytes"):
        return units.size(value)
    if role == "batch_size":
        return f"{value:.3g}"
    if role in ("gpu_util", "hit_rate"):
        return units.share(value)
    return units.duration(value)


# Sections


def sections(log: Log) -> tuple[Section, ...]:
    """Whatever there is, in this order."""
    found = (_pauses(log), _memory(log), _gpus(log), _disks(log))
    return tuple(section for section in found if section is not None)


def _pauses(log: Log) -> Section | None:
    kinds, span = log.read.pauses.kinds, log.read.pauses.span_s
    if not kinds or span <= 0:
        return None
    ordered = sorted(kinds.items(), key=lambda item: -item[1].seconds)
    return Section(
        title=f"Pauses between lines of training ({units.duration(span)} in all)",
        lines=tuple(
            f"{kind:<12} {pause.count:>5,} x {units.duration(pause.seconds / pause.count):<11} "
            f"{units.share(pause.seconds / span):>5}   longest at line {pause.line:,}"
            for kind, pause in ordered
        ),
        data={
            kind: {"count": p.count, "seconds": p.seconds, "longest_s": p.longest_s, "line": p.line}
            for kind, p in ordered
        },
    )


def _memory(log: Log) -> Section | None:
    lines, data = [], {}
    names = {"host_bytes": "process", "device_bytes": "device", "system_bytes": "system"}
    for role, name in names.items():
        found = log.column(role)
        if found is None or found[0].get("gpu_util") is not None:
            continue
        good = found[1][np.isfinite(found[1])]
        if len(good) < 2:
            continue
        first, most, last = float(good[0]), float(good.max()), float(good[-1])
        lines.append(
            f"{name:<8} {units.size(first)} first, {units.size(last)} last, {units.size(most)} at most"
        )
        data[name] = {"first_bytes": first, "last_bytes": last, "max_bytes": most}
    return Section(title="Memory", lines=tuple(lines), data=data) if lines else None


def _gpus(log: Log) -> Section | None:
    """Means over the samples of each GPU."""
    data = {}
    for stream in log.read.streams:
        if stream.get("gpu_util") is not None:
            roles = ("gpu_util", "power", "power_limit", "device_bytes", "device_limit", "temperature")
            means = {role: float(np.nanmean(c)) for role in roles if (c := stream.get(role)) is not None}
            data[stream.name or "GPU"] = means
    lines = tuple(f"{name:<6} {_gpu_words(means)}" for name, means in data.items())
    return Section(title="Devices, means over the samples", lines=lines, data=data) if data else None


def _disks(log: Log) -> Section | None:
    """Means over the samples of each disk that did something."""
    data = {}
    for stream in log.read.streams:
        roles = ("disk_util", "await", "read_await", "write_await")
        means = {role: float(np.nanmean(c)) for role in roles if (c := stream.get(role)) is not None}
        if means.get("disk_util"):
            data[stream.name] = means
    waits = {"await": "", "read_await": "reading ", "write_await": "writing "}
    lines = tuple(
        f"{name:<10} busy {units.share(means['disk_util'])}"
        + "".join(f", {w}{units.duration(means[r])} a request" for r, w in waits.items() if means.get(r))
        for name, means in sorted(data.items(), key=lambda item: -item[1]["disk_util"])
    )
    return Section(title="Disks, means over the samples", lines=lines, data=data) if data else None


def _gpu_words(means: dict[str, float]) -> str:
    parts = [f"busy {units.share(means['gpu_util'])}"]
    for role, most, words in (
        ("power", "power_limit", "{:.0f} W".format),
        ("device_bytes", "device_limit", units.size),
    ):
        if role in means:
            parts.append(words(means[role]) + (f" of {words(means[most])}" if most in means else ""))
    return ", ".join(parts)
