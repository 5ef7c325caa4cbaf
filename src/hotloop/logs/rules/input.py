"""``input/``: the step waits for its data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.findings import Finding
from hotloop.logs.log import WORTH, Log
from hotloop.logs.streams import Stream
from hotloop.logs.templates import Floats

#: Below this hit rate a cache of the dataset does little (guide S1).
_HIT_RATE = 0.6


def check(log: Log) -> Iterator[Finding]:
    """The share of the step that is data time, and a cache that misses."""
    yield from _data_wait(log)
    yield from _cache(log)


def _data_wait(log: Log) -> Iterator[Finding]:
    wait = next((phase for phase in log.phases if phase.name == "data_wait"), None)
    found = log.column("data_time")
    if wait is None or found is None or wait.share < WORTH or np.isfinite(found[1]).sum() < 3:
        return
    workers = log.read.settings.get("num_workers")
    single = workers == 0
    known = f"num_workers={workers}" if workers is not None else "the number of workers is not in the log"
    yield log.costed(
        Finding(
            id="input/single-process" if single else "input/data-wait",
            message=(
                f"Each step waits {units.duration(wait.s_per_step)} for its data, "
                f"{units.share(wait.share)} of it" + ("; the loader has no workers." if single else ".")
            ),
            advice=(
                "Give the loader workers (num_workers), persistent ones."
                if single
                else "Run the command under `hotloop run`: it names the line, workers or storage behind it."
            ),
            evidence=(
                f"data time {units.duration(wait.s_per_step)} of "
                f"{units.duration(wait.s_per_step / wait.share)} per step, over {found[0].num_rows:,} lines",
                known,
                *_uneven(*found),
            ),
            where=log.at(found[0].columns["line"][0]),
            remedies=("num-workers",) if single else (),
            data={"num_workers": workers} if workers is not None else {},
        ),
        wait.share,
    )


def _uneven(stream: Stream, values: Floats) -> tuple[str, ...]:
    good = values[np.isfinite(values)]
    if len(good) < 20:
        return ()
    middle, high = float(np.median(good)), float(np.quantile(good, 0.95))
    if high < 4 * max(middle, 1e-6):
        return ()
    step, apart = stream.get("step"), np.diff(np.flatnonzero(good > 0.5 * high))
    every_step = step is not None and float(np.median(np.diff(step))) == 1
    if every_step and len(apart) >= 8 and apart[0] > 1 and float(np.mean(apart == apart[0])) > 0.9:
        return (f"in every {apart[0]}th step and hardly in the others: {apart[0]} workers that take turns",)
    return (
        f"unevenly: the median is {units.duration(middle)}, one line in twenty has {units.duration(high)}",
    )


def _cache(log: Log) -> Iterator[Finding]:
    found = log.column("hit_rate")
    if found is None:
        return
    stream, rates = found
    good = rates[np.isfinite(rates)]
    last = float(np.median(good[-max(1, len(good) // 4) :]))
    if not 0 <= last < _HIT_RATE:
        return
    yield Finding(
        id="input/cache-thrash",
        message=f"The dataset's cache answers {units.share(last)} of the reads.",
        advice="Make the cache large enough for an epoch, or keep a fixed part of the data in it: in "
        "shuffled epochs throwing out the least recently used sample throws out what comes next.",
        evidence=(f"hit rate {units.share(float(good[0]))} first, {units.share(last)} at the end",),
        severity="medium",
        where=log.at(stream.columns["line"][np.flatnonzero(np.isfinite(rates))[-1]]),
        data={"hit_rate": last},
    )
