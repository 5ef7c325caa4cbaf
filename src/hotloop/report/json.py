"""report.json as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def render(report: Mapping[str, Any]) -> str:
    """The report as JSON text with a final newline; one top-level key a line, which keeps diffs readable."""
    lines = [
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}"
        for key, value in report.items()
    ]
    return "{" + ",\n ".join(lines) + "}\n"
