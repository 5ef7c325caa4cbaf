"""One rank takes longer than the others, or gets other data, and the others wait for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import mean

from hotloop.diagnose.evidence import Evidence, at, cause, rule
from hotloop.diagnose.groups import LineGroup
from hotloop.diagnose.rank_compare import Lead, RankLoad, lead, line_apart
from hotloop.findings import Finding
from hotloop.measure.steps import Steps, core_time_got
from hotloop.units import duration, share, size

#: Phases that point at the rank's input rather than at the rank.
_INPUT = ("data_wait", "epoch_gap")
#: What one rank does for all; the rules of these phases name line and interval.
_CADENCE = ("evaluation", "checkpoint", "logging")
#: One batch more or less is how DistributedSampler rounds.
_ROUNDING_BATCHES = 1.5
#: Batches this many times as large as the others' may be why a rank is slow.
_LARGER = 1.2
_LIKE_BATCHES = "Give every rank batches of like size: bucket by length, or split the data by length."


@rule("distributed/straggler")
def straggler(evidence: Evidence) -> Iterable[Finding]:
    """A rank whose own work is larger while the others wait where ranks meet."""
    found, limits, step_s = lead(evidence), evidence.limits, evidence.steps.step_s
    if found is None:
        return
    cost, phase, slowest = min(found.ahead_s, found.waits_s), found.phase, found.slowest.steps
    if step_s <= 0 or cost < limits.straggler_ratio * step_s:
        return
    if phase in _INPUT or (phase in _CADENCE and slowest.rank == evidence.steps.rank):
        return  # distributed/unbalanced-input or the cadence rules say which
    sampled = evidence.recording.process_system.get(slowest.pid, {})
    # What waits for a core is slow at any line.
    held_up = core_time_got([sampled], *evidence.span) < limits.held_up_ratio
    spot, elsewhere = (None if held_up else line_apart(found, limits.dominant_line_ratio)) or (None, 0.0)
    larger = _times_as_large(found) if spot is None else 0.0
    mostly = phase if spot is None else spot.what + at(spot.place)
    if larger:
        mostly += f", with batches {larger:.1f} times as large"
    yield replace(
        cause(
            evidence,
            message=f"Rank {slowest.rank} is the slowest: {duration(found.ahead_s)} per step more than the "
            f"others, mostly in {mostly}; they wait for it.",
            advice=_LIKE_BATCHES if larger else _advice(slowest.rank, phase, spot),
            numbers=[
                *(_describe(load) for load in found.ranks[:8]),
                f"{phase}: {duration(found.gap_s)} per step more on rank {slowest.rank}",
                *([_batches(found)] if larger else []),
                *([] if spot is None else [_at_the_line(found.slowest, spot, elsewhere)]),
                f"the others wait {duration(found.waits_s)} per step ({share(found.waits_s / step_s)})",
                *_machine(evidence, slowest),
            ],
            cost_s=cost,
            where=None if spot is None else spot.place,
            data={"slowest_rank": slowest.rank, "phase": phase, "effect": "semantic" if larger else ""},
        ),
        rank=slowest.rank,
    )


def _advice(rank: int, phase: str, spot: LineGroup | None) -> str:
    if spot is None:
        return f"Look at what rank {rank} alone does in {phase}, and at its device and cores."
    return (
        f"Do less of it on rank {rank}: share the work{at(spot.place)} out over the ranks, do it less often, "
        "or after training."
    )


def _batch_bytes(load: RankLoad) -> float:
    return loader.batch_bytes if (loader := load.steps.train_loader()) is not None else 0.0


def _times_as_large(found: Lead) -> float:
    """How many times the others' batches those of the slowest rank are, where its phase takes about as many
    times as long (of attention up to the square); else 0.
    """
    others_s = mean(load.own[found.phase] for load in found.others)
    others = [_batch_bytes(load) for load in found.others]
    if not all(others) or others_s <= 0:
        return 0.0
    larger, longer = _batch_bytes(found.slowest) / mean(others), found.slowest.own[found.phase] / others_s
    return larger if larger >= _LARGER and larger**0.5 <= longer <= larger**2 else 0.0


def _batches(found: Lead) -> str:
    others = mean(_batch_bytes(load) for load in found.others)
    return (
        f"batches of {size(_batch_bytes(found.slowest))} on rank {found.slowest.steps.rank}, "
        f"of {size(others)} on the others"
    )


def _at_the_line(slowest: RankLoad, spot: LineGroup, others_s: float) -> str:
    """What the line takes on the slow rank and on the others."""
    seconds = spot.seconds / max(1, slowest.steps.num_steps)
    elsewhere = f"{duration(others_s)} on the others" if others_s > 0 else "never seen on the others"
    return (
        f"{spot.what}{at(spot.place)}: {duration(seconds + others_s)} per step on rank "
        f"{slowest.steps.rank}, {elsewhere}"
    )


def _machine(evidence: Evidence, slowest: Steps) -> list[str]:
    """Which of the machines of a merged run it runs on."""
    if not evidence.recording.nodes:
        return []
    name = evidence.recording.node_of(slowest.pid).machine.get("hostname")
    return [f"rank {slowest.rank} runs on {name}"] if name else []


def _describe(load: RankLoad) -> str:
    meets = ", ".join(f"{duration(seconds)} {phase}" for phase, seconds in load.shared.items())
    return f"rank {load.steps.rank}: {duration(load.own_s)} own work, {meets} per step"


@rule("distributed/unbalanced-input")
def unbalanced_input(evidence: Evidence) -> Iterable[Finding]:
    """One rank that waits for its data while the others wait for it, or epochs of different length."""
    found = lead(evidence)
    if found is None:
        return
    cost, slowest = min(found.ahead_s, found.gap_s, found.waits_s), found.slowest.steps
    if found.phase in _INPUT and cost >= evidence.limits.straggler_ratio * evidence.steps.step_s:
        loader = slowest.train_loader()
        where = loader.where if loader else None
        yield replace(
            cause(
                evidence,
                message=f"Rank {slowest.rank} waits {duration(found.gap_s)} per step longer for its "
                f"data{at(where)} than the other ranks, and they wait for it.",
                numbers=[
                    f"rank {load.steps.rank}: {duration(load.own['data_wait'])} data wait per step"
                    for load in found.ranks[:8]
                ],
                cost_s=cost,
                where=where,
                data={"slowest_rank": slowest.rank},
            ),
            rank=slowest.rank,
        )
    whole = [load.steps for load in found.ranks if not load.steps.partly]
    loaders = {steps.rank: steps.train_loader() for steps in whole}
    lengths = {
        rank: loader.batches_per_epoch
        for rank, loader in loaders.items()
        if loader is not None and loader.num_iterators >= 2 and loader.batches_per_epoch > 0
    }
    low, high = min(lengths.values(), default=0.0), max(lengths.values(), default=0.0)
    if len(lengths) == len(whole) and high - low > max(_ROUNDING_BATCHES, 0.02 * high):
        yield cause(
            evidence,
            message=f"The ranks have epochs of different length: {low:.0f} to {high:.0f} batches.",
            advice="Shard the data evenly (DistributedSampler): the same number of batches for every rank.",
            numbers=[f"rank {rank}: {length:.0f} batches" for rank, length in sorted(lengths.items())[:8]],
            severity="low",
            data={"batches_per_epoch": {str(rank): length for rank, length in lengths.items()}},
        )
