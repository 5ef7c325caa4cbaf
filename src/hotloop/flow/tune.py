"""``tune``: try what the diagnosis asks for, keep what is faster by more than the noise, prove that.

The search (``hotloop.tune``) launches nothing itself: it asks the ``Bench`` made here to run a trial and to
examine its recording.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hotloop.compare.run import Trace, trace_of
from hotloop.diagnose.repeating import generators
from hotloop.flow.examine import Examination, examine, read
from hotloop.flow.observe import new_run_folder, observe_quietly, throwing_away
from hotloop.flow.on_ray import nodes_of_ray
from hotloop.flow.sure import Sure
from hotloop.launch.guard import Guard
from hotloop.record.publish import write_bytes_atomic, write_text_atomic
from hotloop.record.recording import Recording
from hotloop.remedy import catalogue
from hotloop.tune import outcome, sweep
from hotloop.tune.candidate import Limits
from hotloop.tune.journal import MOST_BYTES, NAME, Journal, subject
from hotloop.tune.launching import Launcher, Say
from hotloop.tune.search import Search
from hotloop.tune.trial import Bench, Examined, Ran, Request, live


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What is tuned and within which limits."""

    command: list[str]
    limits: Limits
    budget_s: float
    sweep: str | None
    in_place: bool
    say: Say
    ray: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """tune.json and its words."""

    document: dict[str, Any]
    words: str


def tuning_folder(out: Path | None, command: Sequence[str]) -> tuple[Path, bool]:
    """The folder of the tuning, and whether it is new."""
    if out is not None and (out / NAME).is_file():
        return out.resolve(), False
    folder = new_run_folder(out, command, "tune-")
    (folder / "raw").rmdir()  # trials have their own
    return folder, True


def drop_if_empty(folder: Path) -> None:
    """Leave no folder in which no trial came to an end."""
    journal = folder / NAME
    if not (journal.exists() and journal.read_text().count("\n") > 1):
        shutil.rmtree(folder, ignore_errors=True)


def tune(asked: Tuning, folder: Path) -> Answer:
    """Search, and write tune.json and the patches into ``folder``. Its journal is gone on with."""
    here = Bench(run=partial(_run, asked.command, asked.in_place), examine=_examined)
    with nodes_of_ray(here) if asked.ray else nullcontext(here) as bench:
        return _tuned(asked, folder, bench)


def _tuned(asked: Tuning, folder: Path, bench: Bench) -> Answer:
    heading: dict[str, Any] = {"command": asked.command, "allow": asked.limits.allow, "sweep": asked.sweep}
    heading["place"] = f"{bench.nodes} of Ray's nodes" if asked.ray else "this machine"
    journal = Journal(folder, {**heading, **subject(asked.command)}, bench.nodes)
    if not asked.in_place:
        with throwing_away(asked.command, folder, way_out="add --in-place"):
            pass  # only whether it can be
    with closing(journal):
        launcher = Launcher(
            bench=bench,
            journal=journal,
            folder=folder,
            budget_s=asked.budget_s,
            limits=asked.limits,
            say=asked.say,
            command=asked.command,
        )
        answer = _sweep(asked, launcher) if asked.sweep else _search(asked, launcher, folder)
    write_text_atomic(folder / "tune.json", json.dumps(answer.document, indent=2) + "\n")
    return answer


def _sweep(asked: Tuning, launcher: Launcher) -> Answer:
    swept = sweep.sweep(launcher)
    document = sweep.to_json(swept, launcher, asked.command)
    return Answer(document=document, words=sweep.render(swept))


def _search(asked: Tuning, launcher: Launcher, folder: Path) -> Answer:
    tuned = Search(launcher=launcher).run()
    written, put = None, None
    if tuned.best:
        patches = launcher.patches
        assert patches is not None  # there was a first run
        written = patches.write(tuned.best)
        write_text_atomic(folder / "tune.patch", written.diff)
        if in_force := patches.in_force(tuned.best):
            put = folder / outcome.IN_FORCE
            write_bytes_atomic(put, in_force.diff)
    return Answer(
        document=outcome.to_json(tuned, asked.command, written, put),
        words=outcome.render(tuned, asked.command, written, folder, put),
    )


# -- a trial ---------------------------------------------------------------------------------------------


def _run(command: list[str], in_place: bool, request: Request) -> Ran:
    """One launch, its output in its folder, its writes dropped."""
    where = request.folder
    guard = Guard(
        timeout_s=request.timeout_s, stop_s=request.stop_s, most_bytes=request.most_bytes, disk=where.parent
    )
    env = catalogue.environment(live(request.arm)) | {"HOTLOOP_DRAWS": "1"}
    env |= {"HOTLOOP_EVIDENCE": "1"} if request.evidence else {}
    env |= {"HOTLOOP_PERTURB": "1"} if request.perturbed else {}
    watched: dict[str, Any] = {"env": env}
    sure = Sure(where, lambda _: None, passes=2)
    if request.stop_s:  # the first run, which ends sooner where its verdict stands after an epoch
        watched = {"env": env | sure.env, "watch_tick": sure.tick}
    kept = {"steps": request.steps, "patch": request.patch, "throw_away": not in_place, "guard": guard}
    with closing(sure):
        done, words = observe_quietly(command, where, **kept, **watched)
    return Ran(
        exit_code=done.exit_code,
        wall_s=done.wall_s,
        ended_for=done.ended_for or ("" if done.started else "its writes could not be kept apart"),
        started=done.started,
        stopped=guard.stopped or bool(sure.why),
        interrupted=done.interrupted,
        peak_bytes=guard.peak_bytes,
        last_words=words,
    )


def _examined(where: Path) -> Examined:
    """A trial's recording, read."""
    found = examine(read(where))
    steps = found.lead
    evidence = found.evidence if steps is not None and steps.num_steps else None
    notes = [note for rank in found.recording.ranks for note in rank.notes.get("remedy", ())]
    patch = found.recording.patch
    return Examined(
        evidence=evidence,
        findings=found.findings,
        applied={str(note["id"]): str(note.get("status")) for note in notes},
        draws=generators(evidence) if evidence is not None else (),
        crowded=evidence is not None and evidence.crowded,
        files=_files(found.recording),
        missed=patch.missed if patch is not None else (),
        trace=_trace(found),
    )


def _trace(found: Examination) -> Trace | None:
    process, steps = found.process, found.lead
    if steps is None or process is None or not process.notes.get("evidence"):
        return None
    return trace_of(process, steps)


def _files(recording: Recording) -> tuple[Path, ...]:
    """The user's small files of code and configuration that the run found there, and did not write."""
    kinds = ("source", "config")
    notes = [note for rank in recording.ranks for kind in kinds for note in rank.notes.get(kind, ())]
    found = []
    for path in sorted({Path(str(note["file"])) for note in notes if note.get("file")}):
        with suppress(OSError):
            facts = path.stat()
            if facts.st_size < MOST_BYTES and facts.st_mtime < recording.start_unix_s:
                found.append(path)
    return tuple(found)
