"""What wrappers that run in every step do at their end: compiled (``_hooks.c``), or the same in Python."""

from __future__ import annotations

import functools
import sys
from _thread import get_ident
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from hotloop import fast
from hotloop.probe.probe import Probe


def ending(probe: Probe, observer: str, what: str, kind: int, *given: Any, original: Any = None) -> Any:
    """What ``_hooks.c`` calls ``what``: an end, or with ``original`` the whole wrapper; None where it is not
    compiled.
    """
    if fast.Hook is None:
        return None
    failed, switch = probe.hooks.failed, probe.hooks.switch(observer)
    hook = fast.Hook(what, kind, probe.writer.row, probe.site, failed, switch, probe.count, given, original)
    return hook if original is None else functools.update_wrapper(hook, original)


def in_python(probe: Probe, observer: str, body: Callable[..., None]) -> Any:
    """The end that calls ``body(frame, stop, ...)``, ``frame`` the wrapper's.

    Without arguments it is a begin, as the compiled ones are: the time, 0 in a thread that is not recorded.
    """
    failed, switch = probe.hooks.failed, probe.hooks.switch(observer)
    owner = switch.owner

    def end(*args: Any) -> int:
        stop = perf_counter_ns()
        if not args:
            return stop if get_ident() == owner[0] else 0
        try:
            body(sys._getframe(1), stop, *args)
        except Exception as error:
            failed(switch, error)
        return 0

    return end
