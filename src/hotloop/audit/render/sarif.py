"""An audit as SARIF 2.1.0 (OASIS), for code-scanning services and editors."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from hotloop import __version__
from hotloop.audit.audit import Audit
from hotloop.audit.rules import RULES
from hotloop.findings import Finding

_LEVELS: Final = {"high": "error", "medium": "warning", "low": "warning", "info": "note"}
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def render(audit: Audit) -> str:
    """One run of one tool, with every rule it has."""
    ids = sorted(set(RULES) | {finding.id for finding in audit.findings})
    run = {
        "tool": {
            "driver": {
                "name": "hotloop",
                "semanticVersion": __version__,
                "rules": [{"id": name, "name": _camel(name)} for name in ids],
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


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.replace("/", "-").split("-"))
