"""The states of the generators of random numbers."""

from __future__ import annotations

import random
import sys
from typing import Any


def global_states() -> dict[str, Any]:
    """Of the generators that everybody shares: torch's, Python's and numpy's."""
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunction():  # a TorchFunctionMode of the script's does not see it
        state = torch.default_generator.get_state().numpy().tobytes()
    found = {"torch": state, "random": random.getstate()}
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        found["numpy.random"] = _plain(numpy.get_state())
    return found


def random_states() -> list[Any]:
    """The same, and of the generators of torch's devices."""
    cuda = sys.modules["torch"].cuda
    devices = cuda.get_rng_state_all() if cuda.is_initialized() else ()
    return [*global_states().values(), *(state.numpy().tobytes() for state in devices)]


def is_generator(value: Any) -> bool:
    """Whether random numbers are drawn from an object, of torch, numpy or Python."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    kinds = type(value).__mro__
    if torch is not None and torch.Generator in kinds:
        return True
    if numpy is not None and (numpy.random.Generator in kinds or numpy.random.RandomState in kinds):
        return True
    return random.Random in kinds and random.SystemRandom not in kinds


def state_of(generator: Any) -> Any:
    """What is other once a generator was drawn from."""
    if hasattr(generator, "bit_generator"):
        return repr(generator.bit_generator.state)
    if hasattr(generator, "getstate"):
        return generator.getstate()
    state = generator.get_state()
    return state.numpy().tobytes() if hasattr(state, "numpy") else _plain(state)


def _plain(state: Any) -> Any:
    """numpy's state, with its array as bytes."""
    return tuple(part.tobytes() if hasattr(part, "tobytes") else part for part in state)
