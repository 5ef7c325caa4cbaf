"""Keeping torch.compile out of hotloop's own functions, which run between the frames it compiles."""

from __future__ import annotations

from typing import Any

from hotloop.hooks.registry import Hooks


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
