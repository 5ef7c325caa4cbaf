"""An audit for machines: annotations of GitHub Actions, JSON and SARIF."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from hotloop import __version__
from hotloop.audit.audit import Audit
from hotloop.audit.rules import RULES
from hotloop.findings import Finding

_COMMANDS: Final = {"high": "error", "medium": "warning", "low": "warning", "info": "notice"}


def as_github(audit: Audit) -> str:
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


# As JSON, schema 1


def as_json(audit: Audit, settings: Sequence[dict[str, Any]] | None = None) -> str:
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


# As SARIF 2.1.0 (OASIS), for code-scanning services and editors


_LEVELS: Final = {"high": "error", "medium": "warning", "low": "warning", "info": "note"}
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def as_sarif(audit: Audit) -> str:
    """One run of one tool, with every rule it has."""
    ids = sorted(set(RULES) | {finding.id for finding in audit.findings})
    run = {
        "tool": {
            "driver": {
                "name": "hotloop",
                "semanticVersion": __version__,
                "rules": [
                    {"id": name, "name": "".join(map(str.capitalize, re.split("[/-]", name)))} for name in ids
                ],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, ids.index(finding.id)) for finding in audit.findings],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {
                        "level": "warning",
                        "message": {"text": f"not audited: {skipped.reason}"},
                        "locations": [
                            {"physicalLocation": {"artifactLocation": {"uri": _uri(skipped.file)}}}
                        ],
                    }
                    for skipped in audit.skipped
                ],
            }
        ],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(finding: Finding, index: int) -> dict[str, Any]:
    where = finding.where
    region = {"startLine": max(1, where.line) if where else 1, "startColumn": finding.data.get("column", 1)}
    location = {"artifactLocation": {"uri": _uri(where.file if where else "")}, "region": region}
    return {
        "ruleId": finding.id,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.message} {finding.advice}".strip()},
        "locations": [{"physicalLocation": location}],
        "properties": {"severity": finding.severity},
    }


def _uri(file: str) -> str:
    path = PurePath(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
