"""``merge``: the run folders that several launchers left of one job become one run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from hotloop.errors import RecordingError, UsageError
from hotloop.flow.observe import new_run_folder
from hotloop.record import runfile
from hotloop.record.bucket import files_of
from hotloop.record.clocks import Clock, Host, clock, host_of
from hotloop.record.read import open_recording

#: Calendars of two nodes are not further apart.
_CALENDARS_S: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class Part:
    """What the merge needs of one run folder."""

    path: Path
    run: dict[str, Any]
    ranks: tuple[int, ...]
    world: int | None
    script: str
    port: str
    since_s: float
    until_s: float
    host: Host

    @property
    def words(self) -> str:
        """The folder and its machine."""
        return f"{self.path} ({self.host.name or 'machine not known'})"


def merge(paths: Sequence[Path], out: Path) -> list[str]:
    """Copy the runs into a new folder ``out``, with a ``run.json`` that names them; returns words on each.

    Raises UsageError: they are no runs of one job, or ``out`` is there already.
    """
    parts = sorted(map(_part, paths), key=lambda part: (part.ranks or (1 << 62,), str(part.path)))
    _check(parts)
    missing = _missing(parts)
    clocks = [clock(part.host, parts[0].host) for part in parts]
    folder = new_run_folder(out, ())
    (folder / "raw").rmdir()
    machines: dict[tuple[str, int], int] = {}
    noted = []
    for number, (part, told) in enumerate(zip(parts, clocks, strict=True)):
        name = f"node-{number}"
        _copy(part.path, folder / name)
        machine = (part.host.name, told.ahead_ns) if part.host.name else (name, number)
        noted.append(
            {
                "folder": name,
                "name": part.host.name or name,
                "path": str(part.path),
                "number": machines.setdefault(machine, len(machines)),
                "ahead_ns": told.ahead_ns,
                "within_s": told.within_s,
                "by": told.by,
            }
        )
    first = parts[0].run
    kept = {name: first.get(name) for name in ("command", "cwd", "mark", "machine")}
    unsure = [
        f"{part.host.name or part.path}: no collective tells its clock: its times are as far off as the "
        "calendars of the machines differ"
        for part, told in zip(parts, clocks, strict=True)
        if told.within_s is None
    ]
    runfile.write(folder, {**kept, "warnings": [*missing, *unsure], "parts": noted})
    return [*(_words(*one, parts[0]) for one in zip(parts, clocks, strict=True)), *missing]


def _part(path: Path) -> Part:
    recording = open_recording(path, 0)  # of its rows those of one rank are looked at
    run, _ = runfile.read(path if path.is_dir() else path.parent)
    if not path.is_dir() or run.get("parts"):
        what = "a merged run" if path.is_dir() else "a file"
        raise UsageError(f"{path} is {what}, no run of a node", hint="give the folders that hotloop run left")
    trained = [one for one in recording.ranks if one.num_rows]
    noted = [one.first("process") for one in trained]
    scripts = [Path((note.get("argv") or [""])[0]).name for note in noted]
    until_s = recording.start_unix_s + recording.wall_s
    return Part(
        path=path,
        run=run,
        ranks=tuple(dict.fromkeys(one.rank for one in trained)),
        world=next((note["world_size"] for note in noted if note.get("world_size")), None),
        script=next(filter(None, scripts), ""),
        port=next(filter(None, ((note.get("env") or {}).get("MASTER_PORT", "") for note in noted)), ""),
        since_s=recording.start_unix_s,
        until_s=until_s,
        host=host_of(recording),
    )


def _check(parts: Sequence[Part]) -> None:
    """Raises UsageError unless they are parts of one job."""
    way_out = "give the run folders of one job, each once"
    if len(parts) < 2:
        raise UsageError("there is nothing to merge: one run is given", hint=way_out)
    seen: dict[int, Part] = {}
    for part in parts:
        for rank in part.ranks:
            if rank in seen:
                raise UsageError(f"rank {rank} is in both {seen[rank].words} and {part.words}", hint=way_out)
            seen[rank] = part
    trained = [part for part in parts if part.ranks]
    if not trained:
        raise RecordingError("none of the runs holds a process that trained", hint=way_out)
    one = trained[0]
    for other in trained[1:]:
        for what, own, others in (
            ("world size", one.world, other.world),
            ("script", one.script, other.script),
            ("MASTER_PORT", one.port, other.port),
        ):
            if own and others and own != others:
                raise UsageError(
                    f"they are not one job: {one.words} has the {what} {own}, {other.words} has {others}",
                    hint=way_out,
                )
        apart_s = max(one.since_s, other.since_s) - min(one.until_s, other.until_s)
        if min(one.since_s, other.since_s) > 0 and apart_s > _CALENDARS_S:
            raise UsageError(
                f"they are not one job: {apart_s / 3600:.1f} hours lie between {one.words} and {other.words}",
                hint=way_out,
            )


def _missing(parts: Sequence[Part]) -> list[str]:
    """Words on ranks of the job that no run holds, and on runs without any."""
    world = max((part.world or 0 for part in parts), default=0)
    ranks = {rank for part in parts for rank in part.ranks}
    lost = sorted(set(range(world)) - ranks) if world < 1 << 20 else []
    words = [f"{part.words} holds no process that trained" for part in parts if not part.ranks]
    if lost:
        are = "ranks {} of {} are" if len(lost) > 1 else "rank {} of {} is"
        words.append(f"{are.format(_runs(lost), world)} missing: no run holds what they did")
    return words


def _runs(numbers: Sequence[int]) -> str:
    """``0 to 3, 7`` of sorted numbers."""
    groups = (
        [number for _, number in group]
        for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    )
    return ", ".join(str(one[0]) if len(one) == 1 else f"{one[0]} to {one[-1]}" for one in groups)


def _words(part: Part, told: Clock, first: Part) -> str:
    ranks = (
        f"rank{'s' if len(part.ranks) > 1 else ''} {_runs(sorted(part.ranks))}" if part.ranks else "no rank"
    )
    text = f"{part.words}: {ranks}"
    if part is first:
        return text
    sure = "not known how exactly" if told.within_s is None else f"within {told.within_s * 1e3:.3g} ms"
    text += f", clock told by {told.by}, {sure}"
    if told.within_s is not None and part.host.zero_ns is not None and first.host.zero_ns is not None:
        behind_s = (first.host.zero_ns - part.host.zero_ns - told.ahead_ns) / 1e9
        if abs(behind_s) > max(0.5, 3 * told.within_s):
            text += f"; its calendar is {abs(behind_s):.3g} s {'behind' if behind_s > 0 else 'ahead'}"
    return text


def _copy(source: Path, target: Path) -> None:
    """What a run recorded; reports and what a script wrote beside it stay where they are."""
    raw = source / "raw"
    found = [*files_of(source), source / "system.sqlite", source / runfile.NAME]
    found += [path.with_name(path.name + "-wal") for path in found if path.suffix == ".sqlite"]
    found += sorted(raw.iterdir()) if raw.is_dir() else []
    for path in found:
        if path.is_file() and not path.is_symlink():
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
