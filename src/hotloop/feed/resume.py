"""Where an iterator is in its epoch, as data, and how another one gets there.

The state is how many batches were handed out and the random states with which the epoch began: the other
iterator draws the same again and leaves these out.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

import torch

from hotloop.feed import randomness

VERSION: Final = 4


class Position:
    """Where an iterator is: how many batches of its epoch it has handed out, in order.

    Made where an epoch begins, before the first index is drawn; the loader keeps the latest one.
    """

    def __init__(self, loader: Any, base_seed: int, epoch: int) -> None:
        self.num_given = 0
        self.is_over = False
        self._of = {"base_seed": base_seed, "epoch": epoch}
        self._start = _Start(loader)
        loader._position = self

    def state(self) -> dict[str, Any]:
        """Plain data: numbers, lists and uint8 tensors."""
        return {**self._of, "num_given": self.num_given, "start": self._start.state}


class _Start:
    """The random states and the samplers' own at the beginning of an epoch."""

    def __init__(self, loader: Any) -> None:
        self._random = randomness.capture()
        self._generators = [one.get_state() for one in generators_of(loader)]
        self._samplers = [_sampler_state(one) for one in _samplers_of(loader)]

    @cached_property
    def state(self) -> dict[str, Any]:
        """What the states of all positions of the epoch share; ``torch.load`` takes it without asking."""
        data = pickle.dumps((self._random, self._samplers), pickle.HIGHEST_PROTOCOL)
        return {
            "random": torch.frombuffer(bytearray(data), dtype=torch.uint8),
            "generators": self._generators,
        }


@contextmanager
def beginning_again(loader: Any, start: dict[str, Any]) -> Iterator[None]:
    """The random states of the epoch's beginning while its indices are drawn again; then this process's own.

    Generators the loader or its sampler was given stay where the drawing leaves them.
    """
    random, samplers = pickle.loads(start["random"].numpy().tobytes())  # nosec B301
    with randomness.preserved():
        randomness.restore(random._replace(cuda=()))
        for generator, found in zip(generators_of(loader), start["generators"], strict=True):
            generator.set_state(found)
        for sampler, found in zip(_samplers_of(loader), samplers, strict=True):
            _restore_sampler(sampler, found)
        yield


def generators_of(loader: Any) -> list[torch.Generator]:
    """The generators given to the loader and its samplers, each once."""
    found = [loader.generator, *(getattr(one, "generator", None) for one in _samplers_of(loader))]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())


def _samplers_of(loader: Any) -> list[Any]:
    found = [loader.batch_sampler, loader.sampler, getattr(loader.batch_sampler, "sampler", None)]
    return list({id(one): one for one in found if one is not None}.values())


def _sampler_state(sampler: Any) -> dict[str, Any]:
    """A sampler's own state: what its ``state_dict`` says, and the epoch it was set to."""
    state = {}
    if hasattr(sampler, "state_dict") and hasattr(sampler, "load_state_dict"):
        state["own"] = sampler.state_dict()
    if hasattr(sampler, "set_epoch") and hasattr(sampler, "epoch"):
        state["epoch"] = sampler.epoch
    return state


def _restore_sampler(sampler: Any, state: dict[str, Any]) -> None:
    if "own" in state:
        sampler.load_state_dict(state["own"])
    if "epoch" in state and sampler.epoch != state["epoch"]:
        sampler.set_epoch(state["epoch"])
