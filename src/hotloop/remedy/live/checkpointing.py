"""Live form of no checkpointing: what ``torch.utils.checkpoint`` would compute twice is kept instead.

A part of the model goes without it from the update after its first calls on. Until then it is called as the
script has it and looked at: what a forward changes besides its result is changed twice where it runs twice.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import resource
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.probe import Probe
from hotloop.remedy.live.form import Form
from hotloop.state.generators import global_states, random_states
from hotloop.state.identity import Known
from hotloop.state.snapshot import EXACT, snapshot

#: Arguments of ``checkpoint`` that are not the function's.
_SETTINGS: Final = frozenset(
    ["use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state"]
)
#: Of the device's memory more than this must be left, as where a finding asks for it.
_FREE_RATIO: Final = 0.5
#: Classes that gather their parameters for each forward: all ranks must do it equally often.
_SHARDED: Final = frozenset(["FullyShardedDataParallel", "FSDPModule"])
_NO_ROOM: Final = "less than half of the memory is free with it"

_CALL = """
def {name}(*args, **kwargs):
    if is_compiling() or not form.active or get_ident() != owner[0]:
        return original(*args, **kwargs)
    begun = begin(args, kwargs)
    if begun is None:
        return original(*args, **kwargs)
    function, given, end = begun
    if end is None:
        return function(*args[1:], **given)
    result = original(function, *args[1:], **given)
    end()
    return result
"""


class NoCheckpointing(Form):
    """Calls what is given to ``checkpoint`` and ``checkpoint_sequential`` as it is."""

    switchable = True

    def __init__(self, context: Probe, value: Any) -> None:
        super().__init__(context, value)
        self._looked: Known[int] = Known()  # by part: the update before which it was looked at
        self._refused: Known[str] = Known()
        self._within = 0  # calls that are repeated in backward, what they call included
        self._room: bool | None = None

    def install(self) -> None:
        """Before anything imports the function by name."""
        self.probe.hooks.on_import("torch.utils.checkpoint", self._patch, self.name)

    def _patch(self, module: Any) -> None:
        self._as_ever = getattr(module, "noop_context_fn", None)
        begin = self.guard(self._begin)

        def through(original: Any) -> Any:
            owner = self.probe.hooks.recorded
            return compile_beside(original, _CALL, form=self, begin=begin, owner=owner)

        self.probe.hooks.patch(module, "checkpoint", through)

    def _begin(self, args: Any, kwargs: Any) -> Any:
        """What to call, with which keywords, and what comes behind it; None: as the script has it."""
        if not args or self._within or not self.torch.is_grad_enabled():
            return None
        function, part = args[0], _part(args[0])
        looked = self._looked.get(part)
        is_known = looked is not None and looked < self.probe.updates
        why = self._why_not(args[1:], kwargs) or self._refused.get(part)
        if not why and is_known and not self._has_room(args[1:]):
            why = _NO_ROOM
        if why:
            self.refused(why)
            return self._repeated(function), kwargs, lambda: None
        if is_known:
            self.took()
            return function, {name: given for name, given in kwargs.items() if name not in _SETTINGS}, None
        return self._repeated(function), kwargs, self._look(function, part, kwargs)

    def _why_not(self, args: Any, kwargs: Any) -> str:
        """Why this call does more than to forget what it computed."""
        if kwargs.get("context_fn") not in (None, self._as_ever) or kwargs.get("debug"):
            return "it enters contexts besides (of the script, or of torch.compile)"
        if kwargs.get("use_reentrant") is False:
            return ""
        if not kwargs.keys() <= _SETTINGS or any(isinstance(one, list | tuple | dict) for one in args):
            return "what it is given cannot be told from what it trains"
        tensors = (one for one in args if isinstance(one, self.torch.Tensor))
        if not any(one.requires_grad for one in tensors):
            return "with use_reentrant=True a part whose inputs need no gradient is not trained"
        return ""

    def _look(self, function: Any, part: Any, kwargs: dict[str, Any]) -> Callable[[], None]:
        held, now, drawn = list(_held(function)), self.probe.updates, self._drawn(kwargs)
        before = snapshot(held, EXACT)
        if any(kind.__name__ in _SHARDED for one in before.objects() for kind in type(one).__mro__):
            self._leave(part, "its parameters are gathered for each forward")

        def look() -> None:
            if drawn != self._drawn(kwargs):
                self._leave(part, "it draws random numbers in backward again, which would not be drawn")
            elif before != snapshot(held, EXACT):
                self._leave(part, "its forward changes what the model keeps (running statistics), twice")
            if self._looked.get(part) is None:
                self._looked.put(part, now)

        return self.guard(look)

    def _leave(self, part: Any, why: str) -> None:
        self._refused.put(part, why)
        self.refused(why)

    def _drawn(self, kwargs: dict[str, Any]) -> list[Any]:
        """The generators that are not put back before it is computed again."""
        kept = kwargs.get("preserve_rng_state", True)
        if kept:
            return [state for name, state in global_states().items() if name != "torch"]
        return random_states()

    def _repeated(self, function: Any) -> Any:
        """The function, within which nothing is left out: it has to do the same again in backward."""

        @functools.wraps(function, updated=())
        def within(*args: Any, **kwargs: Any) -> Any:
            self._within += 1
            try:
                return function(*args, **kwargs)
            finally:
                self._within -= 1

        return within

    def _has_room(self, args: Any) -> bool:
        """Whether as much memory is free as the run takes; asked once, behind an update."""
        if self._room is None:
            cuda = self.torch.cuda
            on_cuda = any(isinstance(one, self.torch.Tensor) and one.is_cuda for one in args)
            if on_cuda:
                whole = cuda.get_device_properties(cuda.current_device()).total_memory
                self._room = cuda.max_memory_reserved() < (1 - _FREE_RATIO) * whole
            else:
                budget = importlib.import_module("hotloop.feed.budget")
                taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
                self._room = budget.usable_memory_bytes() / budget.local_world_size() > taken
        return self._room


def _part(function: Any) -> Any:
    """What a function is known by: its module, or its code, as many are made anew for each call."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, MethodType):
        return function.__self__
    return getattr(function, "__code__", function)


def _held(function: Any) -> Iterator[Any]:
    """A function, and what it and those functions close over."""
    yield function
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # not filled yet
            yield from _held(cell.cell_contents)
