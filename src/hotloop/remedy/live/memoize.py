"""Live form of memoization: what a function gave for its arguments is kept, and given again.

The function's code is exchanged, so that it does not matter who holds the function. A result for a batch of
tensors is kept by sample, so that it serves shuffled batches; any other by its arguments, in memory that the
training process shares with the workers forked from it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.probe import Probe
from hotloop.remedy.live.arguments import Arguments, Unfit
from hotloop.remedy.live.form import Form
from hotloop.remedy.live.results import Results
from hotloop.remedy.live.rows import Rows
from hotloop.state.code import code_names

_ITER: Final = """
def {name}(self):
    if not is_compiling():
        prepare(self)
    return original(self)
"""
#: Of this rank's share of the usable memory.
_ROOM_PART: Final = 0.25
#: Asked for another result each time.
_NEVER: Final = ("__getitem__", "__getitems__", "__next__", "__iter__", "__init__")
#: Names in a function's code that say it is called for more than its result, reads who calls it, or gives
#: other values each time although no generator shows it.
_BEYOND: Final = frozenset([
    "print", "input", "write", "writelines", "writerow", "imwrite", "savefig", "get_worker_info", "getpid",
    "get_rank", "backward", "urandom", "uuid1", "uuid4", "token_bytes", "token_hex", "now", "today",
])  # fmt: skip
_STEP_BY_STEP: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Memoize(Form):
    """Memoizes the functions that ``value`` names, ``FILE.py:FUNCTION`` or ``FILE.py:Class.method``, with
    commas between them.

    Ends where the function draws random numbers, changes what it is given, gives something that cannot be
    given again as it was, or gives another result when a kept one is checked: as often as 2 % of the time
    allow, one is computed all the same.
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
        if self.probe.role == "main":
            self._find()
            for call in self._calls:
                call.prepare((loader.dataset, loader.collate_fn, getattr(loader, "sampler", None)))

    def _at_update(self) -> None:
        self.probe.off_update(self._at_update)
        self._find()
        if not self._calls and not self._why:
            self.say(f"no function {self.value!r} was found; write FILE.py:FUNCTION")

    def _find(self) -> None:
        if self._calls or self._why:
            return
        named = str(self.value or "").split(",")
        for function in [one for name in named for one in _functions(name)]:
            why = unfit(function)
            if why:
                self.say(why)
                continue
            code = function.__code__
            # Another that does the same, whatever becomes of this one's code.
            copied = FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
            copied.__kwdefaults__ = function.__kwdefaults__
            call = Call(self, copied, _room() / len(named))
            self._calls.append(call)
            self.probe.hooks.at_undo(functools.partial(setattr, function, "__code__", code))
            function.__code__ = _through(code, call.__call__)

    def status(self) -> str:
        """Also what workers did."""
        said = super().status()
        if not self._calls or self.probe.hooks.switch(self.name).off:
            return said
        ended = [call.why for call in self._calls if call.why]
        if len(ended) == len(self._calls):
            return ended[-1]
        self.count = max(self.count, sum(call.hits for call in self._calls))
        if self.count:
            return "in effect"
        if not any(call.called for call in self._calls):
            return "it was not called in the thread that trains, nor in workers forked from it"
        return "it was not called with the same arguments often enough"


