"""``distributed/`` and what else only several files, or several ranks of one file, can tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np

from hotloop import units
from hotloop.findings import Finding, Place
from hotloop.logs.log import Log

_UNEVEN = 0.10
_LEAST_ROWS = 5


@dataclass(frozen=True, kw_only=True)
class _Rank:
    """Means of one rank; NaN where it does not tell."""

    rank: int
    time_s: float
    data_s: float
    where: Place


def check(logs: Sequence[Log]) -> Iterator[Finding]:
    """A rank that is slower than the others in its own step or data time; rates that batches make unlike."""
    ranks = _ranks(logs)
    ranks = [rank for rank in ranks if np.isfinite(rank.time_s)]
    if len(ranks) >= 2 and len({rank.rank for rank in ranks}) == len(ranks):
        yield from _uneven(ranks)
    yield from _batches(logs)


def _ranks(logs: Sequence[Log]) -> list[_Rank]:
    found = []
    for log in logs:
        by_rank: dict[int | None, list[tuple[float, float, int]]] = {}
        for stream in log.trained():
            times, data = stream.get("time"), stream.get("data_time")
            own = times if times is not None else data
            if own is None or len(own) < _LEAST_ROWS:
                continue
            by_rank.setdefault(stream.rank if stream.rank is not None else log.rank, []).append(
                (_median(times), _median(data), int(stream.columns["line"][0]))
            )
        for rank, rows in by_rank.items():
            if rank is not None:
                found.append(
                    _Rank(
                        rank=rank,
                        time_s=rows[0][0],
                        data_s=rows[0][1],
                        where=Place(file=log.file, line=rows[0][2]),
                    )
                )
    return found


def _median(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None) -> float:
    return float(np.nanmedian(values)) if values is not None else float("nan")


def _uneven(ranks: list[_Rank]) -> Iterator[Finding]:
    times = np.array([rank.time_s for rank in ranks])
    data = np.array([rank.data_s for rank in ranks])
    step = float(np.median(times))
    if times.max() > (1 + _UNEVEN) * step:
        worst = ranks[int(np.argmax(times))]
        yield _finding("distributed/straggler", worst, ranks, "step", times.max() - step, times.max())
    if np.isfinite(data).all():
        usual = float(np.median(data))
        if data.max() - usual > _UNEVEN * step:
            worst = ranks[int(np.argmax(data))]
            yield _finding(
                "distributed/unbalanced-input", worst, ranks, "data", data.max() - usual, times.max()
            )


def _finding(name: str, worst: _Rank, ranks: list[_Rank], what: str, more: float, step: float) -> Finding:
    share = more / step
    words = "takes longer over each step" if what == "step" else "waits longer for its data"
    return Finding(
        id=name,
        message=f"Rank {worst.rank} {words} than the others, by {units.duration(more)}.",
        advice="Look at that rank's machine, device and share of the data: the others wait for it.",
        evidence=tuple(
            f"rank {rank.rank}: step {units.duration(rank.time_s)}"
            + (f", data {units.duration(rank.data_s)}" if np.isfinite(rank.data_s) else "")
            for rank in sorted(ranks, key=lambda r: -(r.time_s if what == "step" else r.data_s))[:8]
        ),
        cost_s_per_step=more,
        share=share,
        severity="high" if share >= 0.3 else "medium" if share >= 0.1 else "low",
        where=worst.where,
        rank=worst.rank,
    )


def _batches(logs: Sequence[Log]) -> Iterator[Finding]:
    """Steps per second of runs with unlike batches: samples per second may be the same."""
    known = [
        (log, log.levels[-1], batch)
        for log in logs
        if log.series is not None
        and log.series.unit == "steps/s"
        and (batch := log.read.settings.get("batch_size"))
    ]
    if len(known) < 2 or len({batch for _, _, batch in known}) < 2:
        return
    slow = min(known, key=lambda item: item[1])
    fast = max(known, key=lambda item: item[1])
    if slow[1] * 1.2 > fast[1] or slow[1] * slow[2] < 0.9 * fast[1] * fast[2]:
        return
    yield Finding(
        id="trend/misleading-metric",
        message=(
            f"{units.rate(slow[1])} against {units.rate(fast[1])} steps/s compares batches of {slow[2]} and "
            f"{fast[2]}: in samples it is {units.rate(slow[1] * slow[2])} against "
            f"{units.rate(fast[1] * fast[2])} per second."
        ),
        advice="Compare samples per second, never steps per second, across batch sizes.",
        evidence=tuple(
            f"{PurePath(log.file).name}: {units.rate(rate)} steps/s x {batch} = "
            f"{units.rate(rate * batch)} samples/s"
            for log, rate, batch in known[:8]
        ),
        where=Place(file=slow[0].file, line=1),
        data={"kind": "steps-across-batch-sizes"},
    )
