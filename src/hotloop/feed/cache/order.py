"""The order that torch's own samplers give, as arrays.

Beside a step of half a millisecond an index drawn as an object of Python's, put into a list and made a number
again costs as much as the copy of a small sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from hotloop.feed import randomness


class Indices(Sequence[int]):
    """The indices of a batch; to whoever looks at them they are those of the sampler."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: NDArray[np.int64]) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, position: Any) -> Any:
        return self.numbers.tolist()[position]

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers.tolist())

    def __repr__(self) -> str:
        return repr(self.numbers.tolist())


def batches_of(sampler: BatchSampler) -> Iterator[Indices] | None:
    """What going through ``sampler`` would give and draw; None where only its own code can tell."""
    within: Any = sampler.sampler
    kind = type(within)
    if kind not in _ORDERS or not _is_known(kind) or getattr(within, "replacement", False):
        return None
    return _batches(sampler)


def _batches(sampler: BatchSampler) -> Iterator[Indices]:
    within, size = sampler.sampler, sampler.batch_size
    order = _ORDERS[type(within)](within)
    end = len(order) - len(order) % size if sampler.drop_last else len(order)
    return (Indices(order[at : at + size]) for at in range(0, end, size))


def _in_order(sampler: Any) -> NDArray[np.int64]:
    return np.arange(len(sampler.data_source))


def _shuffled(sampler: Any) -> NDArray[np.int64]:
    count, wanted = len(sampler.data_source), sampler.num_samples
    seed = int(torch.empty((), dtype=torch.int64).random_().item())
    generator = torch.Generator()
    generator.manual_seed(seed)
    passes = [torch.randperm(count, generator=generator) for _ in range(-(-wanted // count))]
    order: NDArray[np.int64] = (passes[0] if len(passes) == 1 else torch.cat(passes)).numpy()
    return order[:wanted]


_ORDERS: Final[dict[type, Callable[[Any], NDArray[np.int64]]]] = {
    SequentialSampler: _in_order,
    RandomSampler: _shuffled,
}
_checked: dict[tuple[Any, Any], bool] = {}


def _is_known(kind: Any) -> bool:
    """Whether torch's samplers, as they are now, give and draw what is given and drawn here."""
    key = kind.__iter__, BatchSampler.__iter__
    if key not in _checked:
        try:
            with randomness.preserved():
                _checked[key] = all(_is_alike(kind, drop_last) for drop_last in (False, True))
        except Exception:  # whatever somebody put in their place does
            _checked[key] = False
    return _checked[key]


def _is_alike(kind: Any, drop_last: bool) -> bool:
    found = []
    before = randomness.capture()
    for draw in (list, lambda sampler: list(map(list, _batches(sampler)))):
        randomness.restore(before)
        drawn = draw(BatchSampler(kind(range(7)), 3, drop_last))
        found.append((drawn, randomness.tokens()))
    return found[0] == found[1]
