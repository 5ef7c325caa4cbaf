"""Every configured value of a run beside what was in effect, as a table of at most 80 columns."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from typing import Any, Final

_WIDTH: Final = 80
_HEAD: Final = ("setting", "configured", "in effect", "where")


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
            "differs": source["differs"],
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
    cells = [(row["setting"], _value(row["configured"]), _value(row["in_effect"])) for row in table]
    widths = [max(len(cell[i]) for cell in [_HEAD, *cells]) for i in range(3)]
    lines = [_line("  ", _HEAD, widths, _HEAD[3])]
    for row, cell in zip(table, cells, strict=True):
        where = _short(row["where"], cwd) + (" (default)" if row["default"] else "")
        fits = 2 + sum(widths) + 6 + len(where) <= _WIDTH
        lines.append(_line("! " if row["differs"] else "  ", cell, widths, where if fits else ""))
        lines += [] if fits else [f"    {where}"]  # a long path in one piece
        if row["by"]:
            by = row["by"]
            place = _short(f"{by['file']}:{by['line']}", cwd) + " " if by["file"] else ""
            lines += textwrap.wrap(
                _plain(f"{place}{by['text']}"), _WIDTH, initial_indent="    < ", subsequent_indent="      ",
                break_on_hyphens=False, break_long_words=False,
            )  # fmt: skip
    return "\n".join(lines) + "\n\n"


def _line(mark: str, cells: Sequence[str], widths: Sequence[int], last: str) -> str:
    columns = [cell.ljust(width) for cell, width in zip(cells[:3], widths, strict=True)]
    return (mark + "  ".join([*columns, last])).rstrip()


def _value(value: Any) -> str:
    return "not known" if value is None else str(value)


def _short(name: str, cwd: str) -> str:
    inside = cwd and name.startswith(cwd.rstrip("/") + os.sep)
    return _plain(name[len(cwd.rstrip("/")) + 1 :] if inside else name)


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
