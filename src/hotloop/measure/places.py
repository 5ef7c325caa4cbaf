"""Code places of a process: call sites, stacks and source text, from its notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotloop.findings import Place
from hotloop.record.recording import Note, Process
from hotloop.source.code import Code, code_of
from hotloop.source.written import Call

COMPREHENSIONS = frozenset(("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"))


class Frame(Call):
    """One user frame: where it is, and which function (by its first line) it belongs to.

    ``col`` is the call's column in UTF-8 bytes, -1 unknown: it tells statements on one line apart.
    """

    @property
    def function(self) -> tuple[str, str, int]:
        """What tells functions apart."""
        return (self.file, self.func, self.func_line)

    def place(self) -> Place:
        """As findings show it."""
        return Place(file=self.file, line=self.line, function=self.func)


@dataclass(frozen=True, kw_only=True)
class Stack:
    """User frames, outermost first, and the library frames below the last of them."""

    frames: tuple[Frame, ...]
    library: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Places:
    """Everything that maps an id in a row to source."""

    sites: Mapping[int, Stack]
    stacks: Mapping[int, Stack]
    sources: Mapping[str, Sequence[str]]

    def site(self, number: int) -> Place | None:
        """The user's call site, or None where it is not known."""
        found = self.sites.get(number)
        return found.frames[-1].place() if found and found.frames else None

    def code(self, file: str) -> Code | None:
        """A file of the run, parsed; None where its text is not known or does not parse."""
        lines = self.sources.get(file)
        return code_of("\n".join(lines)) if lines else None

    def text(self, file: str, line: int) -> str:
        """A source line, stripped; "" where the text is not known."""
        lines = self.sources.get(file, ())
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def places_of(process: Process) -> Places:
    """Reads the ``site``, ``stack`` and ``source`` notes; notes that make no sense are passed over."""
    return Places(
        sites={_number(note.get("id")): _site(note) for note in process.notes.get("site", ())},
        stacks={
            _number(note.get("id")): Stack(
                frames=_frames(note.get("frames")), library=tuple(map(str, note.get("library") or ()))
            )
            for note in process.notes.get("stack", ())
        },
        sources={
            str(note.get("file")): str(note.get("text", "")).splitlines()
            for note in process.notes.get("source", ())
        },
    )


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _frames(value: Any) -> tuple[Frame, ...]:
    if not isinstance(value, list | tuple):
        return ()
    found = (
        Frame(str(f[0]), _number(f[1]), str(f[2]), _number(f[3]), _number(f[4]) if len(f) > 4 else -1)
        for f in value
        if isinstance(f, list | tuple) and len(f) >= 4
    )
    return _without_comprehensions(found)


def _without_comprehensions(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """A comprehension's frame (before Python 3.12 it has one) is its function's, at the line inside it."""
    kept: list[Frame] = []
    for frame in frames:
        outer, _, name = frame.func.rpartition(".<locals>.") if "." in frame.func else ("", "", frame.func)
        holder = kept[-1] if kept else None
        if (
            name in COMPREHENSIONS
            and holder is not None
            and holder.file == frame.file
            and holder.func in (outer, "<module>")
        ):
            kept[-1] = Frame(frame.file, frame.line, holder.func, holder.func_line, frame.col)
        else:
            kept.append(frame)
    return tuple(kept)


def _site(note: Note) -> Stack:
    frames = _frames(note.get("stack"))
    own = Frame(
        str(note.get("file", "")),
        _number(note.get("line")),
        str(note.get("func", "")),
        _number(note.get("func_line")),
        note["col"] if isinstance(note.get("col"), int) else -1,
    )
    if own.file and (not frames or frames[-1].function != own.function):
        frames = _without_comprehensions((*frames, own))
    return Stack(frames=frames)
