"""Whether making a batch draws random numbers. Only on request (``hotloop tune``).

The generators are compared before and after the first batches of each dataset in a process: nothing is read
twice and nothing is drawn. Where batches draw, another number of workers gives them other numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hotloop.probe.probe import Probe
from hotloop.state.generators import global_states, state_of
from hotloop.state.snapshot import generators

#: Batches that are watched: what is drawn only now and then is not seen.
_BATCHES: Final = 8

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
    own = {("the dataset's own generator", id(one)): state_of(one) for one in generators(dataset)}
    return {**{(name, 0): state for name, state in global_states().items()}, **own}
