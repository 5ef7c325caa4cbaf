"""Live form of no checkpointing: what ``torch.utils.checkpoint`` would compute twice is kept instead.

A part of the model goes without it from the update after its first calls on. Until then it is called as the
script has it and looked at: what a forward changes besides its result is changed twice where it runs twice.
"""

from __future__ import annotations

import functools
import importlib
import resource
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.identity import Known
from hotloop.remedy.live.form import Form
from hotloop.remedy.live.targets import own_random_states, torch_random_states

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

#: Arguments of ``checkpoint`` that are not the function's.
_SETTINGS: Final = frozenset(
    ["use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state"]
)
#: Of the device's memory more than this must be left, as where a finding asks for it.
_FREE_RATIO: Final = 0.5
#: Classes that gather their parameters for each forward: all ranks must do it equally often.
_SHARDED: Final = frozenset(["FullyShardedDataParallel", "FSDPModule"])
_PLAIN: Final = (bool, int, float)
#: So many elements at either end of a container are compared, and arrays up to so many bytes.
_ENDS: Final = 16
_MOST_BYTES: Final = 1 << 16
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
        self._looked: Known[int] = Known()  # by owner: the update before which it was looked at
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
        function = args[0]
        owners = list(_owners(function)) or [getattr(function, "__code__", type(function))]
        why = self._why_not(args[1:], kwargs) or next(filter(None, map(self._refused.get, owners)), "")
        if why:
            self._refuse(why)
            return self._repeated(function, owners), kwargs, _nothing
        now = self.probe.updates
        looked = [self._looked.get(owner) for owner in owners]
        if all(before is not None and before < now for before in looked):
            if not self._has_room(args[1:]):
                self._refuse(_NO_ROOM)
                return self._repeated(function, owners), kwargs, _nothing
            self.took()
            return function, {name: given for name, given in kwargs.items() if name not in _SETTINGS}, None
        return self._repeated(function, owners), kwargs, self._look(owners, kwargs)

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

    def _look(self, owners: list[Any], kwargs: dict[str, Any]) -> Callable[[], None]:
        modules = [module for owner in owners for module in _modules(owner)]
        before, now = self._states(modules), self.probe.updates
        drawn = self._drawn(kwargs)
        if any(_is_sharded(module) for module in modules):
            self._leave(owners, "its parameters are gathered for each forward")

        def look() -> None:
            if drawn != self._drawn(kwargs):
                self._leave(owners, "it draws random numbers in backward again, which would not be drawn")
            elif before != self._states(modules):
                self._leave(owners, "its forward changes what the model keeps (running statistics), twice")
            for owner in owners:
                if self._looked.get(owner) is None:
                    self._looked.put(owner, now)

        return self.guard(look)

    def _leave(self, owners: Iterable[Any], why: str) -> None:
        for owner in owners:
            self._refused.put(owner, why)
        self._refuse(why)

    def _refuse(self, why: str) -> None:
        if not self.count:
            self.say(why)

    def _drawn(self, kwargs: dict[str, Any]) -> list[Any]:
        """The generators that are not put back before it is computed again."""
        kept = kwargs.get("preserve_rng_state", True)
        return own_random_states() if kept else own_random_states() + torch_random_states(self.torch)

    def _states(self, modules: Iterable[Any]) -> list[Any]:
        """By which a change of what modules hold, or of what their forwards read beside them, is seen."""
        found: list[Any] = []
        forwards = set()
        for module in modules:
            for tensor in (*module._buffers.values(), *module._parameters.values()):
                found += (id(tensor), getattr(tensor, "_version", 0))
            found += [_state(self.torch, value) for value in vars(module).values()]
            forwards.add(getattr(type(module), "forward", None))
        for forward in forwards:
            if isinstance(forward, FunctionType):
                held = map(forward.__globals__.get, forward.__code__.co_names)
                found += [_state(self.torch, value) for value in held]
        return found

    def _repeated(self, function: Any, owners: list[Any]) -> Any:
        """The function, within which nothing is left out: it has to do the same again in backward."""
        closed_over = list(_bound(function))
        compare = self.guard(lambda: closed_over == list(_bound(function)))

        @functools.wraps(function, updated=())
        def within(*args: Any, **kwargs: Any) -> Any:
            if compare() is False:
                self._leave(owners, "a variable that it closes over is another in backward")
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


def _nothing() -> None:
    """Behind a call that is left as it is."""


def _owners(function: Any, depth: int = 0) -> Iterator[Any]:
    """The modules that a function is of, closes over or was given beforehand."""
    if depth > 3:
        return
    if hasattr(function, "_parameters") and hasattr(function, "_modules"):
        yield function
    elif isinstance(function, functools.partial):
        for one in (function.func, *function.args, *function.keywords.values()):
            yield from _owners(one, depth + 1)
    elif isinstance(function, MethodType):
        yield from _owners(function.__self__, depth + 1)
        yield from _owners(function.__func__, depth + 1)
    elif isinstance(function, FunctionType):
        for cell in function.__closure__ or ():
            try:
                yield from _owners(cell.cell_contents, depth + 1)
            except ValueError:  # not filled yet
                continue
        for name in function.__code__.co_names:
            if name in function.__globals__:
                yield from _owners(function.__globals__[name], depth + 1)
    elif isinstance(function, list | tuple):
        for one in function:
            yield from _owners(one, depth + 1)


def _bound(function: Any, depth: int = 0) -> Iterator[int]:
    """By which another value of what a function closes over, or was given beforehand, is seen."""
    if depth > 3:
        return
    if isinstance(function, functools.partial):
        for one in (function.func, *function.args, *function.keywords.values()):
            yield from _bound(one, depth + 1)
    elif isinstance(function, MethodType):
        yield id(function.__self__)
        yield from _bound(function.__func__, depth + 1)
    elif isinstance(function, FunctionType):
        for cell in function.__closure__ or ():
            try:
                yield from _bound(cell.cell_contents, depth + 1)
            except ValueError:  # not filled yet
                continue
    else:
        yield id(function)


def _state(torch: Any, value: Any, depth: int = 0) -> Any:
    """By which a change of a number, a tensor, or what is kept in a list or its like is seen."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, torch.Tensor):
        return id(value), 0 if value.is_inference() else value._version
    if type(value).__module__ == "numpy":
        return id(value), value.tobytes() if getattr(value, "nbytes", _MOST_BYTES) < _MOST_BYTES else None
    if not isinstance(value, list | tuple | deque | dict | set) or depth > 2:
        return None
    ends: Iterable[Any] = islice(value, 2 * _ENDS)
    if not isinstance(value, set):
        ends = [*islice(value, _ENDS), *islice(reversed(value), _ENDS)]
    if isinstance(value, dict):
        ends = [dict.__getitem__(value, key) for key in ends]
    return len(value), [(id(one), _state(torch, one, depth + 1)) for one in ends]


def _modules(owner: Any) -> list[Any]:
    """A module and all within it; of other things nothing."""
    return list(owner.modules()) if hasattr(owner, "modules") and not isinstance(owner, type) else []


def _is_sharded(module: Any) -> bool:
    return any(one.__name__ in _SHARDED for one in type(module).__mro__)
