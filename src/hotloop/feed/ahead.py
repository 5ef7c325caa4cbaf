"""The order of an epoch before it begins, where it can be had without drawing from anybody's random state."""

from __future__ import annotations

from typing import Any, Final

from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from hotloop.feed import randomness
from hotloop.feed.resume import generators_of

#: Samplers whose iteration changes nothing but the generators it draws from.
_KNOWN: Final = (
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    list,
    range,
    tuple,
)


def order_ahead(loader: Any) -> list[int] | None:
    """The indices of the coming epoch in the order the loader will ask for them; None: nobody can know."""
    batches = loader.batch_sampler
    sampler = loader.sampler
    if batches is not None and type(batches) in (list, tuple):
        return [int(index) for batch in batches for index in batch]
    if batches is not None:
        if type(batches) is not BatchSampler:
            return None
        sampler = batches.sampler
    if type(sampler) not in _KNOWN:
        return None
    generators = generators_of(loader)
    states = [one.get_state() for one in generators]
    with randomness.preserved():
        indices = [int(index) for index in sampler]
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)
    if batches is not None and batches.drop_last:
        del indices[len(indices) - len(indices) % batches.batch_size :]
    return indices
