"""What tells two calls of a function apart: its arguments by their content, and what else its code reads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from types import FunctionType
from typing import Any, Final, NamedTuple

from hotloop.remedy.live import packed
from hotloop.remedy.live.form import Pace
from hotloop.state.code import global_names
from hotloop.state.generators import random_states, state_of
from hotloop.state.snapshot import EXACT, PLAIN, QUICK, Snapshot, generators, snapshot

#: Objects given, of which more are other ones in each call.
_MOST_OBJECTS: Final = 256
#: Results that are learnt with a look at all generators of random numbers that the code reaches.
_WATCHED: Final = 32


class Unfit(Exception):  # noqa: N818 - an answer, not a failure
    """Why results are not kept."""


class Look(NamedTuple):
    """The states of all generators of random numbers in sight, and what the function's code reads."""

    states: list[Any]
    reads: Snapshot | None


class Arguments:
    """Keys of the calls of one function."""

    def __init__(self, torch: Any, function: FunctionType) -> None:
        self._torch, self._function = torch, function
        # one call for all devices; older versions of torch have not got it
        self._casts = getattr(torch._C, "_is_any_autocast_enabled", torch.is_autocast_enabled)
        self._shared: frozenset[int] = frozenset()  # identities that workers forked from here know too
        self._objects: dict[int, Any] = {}  # known by their identity: it must stay theirs
        self._keys = packed.Keys(self._told)
        self._names = sorted(global_names(function.__code__))
        self._reads = snapshot(function, EXACT)
        self._version, self._watched, self._pace = "", 0, Pace()

    def prepare(self, given: Any) -> None:
        """An epoch begins: ``given`` is known to the workers forked from here."""
        known = snapshot(given, EXACT)
        self._shared = frozenset(known.reached | snapshot(self._function, EXACT).reached)
        self._pace = Pace()
        self._objects.clear()

    def key(self, args: tuple[Any, ...], kwargs: dict[str, Any], *more: Any) -> bytes:
        """What tells a call apart. Raises Unfit."""
        torch = self._torch
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), bool(self._casts())
        named = map(self._function.__globals__.get, self._names)
        plain = [value for value in named if type(value) in PLAIN]
        sight = [str(torch.get_default_dtype()), *modes, self._latest(), *plain, *more]
        return self._keys.bytes_of((args, kwargs, sight))

    def look(self, given: Iterable[Any], before: Look | None = None) -> Look:
        """What the function must leave as it is; in the first calls all that its code reaches. ``before`` is
        the same look as the call began.
        """
        self._watched += before is None
        exact = self._watched <= _WATCHED if before is None else before.reads is not None
        own = generators((self._function, *given), EXACT if exact else QUICK)
        states = [*random_states(), *map(state_of, own)]
        return Look(states, snapshot(self._function, EXACT) if exact else None)

    def _latest(self) -> str:
        """Another text once anything differs that the function's code reads."""
        if self._pace.due():
            now = snapshot(self._function, EXACT)
            if now != self._reads:
                self._reads, self._version = now, f"{os.getpid()} {time.perf_counter()}"
            self._pace.done()
        return self._version

    def _told(self, value: Any) -> tuple[Any, ...]:
        """An object that is given: which it is, and what it holds. Raises Unfit."""
        if isinstance(value, self._torch.nn.Module):
            raise Unfit("it is given a module, and does not see its weights change")
        self._objects[id(value)] = value
        if len(self._objects) > _MOST_OBJECTS:
            raise Unfit("it is given other objects in each call")
        held = snapshot(value)
        if not held.complete:
            raise Unfit(f"a {type(value).__name__} that it is given holds more than is looked at")
        process = 0 if self._shared.issuperset(held.reached) else os.getpid()
        return process, id(value), repr(list(held.entries.items()))
