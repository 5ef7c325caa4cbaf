"""An audit as annotations of GitHub Actions: one workflow command a line."""

from __future__ import annotations

from typing import Final

from hotloop.audit.audit import Audit
from hotloop.findings import Finding

_COMMANDS: Final = {"high": "error", "medium": "warning", "low": "warning", "info": "notice"}


def render(audit: Audit) -> str:
    """``::warning file=…,line=…,title=…::message`` for each finding."""
    return "".join(_annotation(finding) + "\n" for finding in audit.findings)


def _annotation(finding: Finding) -> str:
    where = finding.where
    place = f"file={_property(where.file)},line={where.line}," if where else ""
    words = _data(f"{finding.message} {finding.advice}".strip())
    return f"::{_COMMANDS[finding.severity]} {place}title={_property(finding.id)}::{words}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
