"""What a rule yields: a place, and words of its own where the finding's do not do."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hotloop.audit.configs import ConfigFile, Entry
from hotloop.audit.module import Module
from hotloop.audit.program import Program
from hotloop.findings import Finding, Place, Severity
from hotloop.findings.table import ENTRIES


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One place. ``message`` and ``advice`` stand for the finding's title and advice; ``lines`` are further
    places of the same cause.
    """

    where: Place
    severity: Severity
    message: str = ""
    advice: str = ""
    lines: tuple[int, ...] = ()
    column: int = 1
    end_line: int = 1


Rule = Callable[[Program], Iterable[Hit]]


def at(
    module: Module,
    node: ast.AST,
    severity: Severity,
    message: str = "",
    advice: str = "",
    *,
    also: Sequence[ast.AST] = (),
) -> Hit:
    """A hit at ``node``; ``also`` are further places of the same cause, named by line."""
    line = module.line(node)
    function = module.enclosing(node)
    return Hit(
        where=Place(file=module.name, line=line, function=function.name if function else ""),
        severity=severity,
        message=message,
        advice=advice,
        lines=tuple(sorted({module.line(other) for other in also} - {line})),
        column=module.begin(node)[1] + 1,
        end_line=module.end(node)[0] if isinstance(node, ast.expr) else line,
    )


def at_entry(
    config: ConfigFile, entry: Entry, severity: Severity, message: str = "", advice: str = ""
) -> Hit:
    """A hit at the line of a configured value."""
    where = Place(file=config.name, line=entry.line)
    return Hit(where=where, severity=severity, message=message, advice=advice, end_line=entry.line)


def finding(finding_id: str, hit: Hit) -> Finding:
    """The finding that a hit of a rule is."""
    home = ENTRIES[finding_id]
    lines = list(hit.lines)
    also = f"also at line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}"
    return Finding(
        id=finding_id,
        message=hit.message or home.title,
        advice=hit.advice or home.advice,
        evidence=(also,) if lines else (),
        severity=hit.severity,
        where=hit.where,
        data={"column": hit.column, "end_line": hit.end_line, "lines": lines},
    )
