"""An audit as JSON (schema 1)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hotloop.audit.audit import Audit
from hotloop.findings import Finding


def render(audit: Audit, settings: Sequence[dict[str, Any]] | None = None) -> str:
    """``{"schema": 1, "findings": [{"id", "file", "line", "message", "fix", …}], "files", "lines",
    "skipped"}``; of a run's ``settings`` also
    ``"configured": [{"setting", "configured", "in_effect", "where", "by", …}]``.
    """
    table = {} if settings is None else {"configured": configured(settings)}
    document = {
        "schema": 1,
        "findings": [_finding(finding) for finding in audit.findings],
        "files": audit.num_files,
        "lines": audit.num_lines,
        "rules": audit.num_rules,
        "ignored": audit.num_ignored,
        "skipped": [{"file": skipped.file, "reason": skipped.reason} for skipped in audit.skipped],
        **table,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def configured(settings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per configured value of a run, those that are not in effect first."""
    found = [
        {
            "setting": setting["name"],
            "configured": source["value"],
            "in_effect": setting["in_effect"],
            **{name: source[name] for name in ("where", "source", "default", "differs")},
            "by": setting["by"] if source["differs"] else None,
        }
        for setting in settings
        for source in setting.get("sources", ())
    ]
    return sorted(found, key=lambda row: not row["differs"])


def _finding(finding: Finding) -> dict[str, Any]:
    where = finding.where
    return {
        "id": finding.id,
        "severity": finding.severity,
        "file": where.file if where else "",
        "line": where.line if where else 0,
        "column": finding.data.get("column", 1),
        "function": where.function if where else "",
        "also": finding.data.get("lines", []),
        "message": finding.message,
        "fix": finding.advice or None,
    }
