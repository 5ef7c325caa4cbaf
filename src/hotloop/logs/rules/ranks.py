"""``distributed/`` and what else only several files, or several ranks of one file, can tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hotloop import units
from hotloop.findings import Finding, Place
from hotloop.logs.log import Log, severity_of
from hotloop.logs.part import Part

#: As in ``diagnose.limits``: ranks that differ by less are even.
_UNEVEN: Final = 0.10
_LEAST_ROWS: Final = 5


@dataclass(frozen=True, kw_only=True)
class _Rank:
    """Seconds of a step of one rank: in all, its own (without collectives) and its wait for data, or NaN."""

    rank: int
    step_s: float
    own_s: float
    data_s: float
    where: Place | None = None


def check(logs: Sequence[Log], traces: Sequence[Part]) -> Iterator[Finding]:
    """A rank that is slower than the others in its own step or data time."""
    ranks = [*_of_logs(logs), *_of_traces(traces)]
    if len(ranks) >= 2 and len({rank.rank for rank in ranks}) == len(ranks):
        yield from _uneven(ranks)


def _of_logs(logs: Sequence[Log]) -> Iterator[_Rank]:
    seen: set[tuple[str, int]] = set()
    for log in logs:
        for stream in log.trained():
            rank = stream.rank if stream.rank is not None else log.rank
            times, data = stream.get("time"), stream.get("data_time")
            if times is None or len(times) < _LEAST_ROWS or rank is None or (log.file, rank) in seen:
                continue
            seen.add((log.file, rank))
            step_s = float(np.nanmedian(times))
            yield _Rank(
                rank=rank,
                step_s=step_s,
                own_s=step_s,
                data_s=float(np.nanmedian(data)) if data is not None else float("nan"),
                where=Place(file=log.file, line=int(stream.columns["line"][0])),
            )


def _of_traces(traces: Sequence[Part]) -> Iterator[_Rank]:
    for part in traces:
        phases = {phase.name: phase.s_per_step for phase in part.phases}
        if part.source.rank is not None and phases:
            step_s = sum(phases.values())
            yield _Rank(
                rank=part.source.rank,
                step_s=step_s,
                own_s=step_s - phases.get("collective", 0.0),
                data_s=phases.get("data_wait", 0.0),
            )


def _uneven(ranks: list[_Rank]) -> Iterator[Finding]:
    """The rank that the others wait for; the wait for data is its cause where that is most of it."""
    own, data = np.array([rank.own_s for rank in ranks]), np.array([rank.data_s for rank in ranks])
    step = float(np.median([rank.step_s for rank in ranks]))
    more, waits = (values.max() - float(np.median(values)) for values in (own, data))
    if waits > _UNEVEN * step and 2 * waits > more:
        name, words, more, values = "unbalanced-input", "waits longer for its data", waits, data
    elif more > _UNEVEN * step:
        name, words, values = "straggler", "takes longer over each step", own
    else:
        return
    worst = ranks[int(np.argmax(values))]
    share = float(more / max(rank.step_s for rank in ranks))
    yield Finding(
        id=f"distributed/{name}",
        message=f"Rank {worst.rank} {words} than the others, by {units.duration(more)}.",
        advice="Look at that rank's machine, device and share of the data: the others wait for it.",
        evidence=tuple(
            f"rank {ranks[i].rank}: step {units.duration(ranks[i].own_s)} without collectives"
            + (f", data {units.duration(ranks[i].data_s)}" if np.isfinite(ranks[i].data_s) else "")
            for i in np.argsort(-values)[:8]
        ),
        cost_s_per_step=float(more),
        share=share,
        severity=severity_of(share),
        where=worst.where,
        rank=worst.rank,
    )
