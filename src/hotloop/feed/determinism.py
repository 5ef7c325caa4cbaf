"""The guard before a cache: is a sample the same when it is read again?

Every index is read twice, in opposite orders and under different random states. Equal outputs are not enough:
a flip with a chance of one in ten is often equal. So the random generators are watched as well, the global
ones and those the dataset holds: a read that moves one on to a place that depends on where it was, draws.
``torch.manual_seed(index)`` inside a read does not: it arrives at the same place from anywhere.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hotloop.feed import randomness
from hotloop.feed.holdings import held_generators, left_as_it_was
from hotloop.feed.layout import Encoded, differences, snapshot
from hotloop.feed.pipelines import WHOLE, Pipeline
from hotloop.feed.stages import find_pipeline

#: Leaves named in one reason; the rest is counted.
NAMED_LEAVES = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What reading the same samples twice showed; true in a condition when they were the same.

    ``stage`` is the first stage that differed or drew random numbers, ``random_stages`` all of them.
    ``reasons`` say why not, one sentence each.
    """

    deterministic: bool
    indices: tuple[int, ...]
    stage: str = ""
    random_stages: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.deterministic

    def __str__(self) -> str:
        times = "1 sample" if len(self.indices) == 1 else f"{len(self.indices)} samples"
        if self.deterministic:
            return f"the same on a second read ({times})"
        return f"{self.stage} is not the same on a second read ({times}): " + "; ".join(self.reasons)


class _Stage(NamedTuple):
    """What came out of a stage, and the random generators before and after it."""

    name: str
    output: Encoded | str  # text where it cannot be stored: why
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]


def check_deterministic(
    dataset: Any, indices: Sequence[int] | None = None, *, num_samples: int = 3
) -> Verdict:
    """Read the same samples twice and say whether, and from which stage on, they differ.

    Args:
        dataset: a map-style dataset.
        indices: which samples to read; by default ``num_samples`` spread over the dataset.
        num_samples: how many, if ``indices`` are not given.

    The random states of torch, numpy and Python (and of CUDA, if running) come out as they went in, and so
    does what reading changes of the dataset: counters, the last sample, small containers. Safe in a worker
    process; not while another thread of the process draws random numbers.

    Raises:
        ValueError: there is nothing to read, or the dataset has no length and no indices were given.
    """
    chosen = spread(dataset, num_samples) if indices is None else tuple(int(index) for index in indices)
    if not chosen:
        raise ValueError("check_deterministic needs at least one index to read")
    with randomness.preserved(), left_as_it_was(dataset):
        return _check(dataset, chosen)


def read_apart(dataset: Any, indices: Sequence[int]) -> list[Encoded]:
    """These samples as they are now; random states come out as they went in."""
    with randomness.preserved(), left_as_it_was(dataset):
        return [snapshot(dataset[index]) for index in indices]


def spread(dataset: Any, num_samples: int) -> tuple[int, ...]:
    """At most ``num_samples`` indices from the first to the last, evenly."""
    try:
        length = len(dataset)
    except TypeError as error:
        raise ValueError(f"{type(dataset).__name__} has no length: give the indices to read") from error
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, not {num_samples}")
    num_samples = min(num_samples, length)
    if num_samples <= 1:
        return tuple(range(num_samples))
    return tuple(sorted({round(k * (length - 1) / (num_samples - 1)) for k in range(num_samples)}))


def _check(dataset: Any, indices: tuple[int, ...]) -> Verdict:
    found = _compare(Pipeline(dataset), dataset, indices)
    if not found:
        return Verdict(deterministic=True, indices=indices)
    whole = found[WHOLE]
    pipeline = find_pipeline(dataset, index=indices[0])
    # Only to name the stage: the verdict stands on reads of the dataset itself, not of parts of it.
    staged = {} if type(pipeline) is Pipeline else _compare(pipeline, dataset, indices)
    stages = tuple(name for name in pipeline.names if name in staged) or (WHOLE,)
    return Verdict(
        deterministic=False,
        indices=indices,
        stage=stages[0],
        random_stages=stages,
        reasons=tuple(staged.get(stages[0], whole)),
    )


def _compare(pipeline: Pipeline, dataset: Any, indices: tuple[int, ...]) -> dict[str, list[str]]:
    """Reasons by stage."""
    first = {index: _read(pipeline, index, seed=1 + index) for index in indices}
    held = held_generators(dataset)
    second = {}
    drawn: list[str] = []
    for index in reversed(indices):
        second[index] = _read(pipeline, index, seed=1_000_003 + index)
        if index == indices[-1]:
            # The same index as the read before: a generator seeded by the index is back where it was.
            now = held_generators(dataset)
            drawn = [path for path, state in now.items() if held.get(path, state) != state]
    places: dict[tuple[str, str], list[int]] = {}
    for index in indices:
        for name, reason in _reasons(first[index], second[index]):
            places.setdefault((name, reason), []).append(index)
    found: dict[str, list[str]] = {}
    for (name, reason), where in places.items():
        numbers = ", ".join(map(str, where))
        found.setdefault(name, []).append(f"{reason} (index {numbers})")
    if drawn and not found:
        found[pipeline.names[-1]] = [f"it draws from {name}" for name in drawn]
    return found


def _read(pipeline: Pipeline, index: int, *, seed: int) -> list[_Stage]:
    randomness.seed_all(seed)
    stages: list[_Stage] = []
    before = randomness.tokens()

    def after(name: str, value: Any) -> None:
        nonlocal before
        now = randomness.tokens()
        stages.append(_Stage(name, _kept(value), before, now))
        before = randomness.tokens()

    pipeline.run(index, after)
    return stages


def _reasons(first: list[_Stage], second: list[_Stage]) -> Iterable[tuple[str, str]]:
    """Stage and reason, for every stage that drew, and for the first whose output differs."""
    if [stage.name for stage in first] != [stage.name for stage in second]:
        yield second[0].name, "other stages ran the second time"
        return
    differs = False
    for one, two in zip(first, second, strict=True):
        if drawn := _drawn(one, two):
            yield two.name, f"it draws from {' and '.join(drawn)}"
        lines = _differences(one.output, two.output, last=two is second[-1])
        # What follows a stage that differs differs because of it.
        if lines and not differs:
            more = f" and {len(lines) - NAMED_LEAVES} more" if len(lines) > NAMED_LEAVES else ""
            yield two.name, ", ".join(lines[:NAMED_LEAVES]) + more
        differs = differs or bool(lines)


def _kept(value: Any) -> Encoded | str:
    try:
        return snapshot(value)
    except (pickle.PicklingError, TypeError, AttributeError, NotImplementedError) as error:
        return str(error)


def _differences(first: Encoded | str, second: Encoded | str, *, last: bool) -> list[str]:
    """What differs. What cannot be stored counts only where it is the sample itself."""
    if isinstance(first, str) or isinstance(second, str):
        why = first if isinstance(first, str) else second
        return [f"it cannot be stored and compared: {why}"] if last else []
    return differences(first, second)


def _drawn(first: _Stage, second: _Stage) -> list[str]:
    """The generators that a stage moved to a place which depends on where they were.

    Asked of the second read: what is set up once on first use is not a draw of every sample.
    """
    states = zip(randomness.NAMES, first.after, second.before, second.after, strict=True)
    return [name for name, once, before, after in states if after not in (before, once)]
