"""What every stage of a dataset's pipeline costs: time, and bytes of its output."""

from __future__ import annotations

import dataclasses
import pickle
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hotloop.feed import randomness
from hotloop.feed.holdings import generators_kept
from hotloop.feed.layout import encode, read, write
from hotloop.feed.pipelines.pipeline import Pipeline

#: Reading samples stops after this long, once there are as many as a spread needs.
MEASURE_S = 10.0
ENOUGH_SAMPLES = 5
#: Samples whose stored form is read back, to know what a hit costs.
READ_BACK = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageCost:
    """One stage, as measured on ``num_samples`` samples with one thread.

    ``time_s`` and ``num_bytes`` are means a sample. ``num_bytes`` is what caching after this stage keeps,
    ``hit_s`` what reading that back takes. ``unstorable`` says why the output cannot be kept.
    """

    name: str
    time_s: float
    num_bytes: float
    hit_s: float
    num_samples: int
    unstorable: str = ""


@dataclasses.dataclass
class _Marks:
    """What was noted about one stage, one entry a sample."""

    times_s: list[float] = dataclasses.field(default_factory=list)
    num_bytes: list[int] = dataclasses.field(default_factory=list)
    hits_s: list[float] = dataclasses.field(default_factory=list)
    unstorable: str = ""


def measure_stages(pipeline: Pipeline, indices: Sequence[int]) -> tuple[StageCost, ...]:
    """Read these samples stage by stage, as a worker would: one torch thread. Random states are kept."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with randomness.preserved(), generators_kept(pipeline):
            return _measure(pipeline, indices)
    finally:
        torch.set_num_threads(threads)


def _measure(pipeline: Pipeline, indices: Sequence[int]) -> tuple[StageCost, ...]:
    marks = {name: _Marks() for name in pipeline.names}
    # What is set up on first use (files, imports) is not the price of a sample.
    pipeline.run(indices[0], lambda name, value: None)
    began = time.perf_counter()
    for count, index in enumerate(indices):
        if count >= ENOUGH_SAMPLES and time.perf_counter() - began > MEASURE_S:
            break
        _measure_one(pipeline, index, marks, read_back=count < READ_BACK)
    return tuple(_cost(name, mark) for name, mark in marks.items())


def _measure_one(pipeline: Pipeline, index: int, marks: dict[str, _Marks], *, read_back: bool) -> None:
    wall = time.perf_counter()

    def after(name: str, value: Any) -> None:
        nonlocal wall
        mark = marks.get(name)
        if mark is None:
            return
        mark.times_s.append(time.perf_counter() - wall)
        _note_output(mark, value, read_back)
        wall = time.perf_counter()

    pipeline.run(index, after)


def _note_output(mark: _Marks, value: Any, read_back: bool) -> None:
    try:
        encoded = encode(value)
    except (pickle.PicklingError, TypeError, AttributeError, NotImplementedError) as error:
        mark.unstorable = str(error) or type(error).__name__
        return
    mark.num_bytes.append(encoded.layout.num_bytes)
    if read_back:
        memory = np.empty(encoded.layout.num_bytes, np.uint8)
        write(encoded, memory)
        began = time.perf_counter()
        read(encoded.layout, memory, copy=True)
        mark.hits_s.append(time.perf_counter() - began)


def _cost(name: str, mark: _Marks) -> StageCost:
    return StageCost(
        name=name,
        time_s=float(np.mean(mark.times_s or [0.0])),
        num_bytes=float(np.mean(mark.num_bytes or [0])),
        hit_s=float(np.median(mark.hits_s or [0.0])),
        num_samples=len(mark.times_s),
        unstorable=mark.unstorable,
    )
