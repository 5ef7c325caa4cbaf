"""The user's source as the run carried it: text, functions and loops around a line a rule speaks about."""

from __future__ import annotations

from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Place
from hotloop.measure.steps import LoaderUse
from hotloop.source.loops import LoopText, definitions, function_at, loops_at


def sources(evidence: Evidence) -> dict[str, str]:
    """The text of every user file that was seen, by its name."""
    return {
        str(note.get("file")): str(note.get("text") or "")
        for process in evidence.recording.processes
        for note in process.notes.get("source", ())
    }


def text_of(evidence: Evidence, file: str) -> str:
    """The text of a user file as it was when it ran, "" when the recording does not hold it."""
    return sources(evidence).get(file, "")


def line_text(evidence: Evidence, place: Place | None) -> str:
    """The text of one line without its indent, "" when unknown."""
    lines = text_of(evidence, place.file).splitlines() if place is not None else []
    return lines[place.line - 1].strip() if place is not None and 0 < place.line <= len(lines) else ""


def loops_around(evidence: Evidence, place: Place) -> tuple[LoopText, ...]:
    """The loops of the line's own function that contain the line, innermost first."""
    return loops_at(text_of(evidence, place.file), place.line)


def function_text(evidence: Evidence, place: Place) -> str:
    """The text of the innermost function around a line, "" at module level or when unknown."""
    return function_at(text_of(evidence, place.file), place.line)


def dataset_text(evidence: Evidence, loader: LoaderUse) -> str:
    """The class of the dataset and every function its making was seen in, "" where the source is not
    known.
    """
    wanted = {(line.place.file, line.place.function.rpartition(".")[2]) for line in loader.lines}
    wanted.add((str(loader.dataset.get("file") or ""), str(loader.dataset.get("class") or "")))
    return "\n".join(
        part
        for file, text in sorted(sources(evidence).items())
        for part in definitions(text, {name for other, name in wanted if other == file})
    )
