"""torch.compile: when it compiled, and what it counted. Never imports dynamo: the script does, or not."""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from hotloop.clock import now_ns
from hotloop.probe.probe import Probe
from hotloop.record.rows import COMPILE

#: Reasons carry the whole user stack; this much tells them apart.
MAX_REASON: Final = 300
MAX_REASONS: Final = 50


def install(probe: Probe) -> None:
    """Register with dynamo's own callbacks once it is imported, and write its counters at exit."""
    opened = [0]  # when the outermost compilation began

    def began(*_: Any) -> None:
        opened[0] = now_ns()

    def ended(*_: Any) -> None:
        start, opened[0] = opened[0], 0
        if start and get_ident() == probe.owner:
            probe.emit(COMPILE, start, now_ns() - start)

    def on_callbacks(module: Any) -> None:
        handler = module.callback_handler
        for name, function in (("start", began), ("end", ended)):
            guarded = probe.hooks.guard("compiling", function)
            getattr(handler, f"register_{name}_callback")(guarded)
            probe.hooks.at_undo(_remover(getattr(handler, f"remove_{name}_callback"), guarded))

    def say() -> None:
        utils = sys.modules.get("torch._dynamo.utils")
        if utils is not None and probe.role == "main" and (found := summary(utils.counters))["frames"]:
            probe.note("compile", recompiles=recompiles(), **found)

    probe.hooks.on_import("torch._dynamo.callback", on_callbacks, "compiling")
    probe.on_exit("compiling", say)


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


def _remover(remove: Callable[[Any], None], function: Any) -> Callable[[], None]:
    def removed() -> None:
        with suppress(ValueError):  # the script cleared the callbacks
            remove(function)

    return removed
