"""Keeping torch.compile out of hotloop's own functions, which run between the frames it compiles."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from hotloop.hooks.registry import Hooks


def frame_evaluation() -> Callable[[Any], Any]:
    """Sets dynamo's frame evaluation of this thread, and returns what it was; None is plain Python.

    A sample is taken between two bytecodes: inside a compiled region dynamo would compile the standard
    library's functions that it calls.
    """
    module = sys.modules.get("torch._C._dynamo.eval_frame")
    return getattr(module, "set_eval_frame", _leave)


def _leave(_: Any) -> None:
    return None


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
