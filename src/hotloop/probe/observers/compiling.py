"""torch.compile: when it compiled, and what it counted. Never imports dynamo: the script does, or not."""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hotloop.clock import now_ns
from hotloop.record.rows import COMPILE

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

#: Reasons carry the whole user stack; this much tells them apart.
MAX_REASON: Final = 300
MAX_REASONS: Final = 50


class Compiling:
    """Start and end of compilations in the recorded thread."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._start = 0
        self.count = 0

    def began(self, *_: Any) -> None:
        """The outermost compilation starts."""
        self._start = now_ns()

    def ended(self, *_: Any) -> None:
        """It is through."""
        start, self._start = self._start, 0
        if start and get_ident() == self._probe.owner:
            self.count += 1
            self._probe.emit(COMPILE, start, now_ns() - start)


def install(probe: Probe) -> None:
    """Register with dynamo's own callbacks once it is imported, and write its counters at exit."""
    compiling = Compiling(probe)

    def on_callbacks(module: Any) -> None:
        handler = module.callback_handler
        began, ended = (probe.hooks.guard("compiling", f) for f in (compiling.began, compiling.ended))
        handler.register_start_callback(began)
        handler.register_end_callback(ended)
        probe.hooks.at_undo(lambda: _remove(handler, began, ended))

    probe.hooks.on_import("torch._dynamo.callback", on_callbacks, "compiling")
    probe.on_exit("compiling", lambda: _say(probe, compiling.count))


def summary(counters: Any) -> dict[str, Any]:
    """The fields of the ``compile`` note, out of ``torch._dynamo.utils.counters``."""
    breaks = {str(key)[:MAX_REASON]: int(count) for key, count in counters.get("graph_break", {}).items()}
    return {
        "frames": int(counters.get("frames", {}).get("total", 0)),
        "graphs": int(counters.get("stats", {}).get("unique_graphs", 0)),
        "graph_breaks": dict(sorted(breaks.items(), key=lambda item: -item[1])[:MAX_REASONS]),
    }


def recompiles() -> int:
    """How often dynamo compiled a code object again: what it compiled beyond the first time."""
    utils = sys.modules.get("torch._dynamo.utils")
    compiled = [
        (one.co_filename, one.co_firstlineno, one.co_name)
        for one in getattr(utils, "get_compilation_metrics", list)()
        # Not a restart within one compilation.
        if one.co_filename
        and getattr(one, "is_forward", True) is not False
        and "_" not in str(one.compile_id)
    ]
    return len(compiled) - len(set(compiled))


def _say(probe: Probe, count: int) -> None:
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is not None and probe.role == "main":
        found = summary(utils.counters)
        if found["frames"] or count:
            probe.note("compile", recompiles=recompiles(), compiles=count, **found)


def _remove(handler: Any, began: Callable[..., Any], ended: Callable[..., Any]) -> None:
    for remove, function in ((handler.remove_start_callback, began), (handler.remove_end_callback, ended)):
        try:
            remove(function)
        except ValueError:
            pass  # the script cleared the callbacks
