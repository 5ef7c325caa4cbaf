"""The whole chain in plain functions: observe a command, read it, examine it, publish what was found."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from hotloop.diagnose import Evidence, Limits, bottleneck, diagnose, doubt, evidence_of, verdict
from hotloop.errors import UsageError
from hotloop.findings import Finding
from hotloop.footprint.watch import MemoryWatch
from hotloop.launch.command import Outcome, run_command
from hotloop.launch.guard import Guard
from hotloop.launch.machine import facts
from hotloop.launch.oom_kills import oom_kills, since
from hotloop.launch.system import Sampler
from hotloop.launch.throwaway import Throwaway
from hotloop.measure import measure
from hotloop.measure.jobs import main_job
from hotloop.measure.others import core_time_got
from hotloop.measure.steps import Steps
from hotloop.phases import PHASES
from hotloop.record.publish import write_text_atomic
from hotloop.record.read import open_recording
from hotloop.record.recording import Recording
from hotloop.record.store import Store
from hotloop.remedy.source.in_force import InForce
from hotloop.report import html, json, model
from hotloop.report.ranks import lead

#: What ``python -m`` runs and what a shell runs, to name a run folder after the script and not after the
#: interpreter.
_INTERPRETERS = re.compile(r"^(python[\d.]*|torchrun|accelerate|launch|sh|bash|env|uv|run|-.*|.*=.*)$")


@dataclass(frozen=True, kw_only=True)
class Examination:
    """A recording, measured and diagnosed. ``steps`` is the rank the verdict speaks about."""

    recording: Recording
    ranks: tuple[Steps, ...]
    findings: tuple[Finding, ...]
    bottleneck: str
    verdict: str

    @property
    def evidence(self) -> Evidence | None:
        """The run as rules and predictions see it, None where nothing trained."""
        return _evidence(self.recording, self.ranks, Limits())


def new_run_folder(out: Path | None, command: Sequence[str]) -> Path:
    """The folder of a new run, created. An existing one with something in it is refused.

    Where the working folder cannot be written and no other was asked for, it is a temporary folder.
    """
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{_name(command)}"
    if out is not None:
        return _created(out)
    try:
        return _created(_free(Path("hotloop-runs") / name))
    except UsageError:
        return _created(Path(tempfile.gettempdir()) / f"hotloop-{os.getpid()}" / name)


def _created(folder: Path) -> Path:
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty", hint="give --out a new folder, or remove that one")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "raw").mkdir()
    except OSError as error:
        raise UsageError(
            f"cannot write the run folder {folder}: {error.strerror}",
            hint="give --out a folder that can be written",
        ) from error
    return folder.resolve()


def observe(
    command: Sequence[str],
    folder: Path,
    *,
    steps: int | None = None,
    profile: bool = False,
    memory: bool = False,
    memory_every: int | None = None,
    env: Mapping[str, str] | None = None,
    patch: InForce | None = None,
    watch_tick: Callable[[], None] | None = None,
    stdout: IO[str] | None = None,
    stderr: IO[str] | None = None,
    apart: Throwaway | None = None,
    guard: Guard | None = None,
) -> Outcome:
    """Run the command under observation; the recording lies in ``folder`` when it returns.

    ``memory`` watches closely what grows (slows the command down); ``memory_every`` says a line on standard
    error every so many steps. ``env`` is added to the command's environment (remedies, interventions);
    ``patch`` is in force in it; ``watch_tick`` is called once or twice a second. With ``apart`` the command's
    writes are thrown away; ``guard`` ends it where it has to.
    """
    store = Store(folder)
    machine, kills = facts(with_gpus=False), oom_kills()
    put: Mapping[str, str] = {}
    more: dict[str, Any] = {}
    if patch is not None:
        put, more = patch.put(folder), {"patch": {"files": list(map(str, patch.files))}}
    store.begin(command, machine, **more)
    sampler = Sampler(closely=memory)
    watch = MemoryWatch(machine, say=_say, every=memory_every)

    def tick(pid: int) -> None:
        if guard is not None:
            guard.look(pid)
        sampler.sample(pid, extra_pids=store.living_pids)
        samples = sampler.drain()
        store.take_in(samples)
        trainer, step = store.progress
        watch.look(*samples, pid=trainer, step=step)
        if watch_tick is not None:
            watch_tick()

    try:
        outcome = run_command(
            command,
            raw_dir=folder / "raw",
            src_dir=Path(__file__).resolve().parents[1],
            steps=steps,
            profile=profile,
            env_extra={**(env or {}), **put, **({"HOTLOOP_MEMORY": "1"} if memory else {})},
            on_tick=tick,
            stdout=stdout,
            stderr=stderr,
            prefix=apart.prefix if apart is not None else (),
        )
    except UsageError:
        if patch is not None:
            patch.take_back(folder)
        store.discard()
        raise
    store.add_machine(oom_kills=since(kills))
    store.add_machine(gpus=sampler.gpu_facts())  # not earlier: a driver may take seconds to answer
    store.take_in(sampler.drain())
    store.finish(outcome)
    return replace(outcome, warnings=(*outcome.warnings, *store.warnings))


def _say(words: str) -> None:
    prefix = "" if words.startswith("[") else "hotloop: "
    print(prefix + words, file=sys.stderr, flush=True)


def read(run: Path) -> Recording:
    """Open a run folder (or one rank's file)."""
    return open_recording(run)


def examine(recording: Recording, limits: Limits | None = None) -> Examination:
    """Measure every rank and run every rule; of several trainings, on the longest."""
    got = core_time_got(recording)
    measured = [
        measure(process, recording.machine, got=got, folder=recording.folder) for process in recording.ranks
    ]
    recording, ranks = main_job(recording, measured)
    evidence = _evidence(recording, ranks, limits or Limits())
    if evidence is None:
        why = _without_torch(recording.without_torch)
        return Examination(
            recording=recording, ranks=(), findings=(), bottleneck="none", verdict=verdict(None, (), why)
        )
    findings = diagnose(evidence)
    return Examination(
        recording=recording,
        ranks=ranks,
        findings=findings,
        bottleneck=bottleneck(evidence.steps, evidence.first_pass),
        verdict=verdict(evidence.steps, findings, doubt(evidence), evidence.first_pass),
    )


def _without_torch(interpreters: Sequence[str]) -> str:
    return f"{' and '.join(interpreters[:2])} could not import torch" if interpreters else ""


def _evidence(recording: Recording, ranks: tuple[Steps, ...], limits: Limits) -> Evidence | None:
    if not ranks:
        return None
    return evidence_of(recording, lead(ranks) or ranks[0], ranks, limits)


def build_report(examination: Examination) -> dict[str, Any]:
    """The report dictionary (``report.json``, schema 1)."""
    return model.build(
        examination.recording,
        examination.ranks,
        examination.findings,
        bottleneck=examination.bottleneck,
        verdict=examination.verdict,
    )


def publish(examination: Examination, folder: Path) -> dict[str, Any]:
    """Write ``report.json``, ``report.html`` and the plain steps tables into the run folder."""
    report = build_report(examination)
    write_text_atomic(folder / "report.json", json.render(report))
    write_text_atomic(folder / "report.html", html.render(report))
    store = Store(folder)
    for steps in examination.ranks:
        store.write_steps(steps.rank, step_columns(steps), pid=steps.pid)
    return report


def step_columns(steps: Steps) -> Mapping[str, np.ndarray[Any, Any]]:
    """The steps table as columns: start, end and every phase in seconds (stored as ns), samples."""
    return {
        "start_s": steps.start_s,
        "end_s": steps.end_s,
        "samples": np.nan_to_num(steps.samples).astype(np.int32),
        "steady": steps.steady,
        **{phase: steps.phases[:, i] for i, phase in enumerate(PHASES)},
    }


def _name(command: Sequence[str]) -> str:
    scripts = [word for word in command if word.endswith(".py")]
    for word in scripts or command:  # an option of a launcher may have a value of its own
        stem = Path(word).name
        if not _INTERPRETERS.match(stem):
            return re.sub(r"[^\w.-]+", "_", stem.removesuffix(".py"))[:40] or "run"
    return "run"


def _free(folder: Path) -> Path:
    candidate, number = folder, 2
    while candidate.exists():
        candidate, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return candidate
