"""How a rule says what it found."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from hotloop.audit.module import Module
from hotloop.findings import Finding, Severity


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
            "end_line": getattr(node, "end_lineno", None) or getattr(node, "lineno", 1),
            "lines": lines,
        },
    )
