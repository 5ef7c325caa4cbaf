"""What a run of the patched files shows: the loader built with the new value, the flag in effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from hotloop.fix.edits import Expected
from hotloop.fix.patch import Patch
from hotloop.measure.places import Frame, Places, places_of
from hotloop.measure.settings import same
from hotloop.record.recording import Note, Process, Recording


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What the patched copy did. ``passed`` is None where nothing could be proven either way."""

    passed: bool | None
    words: str
    seconds: float = 0.0


def shown(patch: Patch, ranks: Sequence[Process]) -> Proof | None:
    """Whether these processes show what the patch is to change; None where they did not come so far."""
    places = [places_of(rank) for rank in ranks]
    words: dict[str, str] = {}
    for expected in patch.expected:
        found = [
            note
            for rank, known in zip(ranks, places, strict=True)
            for note in rank.notes.get(expected.note, ())
            if _is_in_effect(note) and _is_meant(patch, note, known, expected)
        ]
        if not found and expected.name in words:
            continue  # another loader may be built later
        if not found:
            return None
        value = found[-1].get(expected.name)
        said = f"{expected.name}={value}" if expected.name != "class" else str(value)
        if not (value is expected.value or same(value, expected.value)):
            return Proof(passed=False, words=f"the patched copy has {said}, not {expected.value}")
        words[expected.name] = said
    if not any(_is_in_effect(note) for rank in ranks for note in rank.notes.get("torch", ())):
        return None
    shows = f" with {', '.join(words.values())}" if words else ""
    return Proof(passed=True, words=f"the patched copy runs to its first update{shows}")


def other_python(was: Process, seen: Recording) -> str:
    """Which Python a check ran with where it is of another environment than the run's, in words."""
    its = str(was.first("process").get("executable") or "")
    met = [str(one.first("process").get("executable") or "") for one in seen.ranks] or seen.without_torch
    others = [one for one in met if one and its and Path(one).parent != Path(its).parent]
    return f"{others[0]} ran it, and {its} the run: activate that environment" if others else ""


def _is_in_effect(note: Note) -> bool:
    """A copy that fails before its first update notes torch's settings as it ends."""
    return note["note"] != "torch" or note.get("when") == "first_step"


def _is_meant(patch: Patch, note: Note, places: Places, expected: Expected) -> bool:
    """Whether a note is of the call that was changed: by its frames, at the lines they have now."""
    if not expected.frames:
        return True
    stack = places.sites.get(note.get("via") or note.get("where") or 0)
    frames = stack.frames if stack is not None else ()
    return len(frames) == len(expected.frames) and all(
        (now.file, now.func) == (was.file, was.func) and now.line in _lines_now(patch, was)
        for now, was in zip(frames, expected.frames, strict=True)
    )


def _lines_now(patch: Patch, frame: Frame) -> range:
    """Where a line of the run stands in the patched file; what took its place where it was changed itself."""
    line = frame.line
    if Path(frame.file) not in patch.files:
        return range(line, line + 1)
    text, new = patch.files[Path(frame.file)]
    old = text.encoded(text.text).splitlines()
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new.splitlines(), autojunk=False).get_opcodes():
        if i1 < line <= i2:
            one_to_one = tag == "equal" or i2 - i1 == j2 - j1
            return range(line + j1 - i1, line + j1 - i1 + 1) if one_to_one else range(j1 + 1, j2 + 1)
    return range(0)
