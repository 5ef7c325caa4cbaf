"""Readings of the host's clock: where one is kept, and what takes the time since."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Final

from hotloop.source.code import Code, code_of
from hotloop.source.values import made_by

_CLOCKS: Final = frozenset([
    "timeit.default_timer",
    *(f"time.{name}{unit}" for name in ("time", "perf_counter", "monotonic") for unit in ("", "_ns")),
])  # fmt: skip
#: What a time is called that is meant to hold the wait for a batch, and what may be such a wait.
_DATA: Final = re.compile(
    r"(^|[._])(data|load(er|ing)?|fetch(ing)?)_?(time|wait|dur\w*|elapsed|secs?|seconds|ms|s|t)$",
    re.IGNORECASE,
)
_FETCHES: Final = re.compile(r"next|load|read|fetch|get_batch|sample|collate|open\(|data\[", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class DataTime:
    """A «data time» whose clock starts when the batch is there: its statement, its name, and the clock's."""

    node: ast.stmt
    name: str
    since: str
    since_line: int


def late_data_time(code: Code, loop: ast.For) -> DataTime | None:
    """``data_time += now() - start`` where the loop over the batches sets ``start`` itself, before it."""
    batch = {node.id for node in code.nodes(ast.Name, loop.target)}
    started: dict[str, tuple[int, list[ast.stmt]]] = {}
    for statement in loop.body:
        name = elapsed_name(statement)
        for since, (line, between) in started.items() if _DATA.search(name) else ():
            used = {node.id for other in between for node in code.nodes(ast.Name, other)}
            of_batch = (used & batch or not between) and not _FETCHES.search(
                "\n".join(map(ast.unparse, between))
            )
            if of_batch and has_elapsed(code, statement, since):
                return DataTime(node=statement, name=name, since=since, since_line=line)
        for _, between in started.values():
            between.append(statement)
        kept = assigned_now(code, statement)
        if kept is not None:
            started[kept] = (statement.lineno, [])
    return None


def late_data_time_at(text: str, line: int) -> DataTime | None:
    """The same of the innermost loop around a line."""
    code = code_of(text)
    loops = [one for one in code.at_line(line) if isinstance(one, ast.For)] if code is not None else []
    return late_data_time(code, loops[-1]) if code is not None and loops else None


def assigned_now(code: Code, node: ast.stmt) -> str | None:
    """``start`` of ``start = now()``."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and reads_clock(code, node.value):
        return ast.unparse(node.targets[0])
    return None


def elapsed_name(node: ast.stmt) -> str:
    """What a statement gives a value to, also by ``meter.update(value)``; "" where it does not."""
    if isinstance(node, ast.AugAssign):
        return ast.unparse(node.target)
    func = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    if isinstance(func, ast.Attribute) and func.attr == "update":
        return ast.unparse(func.value)
    return ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""


def has_elapsed(code: Code, node: ast.stmt, since: str | None) -> bool:
    """Whether a statement computes ``now() - since``."""
    return any(
        isinstance(part.op, ast.Sub) and reads_clock(code, part.left) and ast.unparse(part.right) == since
        for part in code.nodes(ast.BinOp, node)
    )


def reads_clock(code: Code, node: ast.AST) -> bool:
    """Whether an expression is a call that reads the host's clock."""
    return isinstance(node, ast.Call) and made_by(code, node) in _CLOCKS
