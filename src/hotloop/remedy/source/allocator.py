"""The allocator's configuration written where the script begins, before anything loads torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import libcst as cst

from hotloop.remedy.live.allocator import NAME, NAMES, SETTING, expandable, has_no_segments, is_set, merged
from hotloop.remedy.source import config_files
from hotloop.remedy.source.code import Code, argument, last_name
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Already, Cannot
from hotloop.remedy.source.text import Edit
from hotloop.remedy.source.values import text_of

_IN_A_SCRIPT: Final = re.compile(r"""\bPYTORCH_(?:CUDA_)?ALLOC_CONF=(["']?)([\w:,.\-\[\]]+)\1""")


def expandable_segments(plan: Plan, value: Any) -> None:
    """``os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")``."""
    if plan.scene.device != "cuda":
        raise Cannot("the run has seen no CUDA device: nothing else has segments")
    places = [place for code in plan.scene.codes("ALLOC_CONF") for place in _set_in(code)]
    for code, given in places:
        _require_segments(code.source(given), str(code.path), code.line(given))
        text = text_of(given) or ""
        if is_set(text):
            raise Already("segments grow already", str(code.path), code.line(given))
        quote = code.source(given)[-1]
        new = f"{quote}{merged(text)}{quote}"
        plan.replace(code, given, new, f"{code.source(given)} → {new}")
    if places:
        return
    known = plan.scene.process.first("process").get("env") or {}
    environ = {name: str(known[name]) for name in NAMES if known.get(name)}
    if environ:
        _in_the_environment(plan, environ)
    else:
        _before_imports(plan)


def _require_segments(words: str, file: str = "", line: int = 0) -> None:
    if has_no_segments(words):
        raise Cannot("cudaMallocAsync is chosen, which has no segments", file, line)


def _set_in(code: Code) -> Iterator[tuple[Code, cst.BaseExpression]]:
    """Where a file sets it to something written there. Raises Cannot where it is used otherwise."""
    for name in code.nodes(cst.SimpleString):
        if text_of(name) not in NAMES:
            continue
        given = _given(code, name)
        if given is None or text_of(given) is None:
            words = f"{text_of(name)} is used here, and what it is set to cannot be told"
            raise Cannot(words, str(code.path), code.line(name))
        yield code, given


def _given(code: Code, name: cst.SimpleString) -> cst.BaseExpression | None:
    """What ``os.environ[name] = ...`` or ``os.environ.setdefault(name, ...)`` gives."""
    index = code.parents.get(code.parents.get(name, name))
    subscript = code.parents.get(index) if isinstance(index, cst.SubscriptElement) else None
    target = code.parents.get(subscript) if isinstance(subscript, cst.Subscript) else None
    if isinstance(subscript, cst.Subscript) and isinstance(target, cst.AssignTarget):
        assign = code.parents[target]
        is_environ = code.qualified(subscript.value) == "os.environ"
        return assign.value if is_environ and isinstance(assign, cst.Assign) else None
    call = code.above(name, cst.Call)
    if call is None or argument(call, "key", 0) is not name or last_name(call.func) != "setdefault":
        return None
    is_environ = code.qualified(call.func) == "os.environ.setdefault"
    return argument(call, "default", 1) if is_environ else None


def _in_the_environment(plan: Plan, environ: dict[str, str]) -> None:
    """Beside what the environment of the run had: in the shell script that the command names, if it does."""
    for words in environ.values():
        _require_segments(words)
    if all(map(is_set, environ.values())):
        raise Already("segments grow already")
    for script in config_files.scripts(plan.scene.command, plan.scene.started):
        text = plan.scene.text(script)
        found = [one for one in _IN_A_SCRIPT.finditer(text.text) if one[2] in environ.values()]
        for one in found:
            edit = Edit(start=one.start(2), end=one.end(2), new=merged(one[2]))
            plan.change_text(text, edit, f"{one[2]} → {edit.new}")
        if found:
            return
    write = " ".join(f"{name}={words}" for name, words in expandable(environ).items())
    raise Cannot(f"{' and '.join(environ)} is set in the environment", write=f"{write} in its place")


def _before_imports(plan: Plan) -> None:
    main = plan.scene.main
    if main is None:
        raise Cannot("the script that was started is not known")
    code = plan.scene.code(main)
    started = list(plan.scene.process.first("process").get("orig_argv") or ())
    if "-m" in started and (main.parent / "__init__.py").exists():
        words = "a package is started: what loads torch first cannot be told"
        raise Cannot(words, str(main), 1, write=f"{NAME}={SETTING} in the environment")
    has_os = False
    for at, statement in enumerate(code.module.body):
        names = _imported(code, statement)
        if names is None and not (at == 0 and _is_docstring(statement)):
            break
        if names is not None and any(not _is_standard(plan, name, main) for name in names):
            break
        has_os = has_os or _binds_os(statement)
    else:
        raise Cannot("the script imports nothing", str(main))
    newline = code.text.newline
    start = code.line_start(code.span(statement)[0])
    lines = [*([] if has_os else ["import os", ""]), f'os.environ.setdefault("{NAME}", "{SETTING}")', ""]
    above = code.text.text[:start]
    gap = newline if above.strip() and not above.endswith(newline * 2) and has_os else ""
    plan.insert(code, start, gap + "".join(line + newline for line in lines), lines[-2])


def _imported(code: Code, statement: cst.CSTNode) -> list[str] | None:
    """The packages that a statement imports; None for any other one."""
    small = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
    if not small:
        return None
    found: list[str] = []
    for one in small:
        if isinstance(one, cst.Import):
            found += [code.source(each.name).partition(".")[0] for each in one.names]
        elif isinstance(one, cst.ImportFrom):
            module = code.source(one.module) if one.module is not None and not one.relative else "."
            found.append(module.partition(".")[0] or module)
        else:
            return None
    return found


def _is_standard(plan: Plan, package: str, main: Path) -> bool:
    return package in sys.stdlib_module_names and plan.scene.module(package, main) is None


def _binds_os(statement: cst.CSTNode) -> bool:
    small = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
    return any(
        last_name(each.name) == "os" and each.asname is None and isinstance(each.name, cst.Name)
        for one in small
        if isinstance(one, cst.Import)
        for each in one.names
    )


def _is_docstring(statement: cst.CSTNode) -> bool:
    small = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
    return bool(small) and isinstance(small[0], cst.Expr) and isinstance(small[0].value, cst.SimpleString)
