"""Which finding gives way to which, where two rules see the same seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hotloop.findings import Finding


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """``loser`` is dropped where ``winner`` was found; with ``same_place`` only at the same line, with a
    ``share`` only where the winner has that much of its cost.
    """

    loser: str
    winner: str
    same_place: bool = False
    share: float = 0.0


OVERLAPS: tuple[Overlap, ...] = (
    # The special case says what to do, the general one only where.
    Overlap(loser="input/slow-sample", winner="input/per-sample-conversion", same_place=True),
    Overlap(loser="input/slow-sample", winner="input/slow-storage", same_place=True),
    Overlap(loser="input/slow-sample", winner="input/slow-collate", same_place=True),
    Overlap(loser="input/slow-sample", winner="input/straggling-samples", same_place=True),
    Overlap(loser="input/slow-sample", winner="input/cold-start", same_place=True),
    Overlap(loser="host/python-in-step", winner="host/recomputed-targets", same_place=True),
    Overlap(loser="host/python-in-step", winner="host/viewer-in-loop", same_place=True),
    Overlap(loser="host/python-in-step", winner="input/iterator-per-step", same_place=True),
    Overlap(loser="trend/step-outliers", winner="host/python-in-step", same_place=True),
    # What is done in a few steps only is made less often, not faster.
    Overlap(loser="input/slow-sample", winner="trend/step-outliers", same_place=True, share=0.9),
    # Workers that are started again every epoch look like a cold start and like too many of them.
    Overlap(loser="input/cold-start", winner="input/respawned-workers"),
    # Advice that would contradict: more workers where they cost more than they bring.
    Overlap(loser="input/too-few-workers", winner="input/worker-transport"),
    Overlap(loser="input/shallow-prefetch", winner="input/worker-transport"),
    Overlap(loser="input/too-many-workers", winner="input/worker-transport"),
    # A growing cache is a named reason for growth.
    Overlap(loser="memory/worker-copies", winner="memory/unbounded-cache"),
    Overlap(loser="memory/host-growth", winner="memory/unbounded-cache"),
    # What happened says more than what might.
    Overlap(loser="memory/near-limit", winner="memory/out-of-memory"),
    Overlap(loser="memory/shared-memory-small", winner="memory/out-of-memory"),
    Overlap(loser="input/cache-thrash", winner="memory/page-cache-thrash"),
)


def resolved(findings: Sequence[Finding]) -> list[Finding]:
    """The findings without those that give way to another one."""
    return [finding for finding in findings if not any(_loses(finding, other) for other in findings)]


def _loses(finding: Finding, other: Finding) -> bool:
    a, b = finding.where, other.where
    return any(
        overlap.loser == finding.id
        and overlap.winner == other.id
        and (not overlap.same_place or bool(a and b and a.at_line == b.at_line))
        and (other.cost_s_per_step or 0.0) >= overlap.share * (finding.cost_s_per_step or 0.0)
        for overlap in OVERLAPS
    )