class Call:
    """Stands in for one function."""

    def __init__(self, form: Memoize, original: FunctionType, room: float) -> None:
        self._form, self._original, self._room = form, original, room
        self._arguments = Arguments(form.torch, original)
        self._results = Results(self._arguments, room)
        self._rows: Rows | None = None
        self._tries_rows = True
        self._enter, self._leave = form.guard(self._before), form.guard(self._after)
        self.prepare = form.guard(self._arguments.prepare)
        self._within = False

    @property
    def why(self) -> str:
        """Why nothing is kept any more."""
        return (self._rows.why if self._rows is not None else "") or self._results.shelf.why

    @property
    def hits(self) -> int:
        """Results that were given again."""
        return (self._rows.hits if self._rows is not None else 0) + int(self._results.shelf.hits)

    @property
    def called(self) -> bool:
        """Whether anything was kept."""
        return self._rows is not None or bool(self._results.shelf.stored)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the function gives, computed or kept."""
        if self._within or not self._form.active or self.why or self._is_apart():
            return self._original(*args, **kwargs)
        self._within = True  # what the function calls itself for is part of one result
        try:
            asked = self._enter(args, kwargs)
            if asked is not None and asked.found is not None:
                if self._form.count == 0 and self._form.probe.role == "main":
                    self._form.took()
                return asked.found[0]
            result = self._original(*args, **kwargs)
            if asked is not None:
                self._leave(asked, result)
            return result
        finally:
            self._within = False

    def _is_apart(self) -> bool:
        """Whether another thread calls, or torch.compile reads along."""
        form = self._form
        apart = threading.get_ident() != threading.main_thread().ident or form.probe.role == "helper"
        return apart or bool(form.torch.compiler.is_compiling())

    def _before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The kept result, or what is needed to keep it."""
        try:
            if self._rows is not None:
                return self._rows.ask(args, kwargs)
            return self._results.ask(args, kwargs)
        except Unfit as unfit:
            return self._end(str(unfit))
        except Exception as error:  # an argument of a strange kind
            return self._end(f"its arguments cannot be told apart: {type(error).__name__}")

    def _after(self, asked: Any, result: Any) -> None:
        try:
            if self._tries_rows and self._form.probe.role == "main":
                self._tries_rows = False
                if Rows.fits(self._form.torch, asked.given, result):
                    self._rows = Rows(self._form.torch, self._original, self._arguments, self._room)
                    return  # from the next call on
            (self._results if self._rows is None else self._rows).learn(asked, result)
        except Unfit as unfit:
            if self._rows is not None and not self._rows.hits:
                self._rows = None  # by all of its arguments, from the next call on
            else:
                self._end(str(unfit))

    def _end(self, why: str) -> None:
        if self._rows is not None:
            self._rows.end(why)
        self._results.shelf.end(why)


def unfit(function: FunctionType) -> str:
    """What a function's code shows that is not to be kept, "" where it shows nothing of the kind."""
    code, name = function.__code__, function.__qualname__
    if code.co_freevars:
        return f"{name} holds variables of another function"
    if code.co_name in _NEVER:
        return f"{name} is asked by number: cache-samples keeps what it gives"
    if code.co_flags & _STEP_BY_STEP:
        return f"{name} gives its results one after the other"
    beyond = sorted(code_names(code) & _BEYOND)
    return f"{name} calls {beyond[0]}()" if beyond else ""


def _room() -> float:
    """Bytes that results may take."""
    budget = importlib.import_module("hotloop.feed.budget")
    return float(_ROOM_PART * budget.usable_memory_bytes() / budget.local_world_size())


def _functions(named: str) -> list[FunctionType]:
    """Functions of loaded modules that ``FILE.py:FUNCTION`` names; decorated ones as they were written."""
    file, _, name = named.rpartition(":")
    found: dict[int, FunctionType] = {}
    for module in list(sys.modules.values()):
        if not file or Path(getattr(module, "__file__", None) or "").name != Path(file).name:
            continue
        try:
            one: Any = functools.reduce(getattr, name.split("."), module)
        except AttributeError:
            continue
        one = inspect.unwrap(one)
        one = getattr(one, "__func__", one)
        if isinstance(one, FunctionType):
            found[id(one)] = one
    return list(found.values())


def _through(code: CodeType, call: Callable[..., Any]) -> CodeType:
    """Code that hands its arguments to ``call(args, kwargs)``, under the name of ``code``."""

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        call: Any = 0.5  # its place among the constants
        return call(args, kwargs)

    made = stand_in.__code__
    constants = tuple(call if one == 0.5 else one for one in made.co_consts)
    return made.replace(co_consts=constants, co_name=code.co_name, co_qualname=code.co_qualname)
