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
from hotloop.feed.holdings import left_as_it_was
from hotloop.feed.layout import encode, read, write
from hotloop.feed.pipelines.pipeline import Pipeline

#: Reading samples stops after this long, once there are as many as a spread needs.
MEASURE_S = 10.0
ENOUGH_SAMPLES = 5


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


def measure_stages(pipeline: Pipeline, indices: Sequence[int]) -> tuple[StageCost, ...]:
    """Read these samples stage by stage, as a worker would: one torch thread. Random states are kept."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with randomness.preserved(), left_as_it_was(pipeline):
            return _measure(pipeline, indices)
    finally:
        torch.set_num_threads(threads)


def _measure(pipeline: Pipeline, indices: Sequence[int]) -> tuple[StageCost, ...]:
    # What is set up on first use (files, imports) is not the price of a sample.
    pipeline.run(indices[0], lambda name, value: None)
    began = wall = time.perf_counter()
    marks: dict[str, list[tuple[float, float, float]]] = {name: [] for name in pipeline.names}
    unstorable: dict[str, str] = {}

    def after(name: str, value: Any) -> None:
        nonlocal wall
        seconds = time.perf_counter() - wall
        if name in marks:
            marks[name].append((seconds, *_stored(name, value, unstorable)))
        wall = time.perf_counter()

    for count, index in enumerate(indices):
        if count >= ENOUGH_SAMPLES and time.perf_counter() - began > MEASURE_S:
            break
        wall = time.perf_counter()
        pipeline.run(index, after)
    return tuple(
        StageCost(
            name=name,
            time_s=float(np.mean([mark[0] for mark in found] or [0.0])),
            num_bytes=float(np.mean([mark[1] for mark in found] or [0.0])),
            hit_s=float(np.median([mark[2] for mark in found] or [0.0])),
            num_samples=len(found),
            unstorable=unstorable.get(name, ""),
        )
        for name, found in marks.items()
    )


def _stored(name: str, value: Any, unstorable: dict[str, str]) -> tuple[float, float]:
    """The bytes that caching a value takes, and the seconds that reading it back takes."""
    try:
        encoded = encode(value)
    except (pickle.PicklingError, TypeError, AttributeError, NotImplementedError) as error:
        unstorable[name] = str(error) or type(error).__name__
        return 0.0, 0.0
    memory = np.empty(encoded.layout.num_bytes, np.uint8)
    write(encoded, memory)
    began = time.perf_counter()
    read(encoded.layout, memory, copy=True)
    return encoded.layout.num_bytes, time.perf_counter() - began
