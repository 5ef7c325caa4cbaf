"""What else changed in a log where its rate did."""

from __future__ import annotations

import numpy as np

from hotloop import units
from hotloop.logs.changes import level
from hotloop.logs.log import Log
from hotloop.logs.rates import Series
from hotloop.logs.templates import Floats

_WORDS = {
    "data_time": "data time", "forward": "forward", "backward": "backward", "optimizer": "optimizer",
    "transfer": "transfer", "collective": "collective", "loss": "loss", "lr": "learning rate",
    "batch_size": "batch size", "host_bytes": "host memory", "device_bytes": "device memory",
    "system_bytes": "system memory", "gpu_util": "GPU utilization", "hit_rate": "cache hit rate",
}  # fmt: skip
_LEAST = 0.2
_NEAR = 2


def changed_along(log: Log, series: Series, at: int) -> tuple[str, ...]:
    """Other numbers whose level is another one there, and a new epoch that begins there; one text each."""
    edges = [*log.starts, len(series.line)]
    i = log.starts.index(at)
    begin, turn, end = series.line[edges[i - 1]], series.line[at], series.line[edges[i + 1] - 1]
    said = []
    for role, words in _WORDS.items():
        found = log.column(role)
        if found is None:
            continue
        lines = found[0].columns["line"]
        near = role in ("loss", "lr")  # these move by themselves: only what jumps right there counts
        before = level(found[1][(lines >= begin) & (lines < turn)][-_NEAR if near else 0 :])
        after = level(found[1][(lines >= turn) & (lines <= end)][: _NEAR if near else None])
        if _differs(role, before, after, found[1][(lines >= begin) & (lines < turn)]):
            said.append(f"{words} goes from {_value(role, before)} to {_value(role, after)} there")
    return (*said, *_epoch(series, at))


def _differs(role: str, before: float, after: float, earlier: Floats) -> bool:
    if not (np.isfinite(before) and np.isfinite(after)):
        return False
    ratio = after / before
    if role in ("loss", "lr") and 0.5 < ratio < 2:  # both move anyway
        return False
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
    if role in ("loss", "lr", "batch_size"):
        return f"{value:.3g}"
    if role in ("gpu_util", "hit_rate"):
        return units.share(value)
    return units.duration(value)
