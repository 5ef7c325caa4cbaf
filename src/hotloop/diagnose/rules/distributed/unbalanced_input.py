"""Ranks get different amounts of data, or get it at different speeds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hotloop.diagnose.causes import at, cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.rank_compare import RankLoad, largest_difference, lead, loads, waiting_s
from hotloop.findings import Finding
from hotloop.units import duration

ID = "distributed/unbalanced-input"

#: One batch more or less is how DistributedSampler rounds.
_ROUNDING_BATCHES = 1.5


def check(evidence: Evidence) -> Iterable[Finding]:
    """One rank that waits for its data while the others wait for it, or epochs of different length."""
    ranks = loads(evidence)
    if not ranks or not enough(evidence):
        return
    yield from _slow_input(evidence, ranks)
    yield from _different_lengths(evidence, ranks)


def _slow_input(evidence: Evidence, ranks: tuple[RankLoad, ...]) -> Iterable[Finding]:
    slowest, ahead = lead(ranks)
    phase, gap = largest_difference(slowest, ranks)
    cost = min(ahead, gap, waiting_s(ranks, slowest))
    if (
        phase not in ("data_wait", "epoch_gap")
        or cost < evidence.limits.straggler_ratio * evidence.steps.step_s
    ):
        return
    loader = slowest.steps.train_loader()
    where = loader.where if loader else None
    finding = cause(
        evidence,
        ID,
        message=(
            f"Rank {slowest.steps.rank} waits {duration(gap)} per step longer for its data{at(where)} "
            "than the other ranks, and they wait for it."
        ),
        advice="Give every rank the same input work: shard by cost, shuffle, use the same storage.",
        numbers=[
            f"rank {load.steps.rank}: {duration(load.steps.per_step('data_wait'))} data wait per step"
            for load in ranks[:8]
        ],
        cost_s=cost,
        where=where,
        data={"slowest_rank": slowest.steps.rank},
    )
    yield replace(finding, rank=slowest.steps.rank)


def _different_lengths(evidence: Evidence, ranks: tuple[RankLoad, ...]) -> Iterable[Finding]:
    lengths = {}
    for load in ranks:
        loader = load.steps.train_loader()
        if loader is not None and loader.num_iterators >= 2 and loader.batches_per_epoch > 0:
            lengths[load.steps.rank] = loader.batches_per_epoch
    if len(lengths) < len(ranks):
        return
    low, high = min(lengths.values()), max(lengths.values())
    if high - low <= max(_ROUNDING_BATCHES, 0.02 * high):
        return
    yield cause(
        evidence,
        ID,
        message=f"The ranks have epochs of different length: {low:.0f} to {high:.0f} batches.",
        advice="Shard the data evenly (DistributedSampler, or the same number of batches from every rank).",
        numbers=[f"rank {rank}: {length:.0f} batches" for rank, length in sorted(lengths.items())[:8]],
        severity="low",
        data={"batches_per_epoch": {str(rank): length for rank, length in lengths.items()}},
    )
