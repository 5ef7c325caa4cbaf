"""An audit for people: each finding with its source line, at most 80 columns unless the terminal is wider."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import Final

from hotloop.audit.audit import SEVERITIES, Audit
from hotloop.findings import Finding

_MAX_SKIPPED: Final = 5
_COLORS: Final = {"high": "1;31", "medium": "33", "low": "36", "info": "2"}


def render(audit: Audit, *, width: int = 80, color: bool = False) -> str:
    """The findings, most severe first, then what was read and what was not."""
    parts = [_finding(finding, audit, width, color) for finding in audit.findings]
    parts.append(_summary(audit, width))
    return "\n".join(parts)


def _finding(finding: Finding, audit: Audit, width: int, color: bool) -> str:
    where = finding.where
    place = f"{where.file}:{where.line}" if where else ""
    lines = [f"{_paint(finding.severity, _COLORS[finding.severity], color)}  {finding.id}  {place}"]
    lines += _wrapped(" ".join([finding.message, *(f"({e})" for e in finding.evidence)]), width, "  ")
    source = audit.lines.get(where.file, []) if where else []
    if where and 0 < where.line <= len(source):
        lines += ["", *_excerpt(source, where.line, width)]
    if finding.advice:
        lines += ["", *_wrapped(finding.advice, width, "  fix: ", "       ")]
    return "\n".join(lines) + "\n"


def _excerpt(source: list[str], line: int, width: int) -> list[str]:
    """The line and one on each side, cut to the width."""
    numbers = [n for n in (line - 1, line, line + 1) if 0 < n <= len(source)]
    shown = [(n, _plain(source[n - 1])) for n in numbers if n == line or source[n - 1].strip()]
    shift = min((len(text) - len(text.lstrip()) for _, text in shown if text.strip()), default=0)
    digits = len(str(numbers[-1]))
    return [
        _cut(f"  {'>' if n == line else ' '} {n:>{digits}} | {text[shift:]}".rstrip(), width)
        for n, text in shown
    ]


def _plain(text: str) -> str:
    """Printable: control characters in a source must not reach the terminal."""
    return "".join(c if c.isprintable() else " " for c in text.expandtabs(4))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _wrapped(text: str, width: int, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest if rest is not None else first,
        break_on_hyphens=False,
    )  # fmt: skip


def _paint(text: str, code: str, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color else text


def _summary(audit: Audit, width: int) -> str:
    counts = Counter(finding.severity for finding in audit.findings)
    found = ", ".join(f"{counts[severity]} {severity}" for severity in SEVERITIES if counts[severity])
    files = f"{audit.num_files:,} file{'s' * (audit.num_files != 1)}"
    words = f"{found or 'No findings'} in {files}, {audit.num_lines:,} lines; {audit.num_rules} rules"
    if audit.num_ignored:
        words += f"; {audit.num_ignored} ignored by comments"
    lines = _wrapped(words + ".", width, "")
    if audit.skipped:
        lines.append(f"Not audited: {len(audit.skipped)}")
        lines += [_cut(f"  {s.file}: {s.reason}", width) for s in audit.skipped[:_MAX_SKIPPED]]
        if len(audit.skipped) > _MAX_SKIPPED:
            lines.append(f"  and {len(audit.skipped) - _MAX_SKIPPED} more; --json lists them")
    return "\n".join(lines) + "\n"
