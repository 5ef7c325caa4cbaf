"""Whether making a batch draws random numbers. Only on request (``hotloop tune``).

The generators are compared before and after the first batches of each dataset in a process: nothing is read
twice and nothing is drawn. Where batches draw, another number of workers gives them other numbers.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hotloop.probe.stored import attributes

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

#: Batches that are watched: what is drawn only now and then is not seen.
_BATCHES: Final = 8
#: Objects of a dataset that are searched for generators of its own.
_MOST: Final = 200

Make = Callable[[Any, Any, Any], Any]


def watched(probe: Probe, make: Make) -> Make:
    """``make(maker, fetcher, index)``, watched; see the ``draws`` note."""
    made: dict[int, int] = {}
    states = probe.hooks.guard("draws", _states)
    probe.on_fork("draws", made.clear)

    def body(maker: Any, fetcher: Any, index: Any) -> Any:
        key = id(fetcher.dataset)
        if made.get(key, 0) >= _BATCHES:
            return make(maker, fetcher, index)
        made[key] = made.get(key, 0) + 1
        before = states(fetcher.dataset)
        batch = make(maker, fetcher, index)
        after = states(fetcher.dataset)
        if before and after:
            drawn = sorted({key[0] for key, state in before.items() if after.get(key, state) != state})
            if drawn:
                made[key] = _BATCHES
                probe.note("draws", dataset=type(fetcher.dataset).__name__, generators=drawn)
        return batch

    return body


def _states(dataset: Any) -> dict[tuple[str, int], Any]:
    """The state of every generator that a batch may draw from, by name and identity."""
    found: dict[tuple[str, int], Any] = {(name, 0): state for name, state in global_states().items()}
    numpy = sys.modules.get("numpy")
    ahead, known = [dataset], set[int]()
    while ahead and len(known) < _MOST:
        one = ahead.pop()
        if id(one) in known:
            continue
        known.add(id(one))
        state = _own_state(one, numpy)
        if state is not None:
            found["the dataset's own generator", id(one)] = state
        elif isinstance(one, list | tuple):
            ahead += list(one[:_MOST])
        else:
            ahead += list(attributes(one).values())
    return found


def global_states() -> dict[str, Any]:
    """The states of the generators that everybody shares: torch's, Python's and numpy's."""
    found = {
        "torch": sys.modules["torch"].default_generator.get_state().numpy().tobytes(),
        "random": random.getstate(),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        found["numpy.random"] = _plain(numpy.random.get_state())
    return found


def _own_state(one: Any, numpy: Any) -> Any:
    if isinstance(one, random.Random):
        return one.getstate()
    if isinstance(one, sys.modules["torch"].Generator):
        return one.get_state().numpy().tobytes()
    if numpy is not None and isinstance(one, numpy.random.Generator):
        return repr(one.bit_generator.state)
    if numpy is not None and isinstance(one, numpy.random.RandomState):
        return _plain(one.get_state())
    return None


def _plain(state: Any) -> Any:
    """numpy's state, with its array as bytes."""
    return tuple(part.tobytes() if hasattr(part, "tobytes") else part for part in state)
