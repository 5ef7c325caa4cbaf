"""How a rule says what it found."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from hotloop.audit.module import Module
from hotloop.audit.regions import Region
from hotloop.audit.tree import Tree
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
            "end_line": getattr(node, "end_lineno" if isinstance(node, ast.expr) else "lineno", 1),
            "lines": lines,
        },
    )


def in_steps(
    rule: str,
    tree: Tree,
    matches: Callable[[Region, ast.Call], bool],
    severity: Severity,
    message: str,
    advice: str,
) -> Iterator[Finding]:
    """One finding for each training region with calls that match and surely run at every step."""
    for region in tree.regions:
        found = [call for call in region.calls if matches(region, call) and region.every_step(call)]
        if found:
            name = ast.unparse(found[0].func)
            words = message.format(name if len(name) <= 60 else name.rpartition(".")[2])
            yield hit(rule, region.module, found[0], severity, words, advice, also=found[1:])
