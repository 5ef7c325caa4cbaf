"""Checkpoints: whether both runs wrote alike, each loads where the other would load it, and the values."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from hotloop.compare.items import Item, passed, unmeasured
from hotloop.compare.run import Run, Trace
from hotloop.record.recording import Note

_LOAD_WITHIN_S: Final = 120.0
#: A file that was written so long after a run ended is another's.
_LATER_S: Final = 2.0
#: Endings of files that are renamed when they are complete.
_UNFINISHED: Final = (".partial", ".part", ".tmp", ".temp")

_LOADED: Final = Path(__file__).with_name("loaded.py")


def checkpoint(
    base: Run,
    candidate: Run,
    *,
    exact: bool,
    as_many: bool = False,
    python: str = "",
    launched: bool = False,
) -> Item:
    """The last checkpoint of both; ``exact``: what was computed is the same, so values have to be as well.

    ``as_many``: the candidate has to write as many files. A recording names a Python: started is ``python``,
    or this one, or any where both were ``launched`` now.
    """
    # One that is written over counts once: in the background it may be left out.
    files = [len({note["path"] for note in run.trace.checkpoints}) for run in (base, candidate)]
    otherwise = not files[1] and candidate.lead.checkpoints  # safetensors, torch.distributed.checkpoint
    if exact and as_many and files[0] != files[1] and not otherwise:
        said = f"the candidate wrote {files[1]:,} files of checkpoints, the base {files[0]:,}"
        return passed("checkpoint", False, said, files[1], files[0])
    mine, other = _last(base.trace), _last(candidate.trace)
    if mine is None or other is None:
        which = "base" if mine is None else "candidate"
        return unmeasured("checkpoint", f"the {which} wrote no checkpoint with torch.save")
    if apart := _apart(mine["entries"], other["entries"]):
        return passed("checkpoint", False, f"the candidate's would not load in the base: {apart}")
    gone = _gone(candidate, other, base, mine), _gone(base, mine, candidate, other)
    beside = mine["path"] if exact and not any(gone) and mine.get("updates") == other.get("updates") else ""

    def ask(why: str, run: Run, *paths: str) -> dict[str, Any]:
        named = run.trace.executable
        if why or python or launched or named == sys.executable:
            return {"untried": why} if why else _ask(python or named, *paths)
        return {"untried": f"is not loaded: {run.label} names {named!r}, not started; --python PATH loads it"}

    asked = ask(gone[0], base, other["path"], beside)
    answers = {"candidate's": asked, "base's": ask(gone[1], candidate, mine["path"])}
    words = [f"{len(mine['entries']):,} entries alike"]
    for whose, answer in answers.items():
        if "error" in answer:
            return passed("checkpoint", False, f"the {whose} does not load: {answer['error']}")
        words.append(f"the {whose} {answer.get('untried', 'loads')}")
    if "untried" in asked:
        return unmeasured("checkpoint", "; ".join(words))
    if "unlike" not in asked or "untried" in answers["base's"]:
        return passed("checkpoint", True, "; ".join([*words, "values not compared"]))
    unlike, total = asked["unlike"], asked["total"]
    if unlike:
        said = f"the candidate's has other values in {len(unlike):,} of {total:,} tensors: {unlike[0]!r}"
        return passed("checkpoint", False, said)
    return passed("checkpoint", True, "; ".join([*words, f"{total:,} tensors bit-equal"]))


def _last(trace: Trace) -> Note | None:
    """The last checkpoint with its entries, which are noted with the first of their layout."""
    if not trace.checkpoints:
        return None
    note = trace.checkpoints[-1]
    alike = (one.get("entries") for one in trace.checkpoints if one["layout"] == note["layout"])
    entries = next(filter(None, alike), None)
    return {**note, "entries": entries, "path": _published(str(note["path"]))} if entries else None


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


def _gone(run: Run, note: Note, beside: Run, other: Note) -> str:
    """Why the file that is there is not what this run wrote; the later of two wrote what both did."""
    try:
        facts = Path(note["path"]).stat()
    except (OSError, ValueError):
        return "is no longer there to be loaded"
    written_s = facts.st_mtime
    if not stat.S_ISREG(facts.st_mode):
        return "is no regular file"
    if written_s < run.recording.start_unix_s:
        return "was thrown away: the file there is an earlier one"
    ended_s = run.recording.start_unix_s + run.recording.wall_s
    again = note["path"] == other["path"] and run.recording.start_unix_s < beside.recording.start_unix_s
    return "was written over since" if again or written_s > ended_s + _LATER_S else ""


def _ask(python: str, path: str, beside: str = "") -> dict[str, Any]:
    """What a Python makes of a checkpoint: ``error``, ``untried``, or with another beside it ``unlike``."""
    command = [python, "-I", str(_LOADED), str(Path(__file__).resolve().parents[2]), path, beside]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LOAD_WITHIN_S, check=False)
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return {"untried": f"could not be tried: {type(error).__name__}"}
    if "weights_only" in found.get("error", "").lower() or "weights only" in found.get("error", "").lower():
        return {"untried": "holds more than tensors and plain values: not loaded here"}
    return found
