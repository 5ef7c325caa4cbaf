"""The largest batch that fits, from two runs. None where they do not tell."""

from __future__ import annotations

from dataclasses import dataclass

#: Of the memory there is, this much is filled; the rest is for what varies from batch to batch.
FILLED_RATIO = 0.9
#: What a step takes beyond what is kept must be at least this to speak of memory per sample.
_LEAST_BYTES = 32 * 2**20
#: Two batch sizes must be this far apart, and their peaks this much, for a line through them.
_APART_RATIO = 1.25
_GROWN_RATIO = 0.02


@dataclass(frozen=True, kw_only=True)
class LargestBatch:
    """Samples of one rank's batch that fit into ``limit_bytes``."""

    memory: str  # "device" or "host"
    batch_size: int
    largest: int
    per_sample_bytes: float
    fixed_bytes: float
    limit_bytes: float
    inferred: str


def from_two(
    memory: str,
    first: tuple[int, float],
    second: tuple[int, float],
    *,
    outside_bytes: float,
    limit_bytes: float,
) -> LargestBatch | None:
    """From two runs, (batch size, peak bytes) each: a line through both.

    ``outside_bytes`` is what else takes of the limit: workers, the system, other processes.
    """
    (small, low), (large, high) = sorted((first, second))
    if small < 1 or large < _APART_RATIO * small or high - low < max(_LEAST_BYTES, _GROWN_RATIO * low):
        return None
    per_sample = (high - low) / (large - small)
    fixed = low - per_sample * small + outside_bytes
    limit = FILLED_RATIO * limit_bytes
    largest = int((limit - fixed) // per_sample)
    if fixed < outside_bytes or largest < 1:  # memory grew faster than the batch: no line
        return None
    return LargestBatch(
        memory=memory,
        batch_size=large,
        largest=largest,
        per_sample_bytes=per_sample,
        fixed_bytes=fixed,
        limit_bytes=limit,
        inferred=f"from two batch sizes ({small} and {large}): a line through their peaks",
    )
