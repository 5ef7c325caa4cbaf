"""An audit in a terminal: findings with their source lines, and configured values beside those in effect."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hotloop.audit.audit import Audit
from hotloop.findings import SEVERITIES, Finding
from hotloop.report import words
from hotloop.report.excerpts import Sources
from hotloop.report.footprint import table

_MAX_SKIPPED: Final = 5


def render(audit: Audit, *, width: int = 80, color: bool = False) -> str:
    """The findings, most severe first, then what was read and what was not."""
    lines = [line for finding in audit.findings for line in _finding(finding, audit, width, color)]
    return "\n".join([*lines, *_summary(audit, width)]) + "\n"


def configured(rows: Sequence[Mapping[str, Any]], cwd: str, *, width: int = 80) -> str:
    """The rows of ``audit.render.configured`` as a table; one line of words where there are none."""
    if not rows:
        return "This run read no configured value that hotloop knows.\n\n"
    cells = [["  setting", "configured", "in effect", "where"]]
    for row in rows:
        where = words.path(row["where"], cwd, limit=width // 2) + (" (default)" if row["default"] else "")
        name = ("! " if row["differs"] else "  ") + row["setting"]
        cells.append([name, words.value(row["configured"]), words.value(row["in_effect"]), where])
    head, *lines = table(cells, width, left=range(4))
    out = [head]
    for line, row in zip(lines, rows, strict=True):
        by = words.hanging("    < ", words.written(row["by"], cwd), width) if row["by"] else []
        out += [line, *by]
    return "\n".join(out) + "\n\n"


def _finding(finding: Finding, audit: Audit, width: int, color: bool) -> list[str]:
    where = finding.where
    place = f"{where.file}:{where.line}" if where else ""
    severity = words.paint(finding.severity, words.SEVERITY_CODES[finding.severity], color)
    message = " ".join([finding.message, *(f"({proof})" for proof in finding.evidence)])
    lines = [f"{severity}  {finding.id}  {place}", *words.hanging("  ", message, width)]
    if where and (around := Sources(lines=audit.lines).excerpt(where, 1)):
        lines += ["", *_excerpt(around, where.line, width)]
    if finding.advice:
        lines += ["", *words.hanging("  fix: ", finding.advice, width)]
    return [*lines, ""]


def _excerpt(around: Mapping[str, Any], line: int, width: int) -> list[str]:
    """The line and one on each side, cut to the width."""
    texts = textwrap.dedent("\n".join(around["lines"])).split("\n")
    shown = [(n, text) for n, text in enumerate(texts, around["first"]) if n == line or text.strip()]
    digits = len(str(line + 1))
    marks = {line: ">"}
    return [
        words.cut(f"  {marks.get(n, ' ')} {n:>{digits}} | {words.clean(text)}".rstrip(), width)
        for n, text in shown
    ]


def _summary(audit: Audit, width: int) -> list[str]:
    counts = Counter(finding.severity for finding in audit.findings)
    found = ", ".join(f"{counts[severity]} {severity}" for severity in SEVERITIES if counts[severity])
    files = f"{audit.num_files:,} file{'s' * (audit.num_files != 1)}"
    said = f"{found or 'No findings'} in {files}, {audit.num_lines:,} lines; {audit.num_rules} rules"
    said += f"; {audit.num_ignored} ignored by comments" if audit.num_ignored else ""
    lines = words.wrap(f"{said}.", width)
    if audit.skipped:
        lines.append(f"Not audited: {len(audit.skipped)}")
        lines += [
            words.cut(words.clean(f"  {s.file}: {s.reason}"), width) for s in audit.skipped[:_MAX_SKIPPED]
        ]
        if len(audit.skipped) > _MAX_SKIPPED:
            lines.append(f"  and {len(audit.skipped) - _MAX_SKIPPED} more; --json lists them")
    return lines
