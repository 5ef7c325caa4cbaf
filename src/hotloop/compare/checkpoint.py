"""Checkpoints: whether both runs wrote alike, each loads where the other would load it, and the values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from hotloop.compare.items import Item, passed, unmeasured
from hotloop.compare.run import Run
from hotloop.compare.trace import Trace
from hotloop.record.recording import Note

_LOAD_WITHIN_S: Final = 120.0
#: A file that was written so long after a run ended is another's.
_LATER_S: Final = 2.0
#: Endings of files that are renamed when they are complete.
_UNFINISHED: Final = (".partial", ".part", ".tmp", ".temp")

_LOADED: Final = Path(__file__).with_name("loaded.py")


def checkpoint(base: Run, candidate: Run, *, exact: bool) -> Item:
    """The last checkpoint of both; ``exact``: what was computed is the same, so values have to be as well."""
    mine, other = _last(base.trace), _last(candidate.trace)
    if mine is None or other is None:
        which = "base" if mine is None else "candidate"
        return unmeasured("checkpoint", f"the {which} wrote no checkpoint with torch.save")
    apart = _apart(mine["entries"], other["entries"])
    if apart:
        return passed("checkpoint", False, f"the candidate's would not load in the base: {apart}")
    words = [f"{len(mine['entries']):,} entries alike"]
    loads = [(base.trace.executable, other), (candidate.trace.executable, mine)]
    answers = _load_all(loads)
    over = _another(candidate, other, base, mine), _another(base, mine, candidate, other)
    for at, whose in enumerate(("candidate", "base")):
        loaded, said = (None, over[at]) if over[at] else answers[at]
        if loaded is False:
            return passed("checkpoint", False, f"the {whose}'s does not load: {said}")
        words.append(f"the {whose}'s {said}")
    known = [loaded is not None and not gone for (loaded, _), gone in zip(answers, over, strict=True)]
    if not known[0]:
        return unmeasured("checkpoint", "; ".join(words))
    if not known[1] or not exact or mine["updates"] != other["updates"]:
        return passed("checkpoint", True, "; ".join([*words, "values not compared"]))
    found = _ask(base.trace.executable, "values", [str(note["path"]) for note in (mine, other)])[0]
    return _values(found, words)


def _values(found: dict[str, Any], words: Sequence[str]) -> Item:
    if "unlike" not in found:
        why = found.get("error") or found.get("untried") or ""
        return passed("checkpoint", True, "; ".join([*words, f"values not compared: {why[:200]}"]))
    unlike, total = found["unlike"], found["total"]
    if not unlike:
        return passed("checkpoint", True, "; ".join([*words, f"{total:,} tensors bit-equal"]))
    said = f"the candidate's has other values in {len(unlike):,} of {total:,} tensors: {unlike[0]!r}"
    return passed("checkpoint", False, said)


def _last(trace: Trace) -> Note | None:
    """The last checkpoint with its entries, which are noted with the first of their layout."""
    if not trace.checkpoints:
        return None
    note = trace.checkpoints[-1]
    entries = next(one["entries"] for one in trace.checkpoints if one["layout"] == note["layout"])
    return {**note, "entries": entries, "path": _published(str(note["path"]))}


def _published(path: str) -> str:
    """Where a file went that was written beside its place and renamed; what it holds is compared as ever."""
    place, final = Path(path), Path(path).with_suffix("")
    renamed = place.suffix in _UNFINISHED and not place.exists() and final.is_file()
    return str(final) if renamed else path


def _apart(mine: Sequence[Sequence[Any]], other: Sequence[Sequence[Any]]) -> str:
    """How two layouts differ. Only tensors count: a run's own numbers may have another type."""
    a = {entry[0]: tuple(map(str, entry[1:])) for entry in mine if entry[2] is not None}
    b = {entry[0]: tuple(map(str, entry[1:])) for entry in other if entry[2] is not None}
    for path in a.keys() | b.keys():
        if path not in b:
            near = next((one for one in b if one.endswith(path.rpartition(".")[2]) and one not in a), "")
            return f"{path!r} is missing" + (f", there is {near!r}" if near else "")
        if path not in a:
            return f"{path!r} is new"
        if a[path] != b[path]:
            return f"{path!r} is {' '.join(b[path])}, it was {' '.join(a[path])}"
    return ""


def _another(run: Run, note: Note, beside: Run, other: Note) -> str:
    """Why the file that is there is not what this run wrote; "" where it is, or there is none."""
    mine, its = run.recording, beside.recording
    try:
        written_s = Path(note["path"]).stat().st_mtime
    except OSError:
        return ""
    if written_s < mine.start_unix_s:
        return "was thrown away: the file there is an earlier one"
    shared = note["path"] == other["path"] and mine.start_unix_s < its.start_unix_s
    later = written_s > mine.start_unix_s + mine.wall_s + _LATER_S
    return "was written over since" if shared or later else ""


def _load_all(loads: Sequence[tuple[str, Note]]) -> list[tuple[bool | None, str]]:
    """Load each checkpoint with its python, in one process per python."""
    answers: dict[tuple[str, str], dict[str, Any]] = {}
    for python in dict.fromkeys(python for python, _ in loads):
        paths = [str(note["path"]) for one, note in loads if one == python]
        there = [path for path in dict.fromkeys(paths) if Path(path).is_file()]
        for path, answer in zip(there, _ask(python, "layouts", there) if there else (), strict=True):
            answers[python, path] = answer
    return [_judged(answers.get((python, str(note["path"]))), note) for python, note in loads]


def _ask(python: str, what: str, paths: Sequence[str]) -> list[dict[str, Any]]:
    if not os.access(python, os.X_OK):
        python = sys.executable
    command = [python, "-I", str(_LOADED), str(Path(__file__).resolve().parents[2]), what, *paths]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LOAD_WITHIN_S, check=False)
        found: list[dict[str, Any]] = json.loads(done.stdout.strip().splitlines()[-1])
        return found
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return [{"untried": type(error).__name__} for _ in paths]


def _judged(answer: dict[str, Any] | None, note: Note) -> tuple[bool | None, str]:
    """Whether a checkpoint loads; None where that could not be tried."""
    if answer is None:
        return None, "is no longer there to be loaded"
    if "untried" in answer:
        return None, f"could not be tried: {answer['untried']}"
    if "error" in answer:
        if "weights_only" in answer["error"].lower() or "weights only" in answer["error"].lower():
            return None, "holds more than tensors and plain values: not loaded here"
        return False, (answer["error"].strip().splitlines() or ["no word"])[0][:200]
    apart = _apart(note["entries"], answer["layout"])
    return (None, f"was written over since ({apart})") if apart else (True, "loads")
