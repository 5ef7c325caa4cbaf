"""``input/``, ``memory/`` and ``device/``: what the step waits for, what grows, which stage takes most."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.findings import Finding
from hotloop.logs.log import WORTH, Log
from hotloop.logs.meanings import Floats, Stream

# The wait for data


#: Below this hit rate a cache of the dataset does little (guide S1).
_HIT_RATE = 0.6


def data_wait(log: Log) -> Iterator[Finding]:
    """The share of the step that is data time."""
    wait = next((phase for phase in log.phases if phase.name == "data_wait"), None)
    found = log.column("data_time")
    if wait is None or found is None or wait.share < WORTH or np.isfinite(found[1]).sum() < 3:
        return
    workers = log.read.num_workers
    single = workers == 0
    known = f"num_workers={workers}" if workers is not None else "the number of workers is not in the log"
    step_s = wait.s_per_step / wait.share
    yield log.finding(
        "input/single-process" if single else "input/data-wait",
        f"Each step waits {units.duration(wait.s_per_step)} for its data, {units.share(wait.share)} of it"
        + ("; the loader has no workers." if single else "."),
        (
            f"data time {units.duration(wait.s_per_step)} of {units.duration(step_s)} per step, over "
            f"{found[0].num_rows:,} lines",
            known,
        ),
        found[0].columns["line"][0],
        share=wait.share,
        remedies=("num-workers",) if single else (),
        data={"num_workers": workers} if workers is not None else {},
    )


def cache(log: Log) -> Iterator[Finding]:
    """A cache that misses."""
    found = log.column("hit_rate")
    if found is None:
        return
    stream, rates = found
    good = rates[np.isfinite(rates)]
    last = float(np.median(good[-max(1, len(good) // 4) :]))
    if not 0 < last < _HIT_RATE:  # none at all: a counter of the main process, say, while workers read
        return
    yield log.finding(
        "input/cache-thrash",
        f"The dataset's cache answers {units.share(last)} of the reads.",
        (f"hit rate {units.share(float(good[0]))} first, {units.share(last)} at the end",),
        stream.columns["line"][np.flatnonzero(np.isfinite(rates))[-1]],
        advice="Make the cache large enough for an epoch, or keep a fixed part of the data in it: in "
        "shuffled epochs throwing out the least recently used sample throws out what comes next.",
        severity="medium",
        data={"hit_rate": last},
    )


# Memory


_BLOCKS = 8
_LEAST_BYTES = 64 * 2**20
_LEAST_RATIO = 0.03
_NEAR, _AT = 0.90, 0.95


def memory(log: Log) -> Iterator[Finding]:
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
    yield log.finding(
        name,
        f"{words} grows from {units.size(medians[0])} to {units.size(medians[-1])} and goes on growing.",
        (
            f"{units.size(grown)} over the second half of the log, {units.size(grown / rows)} from line to "
            "line",
        ),
        stream.columns["line"][np.flatnonzero(np.isfinite(column))[len(values) // 2]],
        advice="Keep numbers, not tensors: .item() or .detach() what every step stores; bound caches.",
        severity="medium",
        data={"start_bytes": float(medians[0]), "end_bytes": float(medians[-1])},
    )


def _near_limit(log: Log) -> Iterator[Finding]:
    """Memory against its size, or the share that the log itself states: whichever is more."""
    used, limit, share = map(log.column, ("system_bytes", "system_limit", "system_share"))
    seen: list[tuple[float, float, str, dict[str, float]]] = []  # share, line, whole, data
    if used is not None and limit is not None and used[0] is limit[0]:
        full = np.where(limit[1] > 0, used[1] / limit[1], np.nan)
        if np.isfinite(full).any():
            worst = int(np.nanargmax(full))
            taken, whole = float(used[1][worst]), float(limit[1][worst])
            data = {"used_bytes": taken, "limit_bytes": whole}
            seen.append((float(full[worst]), used[0].columns["line"][worst], units.size(whole), data))
    if share is not None:
        worst = int(np.nanargmax(share[1]))
        seen.append((float(share[1][worst]), share[0].columns["line"][worst], "memory", {}))
    most, line, whole_words, data = max(seen, default=(0.0, 0.0, "", {}), key=lambda one: one[0])
    if _NEAR <= most <= 1:
        yield log.finding(
            "memory/near-limit",
            f"{100 * most:.1f} % of the machine's {whole_words} was taken.",
            (f"at line {line:,.0f}",),
            line,
            severity="high" if most >= _AT else "medium",
            data=data,
        )


# The device


_HOT = 0.30
_MODULE = re.compile(r"stage|layer|block|module|fus|head|backbone|encoder|decoder|attn|attention|conv|neck")


def device(log: Log) -> Iterator[Finding]:
    """The stage that takes most."""
    stages = log.stages
    stated = stages[:1] and stages[0].of == "stated"
    if (len(stages) >= 4 or stated) and stages[0].share >= _HOT and _MODULE.search(stages[0].name):
        top = stages[0]
        found = log.column("stage:" + top.name)
        yield log.finding(
            "device/hot-module",
            f"{top.name[:1].upper()}{top.name[1:]} takes {units.share(top.share)} "
            + ("as the log says" if stated else f"of the {len(stages)} stages' time")
            + f" ({units.duration(top.s_per_step)}).",
            tuple(f"{s.name}: {units.duration(s.s_per_step)} ({units.share(s.share)})" for s in stages[:4]),
            found[0].columns["line"][0] if found else 1,
            advice=f"Look at {top.name} first; the first three take "
            f"{units.share(sum(stage.share for stage in stages[:3]))} together.",
            severity="info",
            data={"stage": top.name, "share": top.share},
        )
