"""The main thread's samples: which row or gap each fell into, and how they divide the gaps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hotloop.measure.attribution import AT_EXIT, LONG_GAP_NS, Bytes, Floats, Gaps, Split
from hotloop.measure.loop import Loop, Reading
from hotloop.measure.spans import Ints, Spans, Table, innermost
from hotloop.phases import COLUMN, PHASES


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """Where every sample fell and what it is part of. Arrays over samples unless marked."""

    samples: Table
    gap: Ints  # index of the open gap, -1
    phase: Bytes
    kind: Bytes  # kind of the innermost row, 0 in gaps
    reading: Ints  # index into ``readings`` for those in open gaps, -1
    readings: tuple[Reading, ...]  # [distinct]


def read_samples(samples: Table, spans: Spans, phase: Bytes, gaps: Gaps, loop: Loop) -> Sampled:
    """Finds the row or the gap of every sample and reads its stack."""
    owner = innermost(spans, samples.start)
    held = owner >= 0
    kind = np.zeros(len(samples), np.uint8)
    found = np.full(len(samples), COLUMN["other"], np.uint8)
    kind[held], found[held] = spans.kind[owner[held]], phase[owner[held]]
    gap = np.where(held, -1, gaps.find(samples.start))
    known = np.flatnonzero(gap >= 0)
    found[known] = gaps.phase[gap[known]]
    in_open = known[gaps.open[gap[known]]]
    pair = (samples.value[in_open].astype(np.int64) << 16) | gaps.key[gap[in_open]]
    pairs, which = np.unique(pair, return_inverse=True)
    readings = tuple(loop.read(int(p) >> 16, int(p) & 0xFFFF) for p in pairs)
    reading = np.full(len(samples), -1, np.int64)
    reading[in_open] = which
    columns = np.array([COLUMN[r.phase] for r in readings], np.uint8)
    found[in_open] = columns[which] if len(columns) else 0
    closed = np.full(len(samples), -1, np.int64)
    closed[in_open] = gap[in_open]
    return Sampled(samples=samples, gap=closed, phase=found, kind=kind, reading=reading, readings=readings)


def tiled(samples: Table) -> Table:
    """Samples whose weights do not overlap: none reaches back beyond the one before it."""
    if len(samples) < 2:
        return samples
    weight = samples.duration
    weight[1:] = np.minimum(weight[1:], np.diff(samples.start))
    return replace(samples, end=samples.start + weight)


def split_gaps(sampled: Sampled, gaps: Gaps) -> Split:
    """Divides long gaps by their own samples, short ones by all samples between the same kinds of row."""
    index = np.flatnonzero(sampled.gap >= 0)
    gap = sampled.gap[index]
    kept = gaps.key[gap] != AT_EXIT
    index, gap = index[kept], gap[kept]
    length = gaps.end[gap] - gaps.start[gap]
    # Whole weights: cutting the first at the gap's start would short-change whatever comes first in it.
    weight = np.clip(sampled.samples.duration[index], 1, np.maximum(length, LONG_GAP_NS))
    long = length >= LONG_GAP_NS
    phase = sampled.phase[index]
    return Split(
        by_key=_shares(gaps.key[gap[~long]], phase[~long], weight[~long]),
        by_gap=_shares(gap[long], phase[long], weight[long]),
    )


def _shares(pool: npt.NDArray[Any], phase: Bytes, weight: Ints) -> dict[int, Floats]:
    names, which = np.unique(pool, return_inverse=True)
    sums = np.zeros((len(names), len(PHASES)))
    np.add.at(sums, (which, phase), weight)
    return {int(name): pool_sum / pool_sum.sum() for name, pool_sum in zip(names, sums, strict=True)}
