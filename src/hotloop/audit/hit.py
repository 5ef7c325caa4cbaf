"""How a rule says what it found."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hotloop.audit.configs import ConfigFile, Entry
from hotloop.audit.module import Module
from hotloop.audit.regions import Region
from hotloop.audit.tree import Tree
from hotloop.findings import Finding, Place, Severity

#: One severity down: what happens every few steps instead of at each.
_LESS: Final[dict[Severity, Severity]] = {"high": "medium", "medium": "low", "low": "low", "info": "info"}


def hit(
    rule: str,
    module: Module,
    node: ast.AST,
    severity: Severity,
    message: str,
    advice: str,
    *,
    also: Sequence[ast.AST] = (),
) -> Finding:
    """A finding at ``node``; ``also`` are further places of the same cause, named by line."""
    lines = sorted({getattr(other, "lineno", 0) for other in also} - {getattr(node, "lineno", 0)})
    return Finding(
        id=rule,
        message=message,
        advice=advice,
        evidence=(f"also at line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}",) if lines else (),
        severity=severity,
        where=module.place(node),
        data={
            "column": getattr(node, "col_offset", 0) + 1,
            "end_line": getattr(node, "end_lineno" if isinstance(node, ast.expr) else "lineno", 1),
            "lines": lines,
        },
    )


def at_entry(
    rule: str, config: ConfigFile, entry: Entry, severity: Severity, message: str, advice: str
) -> Finding:
    """A finding at the line of a configured value."""
    return Finding(
        id=rule,
        message=message,
        advice=advice,
        evidence=(),
        severity=severity,
        where=Place(file=config.name, line=entry.line),
        data={"end_line": entry.line},
    )


def in_steps(
    rule: str,
    tree: Tree,
    matches: Callable[[Region, ast.Call], bool],
    severity: Severity,
    message: str,
    advice: str,
    *,
    most: int = 1,
) -> Iterator[Finding]:
    """One finding for each training region with calls that match and surely run at every step.

    With ``most``, also those behind a literal ``if step % N == 0`` with N up to ``most``. ``message`` holds
    ``{}`` for the call, and ``{when}``.
    """
    for region in tree.regions:
        matching = [(region.interval(call), call) for call in region.calls if matches(region, call)]
        found = [(steps, call) for steps, call in matching if steps is not None and steps <= most]
        if found:
            steps, call = found[0]
            name = ast.unparse(call.func)
            when = "at every step" if steps == 1 else f"every {steps} steps"
            words = message.format(name if len(name) <= 60 else name.rpartition(".")[2], when=when)
            less = severity if steps == 1 else _LESS[severity]
            yield hit(rule, region.module, call, less, words, advice, also=[other for _, other in found[1:]])
