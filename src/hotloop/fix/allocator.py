"""The allocator's configuration written where the script begins, before anything loads torch."""

from __future__ import annotations

import ast
import sys
from typing import Any

from hotloop.fix.plan import Plan
from hotloop.fix.scene import Already, Cannot
from hotloop.remedy.live.allocator import NAME, NAMES, SETTING, expandable, has_no_segments, is_set


def expandable_segments(plan: Plan, value: Any) -> None:
    """``os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")``.

    Only where nothing sets it yet: neither the code nor the environment of the run.
    """
    if plan.scene.device != "cuda":
        raise Cannot("the run has seen no CUDA device: nothing else has segments")
    known = plan.scene.process.first("process").get("env") or {}
    environ = {name: str(known[name]) for name in NAMES if known.get(name)}
    if any(map(has_no_segments, environ.values())):
        raise Cannot("cudaMallocAsync is chosen, which has no segments")
    if environ and all(map(is_set, environ.values())):
        raise Already("segments grow already")
    for code in plan.scene.codes("ALLOC_CONF"):
        if is_set(code.text.text):
            raise Already("segments grow already", str(code.path), 1)
        raise Cannot("the file sets the allocator already", str(code.path), 1, write=f"{SETTING} among it")
    if environ:
        write = " ".join(f"{name}={words}" for name, words in expandable(environ).items())
        raise Cannot(f"{' and '.join(environ)} is set in the environment", write=f"{write} in its place")
    main = plan.scene.main
    if main is None or "-m" in (plan.scene.process.first("process").get("orig_argv") or ()):
        words = "what loads torch first cannot be told"
        raise Cannot(words, str(main or ""), write=f"{NAME}={SETTING} in the environment")
    code = plan.scene.code(main)
    first = next((one for one in code.module.body if not _is_before(plan, code.path, one)), None)
    if first is None:
        raise Cannot("the script imports nothing", str(main))
    has_os = any(one.imported == "os" and one.node.lineno < first.lineno for one in code.global_names("os"))  # type: ignore[attr-defined]
    newline, start = code.text.newline, code.line_start(code.span(first)[0])
    lines = [*([] if has_os else ["import os", ""]), f'os.environ.setdefault("{NAME}", "{SETTING}")', ""]
    above = code.text.text[:start]
    gap = newline if above.strip() and not above.endswith(newline * 2) and has_os else ""
    plan.insert(code, start, gap + "".join(line + newline for line in lines), lines[-2])


def _is_before(plan: Plan, path: Any, statement: ast.stmt) -> bool:
    """Whether a statement loads no torch: a docstring, an import of the standard library's."""
    if isinstance(statement, ast.Import):
        names = [one.name.partition(".")[0] for one in statement.names]
    elif isinstance(statement, ast.ImportFrom):
        names = [(statement.module or "").partition(".")[0]] if not statement.level else [""]
    else:
        return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return all(name in sys.stdlib_module_names and plan.scene.module(name, path) is None for name in names)
