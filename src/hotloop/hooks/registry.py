"""The registry of everything hotloop patched: one way in, one way out, one broad ``except``."""

from __future__ import annotations

import functools
import signal
import sys
import types
from collections.abc import Callable
from contextlib import nullcontext
from time import perf_counter_ns
from typing import Any

from hotloop.hooks.imports import IMPORT_FILE, AfterImport
from hotloop.hooks.wrapping import AROUND, RAISED, Begin, End, compile_beside

#: ``report(observer, error)``: told once per observer that failed.
Report = Callable[[str, BaseException], None]

_MISSING = object()


def handler_in(error: BaseException) -> types.TracebackType | None:
    """Where a traceback enters a signal handler of the script's; None where it does not."""
    codes = {_code_of(signal.getsignal(one)) for one in signal.valid_signals()}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in codes:
        trace = trace.tb_next
    return trace


def _code_of(handler: Any) -> types.CodeType | None:
    """The code that a signal runs: of a function, a method, a partial, an object that is called."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    called = vars(type(handler)).get("__call__")
    return getattr(handler, "__code__", None) or getattr(called, "__code__", None)


class Switch:
    """Whether an observer still observes.

    ``owner[0]`` is the thread it observes: the recorded one, 0 once it is off. One look tells a wrapper both.
    """

    __slots__ = ("name", "off", "owner")

    def __init__(self, name: str, owner: int) -> None:
        self.name, self.owner, self.off = name, [owner], False

    def turn_off(self) -> None:
        """It observes no more."""
        self.off, self.owner[0] = True, 0


class Hooks:
    """Patches, import callbacks and guards, all undone by ``undo``.

    ``owner`` is the ident of the recorded thread, 0 for none; wrappers made by ``around`` observe only there.
    """

    def __init__(self, report: Report) -> None:
        #: ``owner`` in a cell, for wrappers without a switch of their own.
        self.recorded: list[int] = [0]
        self.imports = AfterImport()
        self._report = report
        self._switches: dict[str, Switch] = {}
        self._patched: list[tuple[Any, str, Any, Any]] = []
        self._undo: list[Callable[[], None]] = []

    @property
    def owner(self) -> int:
        """Ident of the recorded thread; 0 when nothing is recorded."""
        return self.recorded[0]

    @owner.setter
    def owner(self, ident: int) -> None:
        self.recorded[0] = ident
        for switch in self._switches.values():
            switch.owner[0] = 0 if switch.off else ident

    def switch(self, observer: str) -> Switch:
        """The switch of an observer, by name."""
        found = self._switches.get(observer)
        if found is None:
            found = self._switches[observer] = Switch(observer, self.owner)
        return found

    def failed(self, switch: Switch, error: BaseException) -> None:
        """Switch an observer off because of an error of its own, and say so once.

        Where the script itself is at the end of its stack or memory, only this one observation is lost. What
        a signal handler of the script's raised in the middle of ours (a timeout) goes on to the script.
        """
        if isinstance(error, (RecursionError, MemoryError)):
            return
        if (trace := handler_in(error)) is not None:
            raise error.with_traceback(trace)
        if not switch.off:
            switch.turn_off()
            self._report(switch.name, error)

    def guard(self, observer: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A callable that never raises: its first error switches the observer off, then it returns None."""
        switch = self.switch(observer)
        failed = self.failed

        def guarded(*args: Any, **kwargs: Any) -> Any:
            if switch.off:
                return None
            try:
                return function(*args, **kwargs)
            except Exception as error:  # the one broad except: nothing of ours may reach the user's script
                failed(switch, error)
                return None

        return guarded

    def patch(self, owner: Any, name: str, make_wrapper: Callable[[Any], Any]) -> bool:
        """Replace ``owner.name`` by ``make_wrapper(original)``; False where there is no such name.

        A static or class method reaches ``make_wrapper`` as the plain function and stays what it was.
        """
        own = vars(owner).get(name, _MISSING)
        original = own if own is not _MISSING else getattr(owner, name, _MISSING)
        if original is _MISSING:
            return False
        wrapper: Any
        if isinstance(original, (staticmethod, classmethod)):
            wrapper = type(original)(make_wrapper(original.__func__))
        elif own is _MISSING and isinstance(owner, type) and isinstance(original, types.MethodType):
            return False  # an inherited class method: patch the class that defines it
        else:
            wrapper = make_wrapper(original)
        setattr(owner, name, wrapper)
        self._patched.append((owner, name, own, wrapper))
        return True

    def around(
        self,
        owner: Any,
        name: str,
        observer: str,
        begin: Begin,
        end: End,
        *,
        also: tuple[Any, ...] = (),
        any_thread: bool = False,
        unseen: bool = False,
    ) -> bool:
        """Observe the calls of ``owner.name`` made by the recorded thread, or by any (see ``wrapping``).

        ``also`` are other owners that hold the identical object under the same name: they get the same
        wrapper. ``unseen`` keeps it out of the levels that ``warnings.warn`` counts; for functions that are
        never compiled.
        """
        switch = self.switch(observer)

        def make(original: Any) -> Any:
            return compile_beside(
                original,
                AROUND.replace("{elsewhere}", "switch.off" if any_thread else "get_ident() != owner[0]"),
                IMPORT_FILE if unseen else "",
                switch=switch,
                begin=begin,
                end=end,
                failed=self.failed,
                raised=RAISED,
                now=perf_counter_ns,
            )

        original = vars(owner).get(name, _MISSING)
        patched = self.patch(owner, name, make)
        for other in also:
            if patched and vars(other).get(name) is original:
                self.patch(other, name, lambda _: vars(owner)[name])
        return patched

    def on_import(self, module: str, callback: Callable[[Any], None], observer: str = "") -> None:
        """Call ``callback(module)``, guarded, right after the module's import, or now."""
        self.imports.add(module, self.guard(observer or module, callback))

    def at_undo(self, function: Callable[[], None]) -> None:
        """Have ``undo`` call this too: for hooks torch or Python registers itself."""
        self._undo.append(function)

    def hand_over(self, register: Callable[[Any], Any], hook: Callable[..., Any]) -> None:
        """Have torch call a hook of ours. Pickled by value with a class that calls it, it does nothing."""
        given: Any = functools.partial(hook)  # called by C; dynamo enters it
        given.__reduce_ex__ = lambda _: (functools.partial, (nullcontext().__exit__,))
        self.at_undo(register(given).remove)

    def undo(self) -> None:
        """Put the identical objects back, newest patch first.

        A place that somebody else patched after us keeps their patch; ours below it passes everything
        through.
        """
        self.owner = 0
        for switch in self._switches.values():
            switch.turn_off()
        self.imports.remove()
        for function in reversed(self._undo):
            function()
        self._undo.clear()
        for owner, name, own, wrapper in reversed(self._patched):
            if vars(owner).get(name) is not wrapper:
                continue
            if own is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, own)
        self._patched.clear()


def frame_evaluation() -> Callable[[Any], Any]:
    """Sets dynamo's frame evaluation of this thread, and returns what it was; None is plain Python.

    A sample is taken between two bytecodes: inside a compiled region dynamo would compile the standard
    library's functions that it calls.
    """
    module = sys.modules.get("torch._C._dynamo.eval_frame")
    return getattr(module, "set_eval_frame", lambda _: None)


def keep_out(hooks: Hooks) -> None:
    """Have dynamo skip hotloop's files from the moment it is imported, the way it skips torch's."""

    def skip(trace_rules: Any) -> None:
        before = list(trace_rules.SKIP_DIRS)
        trace_rules.add("hotloop")

        def restore() -> None:
            trace_rules.SKIP_DIRS[:] = before
            trace_rules._recompile_re()

        hooks.at_undo(restore)

    hooks.on_import("torch._dynamo.trace_rules", skip, "dynamo")
