"""Facts of a log that are no verdict: pauses, memory, devices, the cache."""

from __future__ import annotations

import numpy as np

from hotloop import units
from hotloop.logs.log import Log
from hotloop.logs.part import Section
from hotloop.logs.streams import Stream


def sections(log: Log) -> tuple[Section, ...]:
    """Whatever there is, in this order."""
    found = (_pauses(log), _memory(log), _gpus(log))
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
    own = [stream for stream in log.read.streams if stream.get("gpu_util") is not None]
    if not own:
        return None
    lines, data = [], {}
    for stream in own[:64]:
        name = stream.name if stream.name.startswith("GPU") else "GPU"
        values = _means(stream)
        lines.append(_gpu_line(name, values))
        data[name] = values
    return Section(title="Devices, means over the samples", lines=tuple(lines), data=data)


def _means(stream: Stream) -> dict[str, float]:
    out = {}
    for role in ("gpu_util", "power", "power_limit", "device_bytes", "device_limit", "temperature"):
        column = stream.get(role)
        if column is not None:
            out[role] = float(np.nanmean(column))
    util = stream.columns["gpu_util"]
    out["idle_share"] = float(np.mean(util[np.isfinite(util)] < 0.1))
    return out


def _gpu_line(name: str, values: dict[str, float]) -> str:
    parts = [
        f"busy {units.share(values['gpu_util'])} (idle in {units.share(values['idle_share'])} of samples)"
    ]
    if "power" in values:
        limit = f" of {values['power_limit']:.0f}" if "power_limit" in values else ""
        parts.append(f"{values['power']:.0f}{limit} W")
    if "device_bytes" in values:
        limit = f" of {units.size(values['device_limit'])}" if "device_limit" in values else ""
        parts.append(f"{units.size(values['device_bytes'])}{limit}")
    return f"{name:<6} " + ", ".join(parts)
