"""Live form of results made once: what a function gave for its arguments is kept, and given again.

The function's code is exchanged, so that it does not matter who holds the function. It is never called more
often than the script calls it: a call whose result is kept is now and then left to the function all the same,
and what it gives is held against what was kept.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import threading
import time
from statistics import median
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.remedy.live import owned, packed
from hotloop.remedy.live.form import Form
from hotloop.remedy.live.reads import Reads, Unfit, codes
from hotloop.remedy.live.shelf import KEY_BYTES, Shelf
from hotloop.remedy.live.targets import copied, functions, random_states, room, through

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

_ITER: Final = """
def {name}(self):
    if not is_compiling():
        prepare(self)
    return original(self)
"""

#: Calls with kept results that are left to the function before any is handed out, and then every so many,
#: fewer once that often nothing was other; where its code shows that arguments decide, so few, and then the
#: second, fourth, eighth, ...
_CHECKED: Final = 8
_CHECKED_SHOWN: Final = 2
_AGAIN_EVERY: Final = 16
_AGAIN_LATER: Final = 64
_LATER: Final = 512
#: Calls during which something that the function reads may change: a file is opened at first, a table filled.
_MOST_MOVED: Final = 3
#: Calls after which the time counts, and the part of the function's time that knowing a call may take.
_TIMED: Final = 64
_MOST_OF_TIME: Final = 0.5

_CHANGED: Final = "it gave another result for the same arguments"
#: Not to be kept: they are asked for another result each time.
_NEVER: Final = ("__getitem__", "__getitems__", "__next__", "__iter__", "__init__")
#: Names in a function's code that say it is called for more than its result, or reads who calls it.
_BEYOND: Final = frozenset([
    "print", "input", "write", "writelines", "writerow", "imwrite", "savefig", "get_worker_info", "getpid",
    "get_rank",
])  # fmt: skip
_STORES: Final = ("STORE_GLOBAL", "DELETE_GLOBAL")


class KeepResults(Form):
    """Keeps the results of the functions that ``value`` names, ``FILE.py:FUNCTION`` or
    ``FILE.py:Class.method``, with commas between them.

    In the training process and in workers forked from it, who find what any of them kept. Refused where the
    function draws random numbers, changes what it is given or reads, gives something that cannot be given
    again as it was, or knowing its arguments takes too much of the time that it takes itself.
    """

    def __init__(self, context: Probe, value: Any) -> None:
        super().__init__(context, value)
        self._calls: list[Call] = []

    def install(self) -> None:
        """Its modules are there once a loader is gone through, or the script trains."""
        self.probe.on_update(self.name, self._at_update)
        self.probe.hooks.on_import("torch.utils.data.dataloader", self._join, self.name)

    def _join(self, module: Any) -> None:
        prepare = self.guard(self._prepare)
        self.probe.hooks.patch(
            module.DataLoader,
            "__iter__",
            lambda original: compile_beside(original, _ITER, prepare=prepare),
        )

    def _prepare(self, loader: Any) -> None:
        """Before workers are forked: what they all have is known by the same names."""
        if self.probe.role != "main":
            return
        self._find()
        for call in self._calls:
            if getattr(loader, "num_workers", 0):
                call.results.reads.know([loader.dataset, loader.collate_fn, getattr(loader, "sampler", None)])
            if call.results.reads.is_used:
                call.results.reads.look()
        if self.count == 0 and self.status() == "in effect":
            self.took()

    def _at_update(self) -> None:
        self.probe.off_update(self._at_update)
        self._find()
        if not self._calls and not self._why:
            self.say(f"no function {self.value!r} was found; write FILE.py:FUNCTION")

    def _find(self) -> None:
        if self._calls or self._why:
            return
        named = str(self.value or "").split(",")
        for function in [one for name in named for one in functions(name)]:
            why = unfit(function)
            if why:
                self.say(why)
                continue
            code = function.__code__
            call = Call(self, copied(function), room() / len(named))
            self._calls.append(call)
            self.probe.hooks.at_undo(functools.partial(setattr, function, "__code__", code))
            function.__code__ = through(code, call.__call__)

    def status(self) -> str:
        """Also what workers did."""
        said = super().status()
        if not self._calls or self.probe.hooks.switch(self.name).off:
            return said
        ended = [call.results.why for call in self._calls if call.results.why]
        if len(ended) == len(self._calls):
            return ended[-1]
        self.count = max(self.count, sum(call.results.shelf.hits for call in self._calls))
        if self.count:
            return "in effect"
        if not any(call.results.shelf.stored for call in self._calls):
            return "it was not called in the thread that trains, nor in workers forked from it"
        return "it was not called with the same arguments often enough"


class Call:
    """Stands in for one function."""

    def __init__(self, form: KeepResults, original: FunctionType, room: float) -> None:
        self._form, self._original = form, original
        self.results = Results(form.torch, original, room)
        self._ask, self._recall = form.guard(self.results.ask), form.guard(self.results.recall)
        self._state, self._learn = form.guard(self.results.state), form.guard(self.results.learn)
        self._took = form.guard(form.took)
        self._within = False

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the function gives, made or kept."""
        form = self._form
        if self._within or not form.active or self.results.shelf.ended or self._is_apart():
            return self._original(*args, **kwargs)
        self._within = True  # what the function calls itself for is part of one result
        try:
            return self._answer(args, kwargs)
        finally:
            self._within = False

    def _is_apart(self) -> bool:
        """Whether another thread calls, or torch.compile reads along."""
        form = self._form
        apart = threading.get_ident() != threading.main_thread().ident or form.probe.role == "helper"
        return apart or bool(form.torch.compiler.is_compiling())

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        began = time.perf_counter()
        key = self._ask(args, kwargs)
        found = self._recall(key, began) if key is not None else None
        if found is not None:
            if self._form.count == 0 and self._form.probe.role == "main":
                self._took()
            return found[0]
        if key is None or not self.results.learns(key):
            return self._original(*args, **kwargs)
        knowing = time.perf_counter() - began
        before = self._state()
        began = time.perf_counter()
        result = self._original(*args, **kwargs)
        making = time.perf_counter() - began
        alone = not owned.is_shared(result)
        self._learn(key, before, (args, kwargs), result, (knowing, making), alone=alone)
        return result


