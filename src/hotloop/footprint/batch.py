"""The largest batch that fits, and how that was inferred. None where the evidence does not tell."""

from __future__ import annotations

from dataclasses import dataclass

from hotloop.footprint.training import Held

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


def from_one(held: Held, batch_size: int) -> LargestBatch | None:
    """From one run on a device: all that a step takes beyond what is kept is laid to its samples.

    That overstates a sample, so the batch that results is safe, and smaller than the largest.
    """
    spent = held.peak_bytes - held.between_bytes
    if held.capacity_bytes is None or batch_size < 1 or spent < _LEAST_BYTES:
        return None
    slack = (held.reserved_bytes or held.peak_bytes) - held.peak_bytes
    fixed = held.between_bytes + held.outside_bytes + slack
    return _largest(
        "device",
        batch_size,
        spent / batch_size,
        fixed,
        FILLED_RATIO * held.capacity_bytes,
        f"from one batch size ({batch_size}): everything beyond what is kept between steps is laid to its "
        "samples",
    )


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
    fixed = low - per_sample * small
    if fixed < 0:  # memory grew faster than the batch: no line
        return None
    words = f"from two batch sizes ({small} and {large}): a line through their peaks"
    return _largest(memory, large, per_sample, fixed + outside_bytes, FILLED_RATIO * limit_bytes, words)


def _largest(
    memory: str, batch_size: int, per_sample: float, fixed: float, limit: float, inferred: str
) -> LargestBatch | None:
    largest = int((limit - fixed) // per_sample)
    if largest < 1:
        return None
    return LargestBatch(
        memory=memory,
        batch_size=batch_size,
        largest=largest,
        per_sample_bytes=per_sample,
        fixed_bytes=fixed,
        limit_bytes=limit,
        inferred=inferred,
    )
