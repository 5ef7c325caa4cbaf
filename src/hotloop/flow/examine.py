"""``report``: read a recording, measure every rank, run the rules, publish what was found."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import pickle
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from hotloop.diagnose.bottleneck import as_counted, bottleneck, verdict
from hotloop.diagnose.diagnose import diagnose, doubt
from hotloop.diagnose.evidence import Evidence, evidence_of
from hotloop.diagnose.limits import Limits
from hotloop.diagnose.rollouts import acts
from hotloop.findings import Finding
from hotloop.launch.machine import usable_cores
from hotloop.measure.measure import main_job, measure
from hotloop.measure.steps import Steps, core_time_got
from hotloop.phases import PHASES
from hotloop.record.glimpse import glimpse
from hotloop.record.publish import write_text_atomic
from hotloop.record.read import open_recording as read
from hotloop.record.recording import Process, Recording
from hotloop.report import html, json, model
from hotloop.report.ranks import lead
from hotloop.report.words import may_have_trained

__all__ = ["Examination", "build_report", "examine", "publish", "read"]


@dataclass(frozen=True, kw_only=True)
class Examination:
    """A recording, measured and diagnosed."""

    recording: Recording
    evidence: Evidence | None  # the run as rules and predictions see it, None where nothing trained
    findings: tuple[Finding, ...]
    bottleneck: str
    verdict: str

    @property
    def ranks(self) -> tuple[Steps, ...]:
        """Every rank of the training, measured."""
        return self.evidence.ranks if self.evidence is not None else ()

    @property
    def lead(self) -> Steps | None:
        """The rank that the verdict is about, None where nothing trained."""
        return self.evidence.steps if self.evidence is not None else None

    @property
    def process(self) -> Process | None:
        """The process of that rank."""
        return self.evidence.process if self.evidence is not None else None


def examine(recording: Recording) -> Examination:
    """Measure every rank and run every rule; of several trainings, on the longest."""
    got = {pid: core_time_got([sampled]) for pid, sampled in recording.process_system.items()}
    measured = measured_ranks(recording.ranks, got)
    recording, ranks = main_job(recording, measured)
    if not ranks:
        why = _without_torch(recording)
        return Examination(
            recording=recording, evidence=None, findings=(), bottleneck="none", verdict=verdict(None, (), why)
        )
    if any(steps.partly for steps in ranks):
        whole = sum(not steps.partly for steps in ranks)
        told = f"full evidence of {whole} of {len(ranks):,} ranks: rank 0, and those that stand out; "
        told += "of the others a few stretches were read, which may lack what comes rarely"
        recording = replace(recording, warnings=(*recording.warnings, told))
    leads = lead(ranks) or ranks[0]
    node = recording.node_of(leads.pid)
    loaded = tuple(one.loaded() if one.pid == leads.pid else one for one in recording.ranks)
    recording = replace(recording, machine=node.machine, system=node.system, ranks=loaded)
    evidence = evidence_of(recording, leads, ranks, Limits())
    findings, acting, counted = diagnose(evidence), acts(evidence), as_counted(evidence)
    moved = {name: counted.share(name) - leads.share(name) for name in ("other", "data_wait")}
    return Examination(
        recording=recording,
        evidence=evidence,
        findings=findings,
        bottleneck=bottleneck(counted, evidence.first_pass, acts=acting),
        verdict=verdict(counted, findings, doubt(evidence), evidence.first_pass, acts=acting, moved=moved),
    )


def _without_torch(recording: Recording) -> str:
    """Why no process was seen, where that is known."""
    if found := recording.without_torch:
        return f"{' and '.join(found[:2])} could not import torch"
    if may_have_trained(recording.exit_code, recording.command):
        return ""
    return "the command failed before it imported torch, and what it printed says why"


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
    """Write ``report.json`` and ``report.html`` into the run folder.

    On a full disk what was found is still worth reading: the report is returned, and standard error says so.
    """
    report = build_report(examination)
    try:
        write_text_atomic(folder / "report.json", json.render(report))
        write_text_atomic(folder / "report.html", html.render(report))
    except OSError as error:
        print(f"hotloop: the report could not be written to {folder}: {error.strerror}", file=sys.stderr)
    return report


# Every rank of a run, measured


#: Fewer rows are measured before other processes have begun.
_MANY_ROWS: Final = 1 << 20

#: All of so many ranks, or of so many rows, is measured.
_WHOLE_RANKS, _WHOLE_ROWS = 16, 1 << 24
#: Of larger runs, of each rank: stretches, and the rows of them together.
_STRETCHES, _GLIMPSE = 3, 3 << 13
#: Of those furthest from the usual so many, that are so far from it, in parts of a step.
_ODD, _ODD_RATIO = 8, 0.05

_ranks: Sequence[Process] = ()
_ready: Callable[[Process], Process] = Process.loaded
#: Where the next child writes in the file that they share.
_end: Any = None


def measured_ranks(ranks: Sequence[Process], got: Mapping[int, float]) -> list[Steps]:
    """The Steps of each. Of many long ones a few stretches are measured of each, and all rows of those only
    that these single out.
    """
    if len(ranks) <= _WHOLE_RANKS or sum(process.num_rows for process in ranks) <= _WHOLE_ROWS:
        return _measured(ranks, got, Process.loaded)
    found = _measured(ranks, got, partial(glimpse, count=_STRETCHES, most=_GLIMPSE))
    wanted = [at for at in _singled_out(found) if found[at].partly]
    while wanted:
        whole = _measured([ranks[at] for at in wanted], got, Process.loaded)
        for at, steps in zip(wanted, whole, strict=True):
            found[at] = steps
        main = lead(found)
        wanted = [at for at, steps in enumerate(found) if steps is main and steps.partly]
    return found


def _singled_out(found: Sequence[Steps]) -> set[int]:
    """The first rank; by their own work per step the fastest, the middle one and the slowest; odd ones."""
    table = np.array([[steps.per_step(name) for name in PHASES] for steps in found])
    own = [steps.own_s for steps in found]
    apart = np.abs(table - np.median(table, axis=0)).sum(axis=1)
    odd = np.argsort(apart)[-_ODD:]
    odd = odd[apart[odd] > _ODD_RATIO * np.median([steps.step_s for steps in found])]
    return {0, *np.argsort(own)[[0, len(own) // 2, -2, -1]].tolist(), *odd.tolist()}


def _measured(
    ranks: Sequence[Process], got: Mapping[int, float], ready: Callable[[Process], Process]
) -> list[Steps]:
    """The Steps of each, its rows made ready. Children are forked, and find the rows in the memory that they
    share with this process, or on disk; where it has threads, or one of them dies, it measures by itself.

    The columns of all ranks lie in one file without a name: memory holds what is read of them.
    """
    count = min(len(ranks), int(usable_cores()))
    rows = sum(process.num_rows for process in ranks)
    if count > 1 and rows >= _MANY_ROWS and threading.active_count() == 1:
        context = multiprocessing.get_context("fork")
        try:
            with tempfile.TemporaryFile() as file:
                begin = (ranks, ready, context.Value("q", 0))
                with ProcessPoolExecutor(count, context, _begin, begin) as pool:
                    one = partial(_one, got=dict(got), file=file.fileno())
                    told = list(pool.map(one, range(len(ranks))))
                columns = memoryview(mmap.mmap(file.fileno(), 0))
            each = ((data, [columns[at : at + size] for at, size in places]) for data, places in told)
            return [pickle.loads(data, buffers=parts) for data, parts in each]  # nosec B301
        except (OSError, BrokenProcessPool):
            pass
    return [measure(ready(process), got=got) for process in ranks]


def _begin(ranks: Sequence[Process], ready: Callable[[Process], Process], end: Any) -> None:
    global _ranks, _ready, _end
    _ranks, _ready, _end = ranks, ready, end


def _one(number: int, got: Mapping[int, float], file: int) -> tuple[bytes, list[tuple[int, int]]]:
    """A rank's Steps without its columns, and where these lie in the file."""
    columns: list[pickle.PickleBuffer] = []
    steps = measure(_ready(_ranks[number]), got=got)
    data = pickle.dumps(steps, protocol=5, buffer_callback=columns.append)
    views = [column.raw() for column in columns]
    with _end.get_lock():
        at = _end.value
        _end.value += sum(-len(view) % 64 + len(view) for view in views)
    places = []
    for view in views:
        os.posix_fallocate(file, at, max(1, len(view)))  # a full disk is an error here, and a signal later
        os.pwrite(file, view, at)
        places.append((at, len(view)))
        at += -len(view) % 64 + len(view)
    return data, places
