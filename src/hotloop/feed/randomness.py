"""The global random generators of a process: kept, set apart, given back, and asked who drew from them."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

#: How the three are named to the user.
NAMES = ("torch", "numpy.random", "random")


class RandomStates(NamedTuple):
    """The states of torch's host generator, numpy's and Python's global ones, and every CUDA device's."""

    torch: torch.Tensor
    numpy: dict[str, Any]
    python: tuple[Any, ...]
    cuda: tuple[torch.Tensor, ...]


def capture() -> RandomStates:
    """The states now. CUDA's only where this process has CUDA running: asking would start it."""
    cuda = tuple(torch.cuda.get_rng_state_all()) if torch.cuda.is_initialized() else ()
    state: Any = np.random.get_state(legacy=False)
    return RandomStates(torch.get_rng_state(), state, random.getstate(), cuda)


def restore(states: RandomStates) -> None:
    """Put every generator back where :func:`capture` found it."""
    torch.set_rng_state(states.torch)
    np.random.set_state(states.numpy)
    random.setstate(states.python)
    if states.cuda:
        torch.cuda.set_rng_state_all(list(states.cuda))


def seed_all(seed: int) -> None:
    """Seed every generator with its own number. Not ``torch.manual_seed``: that reaches into CUDA unasked."""
    torch.random.default_generator.manual_seed(seed)
    np.random.seed((seed * 2_654_435_761 + 1) % (1 << 32))
    random.seed(seed + 2)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


@contextmanager
def preserved() -> Iterator[None]:
    """Whatever happens inside, the generators come out as they went in. One thread at a time."""
    states = capture()
    try:
        yield
    finally:
        restore(states)


def tokens() -> tuple[bytes, bytes, bytes]:
    """The states of the three host generators as comparable bytes, in the order of ``NAMES``."""
    numpy: Any = np.random.get_state(legacy=False)
    return torch.get_rng_state().numpy().tobytes(), pickle.dumps(numpy), pickle.dumps(random.getstate())


def is_generator(value: object) -> bool:
    """Whether this is a random generator whose state can be read and set."""
    if isinstance(value, random.SystemRandom):
        return False
    return isinstance(value, (torch.Generator, np.random.Generator, np.random.RandomState, random.Random))


def generator_state(generator: Any) -> Any:
    """The state of a generator, as something that pickles to equal bytes for equal states."""
    if isinstance(generator, torch.Generator):
        return generator.get_state().cpu().numpy().tobytes()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.getstate()


def set_generator_state(generator: Any, state: Any) -> None:
    """Put a generator back to what :func:`generator_state` gave."""
    if isinstance(generator, torch.Generator):
        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.setstate(state)
