"""Runs of one job that several launchers left, one a node or a task, as one Recording on one clock."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from hotloop.errors import RecordingError
from hotloop.record.recording import Note, Process, Recording

#: Where the copy of a part lies in a merged run's folder.
FOLDER: Final = re.compile(r"node-\d{1,6}")
#: Pids of part N begin at N times this: above any pid of Linux, and still to be read.
PIDS: Final = 10_000_000
#: No clock is further ahead of another: 36 years.
_MOST_NS: Final = 1 << 60
_TIMES, _PIDS_OF_A_NOTE = ("t", "start_ns", "end_ns"), ("pid", "ppid", "parent_main_pid")


def part_names(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The folders of a merged run's parts; raises RecordingError where it names another place."""
    names = [str(part.get("folder")) for part in parts]
    if bad := [name for name in names if not FOLDER.fullmatch(name)]:
        raise RecordingError(f"run.json names a part {bad[0]!r}, which is none", hint="merge the runs again")
    return names


def merged(whole: Recording, read: Sequence[tuple[Mapping[str, Any], Recording]]) -> Recording:
    """``whole`` (what the merged ``run.json`` says) with the processes and samples of its parts.

    Clocks are those of the part that is furthest ahead: no time falls below 0. Pids of part N grow by N times
    ``PIDS``. Raises RecordingError where a part's clock cannot be.
    """
    ahead = [int(part.get("ahead_ns") or 0) for part, _ in read]
    if max(map(abs, ahead)) > _MOST_NS:
        raise RecordingError("run.json names a clock that cannot be", hint="merge the runs again")
    placed = [(part, max(ahead) - one) for (_, part), one in zip(read, ahead, strict=True)]
    start_ns = min(part.start_ns + shift for part, shift in placed)
    last_ns = max(part.start_ns + shift + int(part.wall_s * 1e9) for part, shift in placed)
    moved = [_moved(part, number * PIDS, shift, start_ns) for number, (part, shift) in enumerate(placed)]
    codes = [part.exit_code for part in moved]
    by_node: dict[int, list[Recording]] = {}
    for (facts, _), part in zip(read, moved, strict=True):
        by_node.setdefault(int(facts.get("number") or 0), []).append(part)
    nodes = [_side_by_side(parts[0], parts) for parts in by_node.values()]
    named = [(str(facts.get("name") or "?"), part) for (facts, _), part in zip(read, moved, strict=True)]
    return replace(
        _side_by_side(whole, moved),
        exit_code=next((code for code in codes if code), None if None in codes else 0),
        wall_s=max(0, last_ns - start_ns) / 1e9,
        start_ns=start_ns,
        start_unix_s=min(part.start_unix_s for part in moved),
        machine=nodes[0].machine,
        system=nodes[0].system,
        warnings=(*whole.warnings, *(f"{name}: {text}" for name, part in named for text in part.warnings)),
        complete=all(part.complete for part in moved),
        without_torch=tuple(dict.fromkeys(text for part in moved for text in part.without_torch)),
        torch_failed=tuple(dict.fromkeys(text for part in moved for text in part.torch_failed)),
        patch=moved[0].patch,
        nodes=tuple(nodes),
    )


def _side_by_side(whole: Recording, parts: Sequence[Recording]) -> Recording:
    """``whole`` with the processes of all parts, and what was sampled of them."""
    ranks = (process for part in parts for process in part.ranks)
    return replace(
        whole,
        ranks=tuple(sorted(ranks, key=lambda process: (process.rank, process.start_ns))),
        process_system={pid: columns for part in parts for pid, columns in part.process_system.items()},
    )


def _moved(part: Recording, pids: int, shift_ns: int, start_ns: int) -> Recording:
    """A part on the clock, and with the pids, of the merged run."""
    later_s = (part.start_ns + shift_ns - start_ns) / 1e9

    def later(columns: Mapping[str, Any]) -> dict[str, Any]:
        return {**columns, "t_s": np.asarray(columns["t_s"]) + later_s} if "t_s" in columns else {**columns}

    return replace(
        part,
        start_ns=start_ns,
        ranks=tuple(_process(process, pids, shift_ns) for process in part.ranks),
        system=later(part.system),
        process_system={pid + pids: later(columns) for pid, columns in part.process_system.items()},
    )


def _process(process: Process, pids: int, shift_ns: int) -> Process:
    return process.moved(
        shift_ns,
        pid=process.pid + pids,
        ppid=process.ppid + pids,
        start_ns=process.start_ns + shift_ns,
        end_ns=process.end_ns + shift_ns,
        notes={kind: [_note(note, pids, shift_ns) for note in all_] for kind, all_ in process.notes.items()},
        workers=tuple(_process(worker, pids, shift_ns) for worker in process.workers),
    )


def _note(note: Note, pids: int, shift_ns: int) -> Note:
    changed: dict[str, Any] = {name: note[name] + shift_ns for name in _TIMES if note.get(name)}
    changed |= {name: note[name] + pids for name in _PIDS_OF_A_NOTE if note.get(name)}
    if note.get("note") == "iterator" and note.get("workers"):
        changed["workers"] = [pid + pids for pid in note["workers"]]
    return {**note, **changed}
