"""What was configured, beside what was in effect: which differences are real and which were meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import is_on
from hotloop.measure.settings import plain_number, same
from hotloop.measure.steps import Setting
from hotloop.record.recording import Note

#: Keys that configure evaluation say nothing about the training loader.
_EVALUATION_KEY = re.compile(r"(^|[._\-])(val|valid|validation|test|eval|evaluation|dev)([._\-]|$)", re.I)


def ignored(evidence: Evidence, name: str) -> Setting | None:
    """The setting of that name if a value was configured for it and another one was in effect.

    A value that the command line overrode on purpose and an argparse default nobody gave are not ignored.
    """
    setting = next((s for s in evidence.steps.settings if s.name == name), None)
    if setting is None or setting.configured is None or setting.in_effect is None:
        return None
    if same(setting.configured, setting.in_effect):
        return None
    notes = [note for note in _notes(evidence) if note.get("meaning") == name]
    claims = [note for note in notes if not _EVALUATION_KEY.search(str(note.get("key", "")))]
    if notes and not any(_speaks(note) and same(note.get("value"), setting.configured) for note in claims):
        return None  # only a default, or a key of the evaluation
    if any(_speaks(note) and same(note.get("value"), setting.in_effect) for note in claims):
        return None  # another source said so
    return setting


def number(value: Any) -> float | None:
    """A configured value as a number, None where it is none."""
    return None if value is None else plain_number(value)


def _speaks(note: Note) -> bool:
    """Whether somebody wrote the value down: a file, the environment, or a given argument."""
    return note.get("source") != "argparse" or bool(note.get("given"))


def _notes(evidence: Evidence) -> Iterator[Note]:
    for process in evidence.recording.ranks:
        if process.pid == evidence.steps.pid:
            yield from process.notes.get("config", ())


def wanted(evidence: Evidence, name: str) -> Setting | None:
    """The setting of that name if somebody wrote down that it should be on."""
    setting = next((s for s in evidence.steps.settings if s.name == name), None)
    if setting is None or not is_on(setting.configured):
        return None
    notes = [note for note in _notes(evidence) if note.get("meaning") == name]
    if any(
        note.get("source") == "argparse" and note.get("given") and not is_on(note.get("value"))
        for note in notes
    ):
        return None  # switched off on the command line
    return setting if not notes or any(_speaks(note) and is_on(note.get("value")) for note in notes) else None


def written_down(evidence: Evidence, meaning: str) -> Note | None:
    """The configured value that counts: given on the command line, else the only one of all sources."""
    notes = [note for note in _notes(evidence) if note.get("meaning") == meaning and _speaks(note)]
    given = [note for note in notes if note.get("source") == "argparse"]
    values = {str(note.get("value")) for note in notes}
    return given[-1] if given else (notes[-1] if len(values) == 1 else None)