class Results:
    """Results of a function, by what tells its calls apart. ``why`` says why none are kept, "" where they
    are.
    """

    def __init__(self, torch: Any, function: FunctionType, room: float) -> None:
        self.shelf = Shelf(room)
        self._torch, self._function = torch, function
        self._casts = getattr(torch._C, "_is_any_autocast_enabled", torch.is_autocast_enabled)
        self.reads = Reads(function)
        self._moved = 0
        self._keys = packed.Keys(self.reads.told)
        self._took: list[tuple[float, float]] = []
        self._left: bytes | None = None  # a call whose kept result is held against what the function gives

    @property
    def why(self) -> str:
        """Why nothing is kept."""
        return self.shelf.why

    def ask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | None:
        """What tells a call apart."""
        try:
            return self._key(args, kwargs)
        except Unfit as unfit:
            self.shelf.end(str(unfit))
        except Exception as error:  # an argument of a strange kind
            self.shelf.end(f"its arguments cannot be told apart: {type(error).__name__}")
        return None

    def recall(self, key: bytes, began: float) -> tuple[Any] | None:
        """The kept result; None also where it is time to see whether the function still gives it."""
        data = self.shelf.find(key)
        if data is None:
            return None
        shelf = self.shelf
        if shelf.checked < (_CHECKED_SHOWN if self.reads.is_closed else _CHECKED):
            self._left = key
            return None
        shelf.count_hit()
        hits = shelf.hits
        every = _AGAIN_EVERY if hits <= _LATER else _AGAIN_LATER
        again = hits > 1 and hits & (hits - 1) == 0 if self.reads.is_closed else hits % every == 0
        if again:
            self._left = key
            return None
        return (packed.unpacked(data),)

    def learns(self, key: bytes) -> bool:
        """Whether the result of a call tells anything."""
        return key == self._left or not self.shelf.full

    def state(self) -> list[Any]:
        """Of all generators of random numbers in sight, on which results must not depend."""
        return [*random_states(self._torch), *map(_state_of, self.reads.generators())]

    def learn(
        self,
        key: bytes,
        before: list[Any],
        given: tuple[tuple[Any, ...], dict[str, Any]],
        result: Any,
        took: tuple[float, float],
        *,
        alone: bool,
    ) -> None:
        """Keep a result, hold it against the one that is kept, or find that it cannot be kept. ``alone``:
        nobody holds it but the caller.
        """
        left, self._left = self._left, None
        try:
            self._learn(key, before, given, result, alone=alone, left=left == key)
            self._time(*took)
        except Unfit as unfit:
            used = ": kept ones were used until then" if self.shelf.hits and str(unfit) == _CHANGED else ""
            self.shelf.end(f"{unfit}{used}")

    def _learn(
        self, key: bytes, before: list[Any], given: Any, result: Any, *, alone: bool, left: bool
    ) -> None:
        args, kwargs = given
        if before != self.state():
            raise Unfit("it draws random numbers")
        if result is None and not self.shelf.stored:
            raise Unfit("it gives nothing: it is called for what it does")
        if not (args or kwargs):
            raise Unfit("it is given nothing that could come again")
        if key != self._key(args, kwargs):
            self._moved += 1
            if self._moved > _MOST_MOVED:
                raise Unfit("it changes what it is given or reads")
            return
        taken = [*args, *kwargs.values()]
        theirs = list(packed.mutable(taken))
        own = set(map(id, theirs))
        if any(id(part) in own for part in packed.mutable(result)):
            raise Unfit("it gives what it was given")
        if owned.overlaps(result, [*theirs, *self.reads.arrays()]):
            raise Unfit("it gives a part of what it was given or reads")
        if not alone:
            raise Unfit("it gives what is held elsewhere too")
        try:
            data = packed.packed(result)
        except packed.Unpackable as error:
            raise Unfit(f"it gives {error}") from None
        kept = self.shelf.find(key)
        if kept is None:
            self.shelf.store(key, data)
        elif data != kept and not packed.alike(packed.unpacked(kept), result):
            raise Unfit(_CHANGED)
        elif left:
            self.shelf.count_checked()
        if self.shelf.full and not self.shelf.hits and not self.shelf.checked:
            raise Unfit("the memory for its results was full before the same arguments came again")

    def _time(self, knowing: float, making: float) -> None:
        """End it where the function takes no longer than knowing its arguments. Raises Unfit."""
        if len(self._took) >= _TIMED:
            return
        self._took.append((knowing, making))
        if len(self._took) < _TIMED:
            return
        knowing, making = map(median, zip(*self._took, strict=True))
        if knowing > _MOST_OF_TIME * making:
            raise Unfit("knowing its arguments takes about as long as the function does")

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        torch = self._torch
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), self._casts()
        sight = [str(torch.get_default_dtype()), *modes, *self.reads.around()]
        files = packed.stamps((*args, *kwargs.values()))
        data = self._keys.bytes_of((args, kwargs, files, sight))
        return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()


def unfit(function: FunctionType) -> str:
    """What a function's code shows that is not to be kept, "" where it shows nothing of the kind."""
    code = function.__code__
    if code.co_freevars:
        return f"{function.__qualname__} holds variables of another function"
    if code.co_name in _NEVER:
        return f"{function.__qualname__} is asked by number: cache-samples keeps what it gives"
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return f"{function.__qualname__} gives its results one after the other"
    beyond = sorted(name for one in codes(function) for name in one.co_names if name in _BEYOND)
    if beyond:
        return f"{function.__qualname__} calls {beyond[0]}()"
    if any(each.opname in _STORES for one in codes(function) for each in dis.get_instructions(one)):
        return f"{function.__qualname__} sets a variable of its module"
    return ""


def _state_of(generator: Any) -> Any:
    """Of a generator of Python's, numpy's or torch's."""
    if hasattr(generator, "bit_generator"):
        return repr(generator.bit_generator.state)
    if hasattr(generator, "getstate"):
        return generator.getstate()
    state = generator.get_state()
    return state.numpy().tobytes() if hasattr(state, "numpy") else repr(state)
