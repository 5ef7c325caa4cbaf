"""One side of a comparison: a recording, measured, with the evidence of its training processes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotloop.compare.trace import Trace, trace_of
from hotloop.errors import UsageError
from hotloop.findings import Finding
from hotloop.foreign import clean
from hotloop.measure import measure
from hotloop.measure.jobs import main_job
from hotloop.measure.steps import Steps
from hotloop.record.read import open_recording
from hotloop.record.recording import Process, Recording


@dataclass(frozen=True, kw_only=True)
class Run:
    """``findings`` are those of the rules, where the caller had them run."""

    label: str
    recording: Recording
    ranks: tuple[Steps, ...]
    traces: tuple[Trace, ...]
    findings: tuple[Finding, ...] = field(default=())

    @property
    def lead(self) -> Steps:
        """The rank with the most steps: in a job of several they wait for each other."""
        return max(self.ranks, key=lambda steps: (steps.num_steps, -steps.rank))

    @property
    def trace(self) -> Trace:
        """The evidence of the leading rank."""
        return next(trace for trace in self.traces if trace.rank == self.lead.rank)

    @property
    def process(self) -> Process:
        """The leading rank's process."""
        return next(process for process in self.recording.ranks if process.pid == self.lead.pid)

    @property
    def command(self) -> str:
        """As it would be typed."""
        return shlex.join(self.recording.command)

    @property
    def applied(self) -> tuple[dict[str, Any], ...]:
        """The remedies that were in force, each with its last status."""
        last = {note["id"]: note for note in self.process.notes.get("remedy", ())}
        return tuple(last.values())


def run_of(path: Path, label: str = "") -> Run:
    """Read and measure a run folder. Raises UsageError where it holds no training."""
    return measured(open_recording(path), label or clean(path))


def measured(
    recording: Recording, label: str, ranks: Sequence[Steps] = (), findings: Sequence[Finding] = ()
) -> Run:
    """A recording as one side; ``ranks`` where it is measured already."""
    if not ranks:
        recording, ranks = main_job(recording, [measure(process) for process in recording.ranks])
    steps = tuple(one for one in ranks if one.num_steps)
    if not steps:
        ended = how_it_failed(recording)
        raise UsageError(
            f"{label} has no training step in it{f': {ended}' if ended else ''}",
            hint="compare runs of a command that trains for some steps",
        )
    by_pid = {process.pid: process for process in recording.ranks}
    return Run(
        label=label,
        recording=recording,
        ranks=steps,
        traces=tuple(trace_of(by_pid[one.pid], one) for one in steps),
        findings=tuple(findings),
    )


def how_it_failed(recording: Recording) -> str:
    """Why a run is not whole, "" where it is."""
    notes = [process.last("exit") for process in recording.ranks]
    raised = next((note for note in notes if note.get("exception")), {})
    if raised.get("exception") not in (None, "SystemExit", "KeyboardInterrupt"):
        message = str(raised.get("message") or "").strip().rpartition("\n")[2]
        return f"it ended with {raised['exception']}: {message}"[:200]
    if recording.exit_code:
        return f"it ended with exit code {recording.exit_code}"
    if recording.exit_code is None or not recording.complete:
        return "it was killed, or still runs"
    return ""


def ended_on_purpose(base: Run, candidate: Run) -> bool:
    """Whether the run with fewer steps has fewer because ``--steps`` asked for them."""
    if base.lead.num_steps == candidate.lead.num_steps:
        return False
    fewer = min(base, candidate, key=lambda run: run.lead.num_steps)
    return bool(fewer.process.last("exit").get("reason") == "steps")
