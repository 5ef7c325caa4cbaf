"""What training left: parameters, buffers, generators, checkpoints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from hotloop.compare.items import Item, passed, unmeasured
from hotloop.compare.run import Run
from hotloop.compare.trace import Trace
from hotloop.record.recording import Note

Outcome = Literal["equal", "differs", "not-measured"]

_LOAD_WITHIN_S: Final = 120.0
#: Read with weights_only: nothing that a file says is executed. On "meta" nothing is allocated either.
_LOADER: Final = """
import json, sys
sys.path.append(sys.argv[1])
import torch
from hotloop.probe.evidence.checkpoints import layout
answers = []
for path in sys.argv[2:]:
    try:
        saved = torch.load(path, map_location="meta", weights_only=True)
        answers.append({"layout": layout(saved)})
    except Exception as error:
        answers.append({"error": f"{type(error).__name__}: {error}"})
print("\\n" + json.dumps(answers))
"""


@dataclass(frozen=True, kw_only=True)
class StateCheck:
    """Whether what was trained is the same, bit for bit; ``missed``: a run has fewer updates."""

    outcome: Outcome
    words: str
    missed: bool = False


def parameters(base: Trace, candidate: Trace, *, part: bool = False) -> StateCheck:
    """Checksums of all trained parameters and buffers at the end; of a run that was to end early nothing."""
    if not base.trained or not candidate.trained:
        which = "base" if not base.trained else "candidate"
        return StateCheck(outcome="not-measured", words=f"the {which} left no trained state")
    if None not in (base.updates, candidate.updates) and base.updates != candidate.updates:
        words = f"after {base.updates:,} and {candidate.updates:,} updates"
        # A gradient scaler leaves updates out, by what overflows at its precision.
        if part or base.precision != candidate.precision:
            return StateCheck(outcome="not-measured", words=f"{words}: not comparable")
        return StateCheck(outcome="differs", words=words, missed=True)
    wrong, unread, total = [], 0, 0
    for name, a, b in _pairs(base.trained, candidate.trained):
        mine, other = ({item[0]: item[1:] for item in note["items"]} for note in (a, b))
        labels = dict.fromkeys([*mine, *other])
        total += len(labels)
        apart = [label for label in labels if mine.get(label) != other.get(label)]
        if apart and a["updates"] != b["updates"]:
            words = f"{name} was read after {a['updates']:,} and {b['updates']:,} updates: not comparable"
            return StateCheck(outcome="not-measured", words=words)
        wrong += [f"{name} {label}" for label in apart]
        unread += sum(mine[label][0] is None for label in labels if label not in apart)
    if wrong:
        more = f" and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
        words = f"{wrong[0]}{more} of {total:,} parameters and buffers differ"
        return StateCheck(outcome="differs", words=words)
    if len(base.trained) != len(candidate.trained):
        words = f"{', '.join(base.trained)} in the base and {', '.join(candidate.trained)} in the candidate"
        return StateCheck(outcome="not-measured", words=f"not the same was trained: {words}")
    if unread:
        words = f"the values of {unread:,} of {total:,} parameters and buffers could not be read"
        return StateCheck(outcome="not-measured", words=words)
    return StateCheck(outcome="equal", words=f"{total:,} parameters and buffers bit-equal")


def _pairs(base: Mapping[str, Note], candidate: Mapping[str, Note]) -> list[tuple[str, Note, Note]]:
    """What was trained in both, by name, or where no name is in both by the order in which it was left."""
    if not base.keys() & candidate.keys():
        return [(name, a, b) for (name, a), b in zip(base.items(), candidate.values(), strict=False)]
    return [(name, base[name], candidate[name]) for name in base if name in candidate]


def generators(base: Trace, candidate: Trace) -> str:
    """Words where random generators that began alike ended apart, "" where none did or nothing is known."""
    a, b = base.generators, candidate.generators
    names = [
        name
        for name in a
        if f"{name}_first" in a
        and a[f"{name}_first"] == b.get(f"{name}_first")
        and a[name] != b.get(name, a[name])
    ]
    return f"the generators of {' and '.join(names)} ended in another state" if names else ""


def checkpoint(base: Run, candidate: Run) -> Item:
    """Both wrote alike, and what is on disk loads where the other would load it."""
    mine, other = _last(base.trace), _last(candidate.trace)
    if mine is None or other is None:
        which = "base" if mine is None else "candidate"
        return unmeasured("checkpoint", f"the {which} wrote no checkpoint with torch.save")
    apart = _apart(mine["entries"], other["entries"])
    if apart:
        return passed("checkpoint", False, f"the candidate's would not load in the base: {apart}")
    words = [f"{len(mine['entries']):,} entries alike"]
    loads = [(base.trace.executable, other, "candidate"), (candidate.trace.executable, mine, "base")]
    for (_, _, whose), (loaded, said) in zip(loads, _load_all(loads), strict=True):
        if loaded is False:
            return passed("checkpoint", False, f"the {whose}'s does not load: {said}")
        words.append(f"the {whose}'s {said}")
    return passed("checkpoint", True, "; ".join(dict.fromkeys(words)))


def _last(trace: Trace) -> Note | None:
    """The last checkpoint with its entries, which are noted with the first of their layout."""
    if not trace.checkpoints:
        return None
    note = trace.checkpoints[-1]
    entries = next(one["entries"] for one in trace.checkpoints if one["layout"] == note["layout"])
    return {**note, "entries": entries}


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


def _load_all(loads: Sequence[tuple[str, Note, str]]) -> list[tuple[bool | None, str]]:
    """Load each checkpoint with its python, in one process per python."""
    answers: dict[tuple[str, str], dict[str, Any]] = {}
    for python in dict.fromkeys(python for python, _, _ in loads):
        paths = [str(note["path"]) for one, note, _ in loads if one == python]
        there = [path for path in dict.fromkeys(paths) if Path(path).is_file()]
        for path, answer in zip(there, _ask(python, there) if there else (), strict=True):
            answers[python, path] = answer
    return [_judged(answers.get((python, str(note["path"]))), note) for python, note, _ in loads]


def _ask(python: str, paths: Sequence[str]) -> list[dict[str, Any]]:
    if not os.access(python, os.X_OK):
        python = sys.executable
    source = str(Path(__file__).resolve().parents[2])
    command = [python, "-I", "-c", _LOADER, source, *paths]
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
