"""Source lines around a place, from the texts the recording keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hotloop.findings import Place
from hotloop.record.recording import Recording

_LONGEST_LINE = 240


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Texts of the user's files as they were during the run."""

    lines: Mapping[str, list[str]]

    @classmethod
    def of(cls, recording: Recording) -> Sources:
        """All ``source`` notes of all processes."""
        texts: dict[str, list[str]] = {}
        for process in recording.processes:
            for note in process.notes.get("source", []):
                text = note.get("text")
                if isinstance(text, str):
                    texts.setdefault(str(note.get("file", "")), text.splitlines())
        return cls(lines=texts)

    def excerpt(self, place: Place | None, around: int = 3) -> dict[str, Any] | None:
        """``{"first": line number, "lines": [...]}`` around a place; None where the text is not known."""
        if place is None:
            return None
        lines = self.lines.get(place.file, [])
        if not 1 <= place.line <= len(lines):
            return None
        first = max(1, place.line - around)
        return {"first": first, "lines": [_clipped(line) for line in lines[first - 1 : place.line + around]]}

    def line(self, place: Place) -> str:
        """The text of one line, stripped; "" where it is not known."""
        lines = self.lines.get(place.file, [])
        return _clipped(lines[place.line - 1].strip()) if 1 <= place.line <= len(lines) else ""


def _clipped(line: str) -> str:
    line = line.expandtabs(4)
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"
