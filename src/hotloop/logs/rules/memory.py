"""``memory/``: memory that grows with the run, and memory that is nearly all taken."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.findings import Finding
from hotloop.logs.log import Log
from hotloop.logs.streams import Stream
from hotloop.logs.templates import Floats

_BLOCKS = 8
_LEAST_BYTES = 64 * 2**20
_LEAST_RATIO = 0.03
_NEAR, _AT = 0.90, 0.95


def check(log: Log) -> Iterator[Finding]:
    """Growth of the process and of the device's memory; the system's memory against its size."""
    for role, name, words in (
        ("host_bytes", "memory/host-growth", "The training process"),
        ("device_bytes", "memory/device-growth", "Device memory"),
    ):
        found = log.column(role)
        if found is not None:
            yield from _growth(log, *found, name, words)
    yield from _near_limit(log)


def _growth(log: Log, stream: Stream, column: Floats, name: str, words: str) -> Iterator[Finding]:
    """Still growing in every block of the second half, in no single jump."""
    values = column[np.isfinite(column)]
    if len(values) < 3 * _BLOCKS:
        return
    medians = np.array([np.median(part) for part in np.array_split(values, _BLOCKS)])
    later = np.diff(medians[_BLOCKS // 2 - 1 :])
    grown = float(medians[-1] - medians[_BLOCKS // 2 - 1])
    if (later <= 0).any() or later.max() > 0.6 * grown:
        return
    if grown < max(_LEAST_BYTES, _LEAST_RATIO * medians[0]):
        return
    rows = len(values) * (_BLOCKS // 2) / _BLOCKS * stream.stride
    yield Finding(
        id=name,
        message=(
            f"{words} grows from {units.size(medians[0])} to {units.size(medians[-1])} and goes on growing."
        ),
        advice="Keep numbers, not tensors: .item() or .detach() what every step stores; bound caches.",
        evidence=(
            f"{units.size(grown)} over the second half of the log, "
            f"{units.size(grown / rows)} from line to line",
        ),
        severity="medium",
        where=log.at(stream.columns["line"][np.flatnonzero(np.isfinite(column))[len(values) // 2]]),
        data={"start_bytes": float(medians[0]), "end_bytes": float(medians[-1])},
    )


def _near_limit(log: Log) -> Iterator[Finding]:
    used, limit = log.column("system_bytes"), log.column("system_limit")
    if used is None or limit is None or used[0] is not limit[0]:
        return
    with np.errstate(invalid="ignore", divide="ignore"):
        full = np.where(limit[1] > 0, used[1] / limit[1], np.nan)
    if not np.isfinite(full).any():
        return
    worst = int(np.nanargmax(full))
    if full[worst] < _NEAR:
        return
    yield Finding(
        id="memory/near-limit",
        message=(
            f"{units.share(float(full[worst]))} of the machine's {units.size(limit[1][worst])} was taken."
        ),
        advice="Lower num_workers or prefetch_factor, keep less of the dataset in memory; beyond the limit "
        "the kernel kills a worker or the training process.",
        evidence=(f"{units.size(used[1][worst])} at line {used[0].columns['line'][worst]:,.0f}",),
        severity="high" if full[worst] >= _AT else "medium",
        where=log.at(used[0].columns["line"][worst]),
        data={"used_bytes": float(used[1][worst]), "limit_bytes": float(limit[1][worst])},
    )
