"""``report``: read a recording, measure every rank, run the rules, publish what was found."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.diagnose.bottleneck import as_counted, bottleneck, verdict
from hotloop.diagnose.diagnose import diagnose
from hotloop.diagnose.doubt import doubt
from hotloop.diagnose.evidence import Evidence, evidence_of
from hotloop.diagnose.limits import Limits
from hotloop.diagnose.rollouts import acts
from hotloop.findings import Finding
from hotloop.flow.ranks import measured_ranks
from hotloop.measure.jobs import main_job
from hotloop.measure.others import core_time_got
from hotloop.measure.steps import Steps
from hotloop.phases import PHASES
from hotloop.record.publish import write_text_atomic
from hotloop.record.read import open_recording as read
from hotloop.record.recording import Process, Recording
from hotloop.report import html, json, model
from hotloop.report.absence import may_have_trained
from hotloop.report.ranks import lead

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
    return Examination(
        recording=recording,
        evidence=evidence,
        findings=findings,
        bottleneck=bottleneck(counted, evidence.first_pass, acts=acting),
        verdict=verdict(counted, findings, doubt(evidence), evidence.first_pass, acts=acting),
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


def step_columns(steps: Steps) -> Mapping[str, np.ndarray[Any, Any]]:
    """The steps table as columns: start, end and every phase in seconds, samples."""
    return {
        "start_s": steps.start_s,
        "end_s": steps.end_s,
        "samples": np.nan_to_num(steps.samples).astype(np.int32),
        "steady": steps.steady,
        **{phase: steps.phases[:, i] for i, phase in enumerate(PHASES)},
    }
