"""Every configured value of a run beside what was in effect, as a table of at most 80 columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

_HEAD: Final = ("setting", "configured", "in effect", "where, and what decided otherwise")


def rows(settings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per configured value, those that are not in effect first."""
    found = [
        {
            "setting": setting["name"],
            "configured": source["value"],
            "in_effect": setting["in_effect"],
            "where": source["where"],
            "source": source["source"],
            "default": source["default"],
            "differs": bool(setting["differs"] or source["by"]),
            "by": source["by"],
        }
        for setting in settings
        for source in setting.get("sources", ())
    ]
    return sorted(found, key=lambda row: not row["differs"])


def render(settings: Sequence[dict[str, Any]], cwd: str) -> str:
    """The table; one line of words where nothing was configured."""
    table = rows(settings)
    if not table:
        return "This run read no configured value that hotloop knows.\n\n"
    lines = [("  ", *_HEAD)]
    for row in table:
        where = _short(row["where"], cwd) + (" (default)" if row["default"] else "")
        lines.append(
            (
                "! " if row["differs"] else "  ",
                row["setting"],
                _value(row["configured"]),
                _value(row["in_effect"]),
                where,
            )
        )
        if row["by"]:
            by = row["by"]
            place = _short(f"{by['file']}:{by['line']}", cwd) + " " if by["file"] else ""
            lines.append(("  ", "", "", "", f"< {place}{by['text']}"))
    widths = [max(len(line[i]) for line in lines) for i in range(1, 4)]
    return (
        "".join(
            line[0]
            + "  ".join(
                [*(cell.ljust(width) for cell, width in zip(line[1:4], widths, strict=True)), line[4]]
            ).rstrip()
            + "\n"
            for line in lines
        )
        + "\n"
    )


def _value(value: Any) -> str:
    return "not known" if value is None else str(value)


def _short(name: str, cwd: str) -> str:
    inside = cwd and name.startswith(cwd.rstrip("/") + os.sep)
    plain = name[len(cwd.rstrip("/")) + 1 :] if inside else name
    return "".join(c if c.isprintable() else " " for c in plain)
