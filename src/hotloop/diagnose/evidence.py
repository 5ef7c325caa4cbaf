"""What a rule sees, and what a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.diagnose.first_pass import FirstPass, first_pass
from hotloop.diagnose.limits import Limits
from hotloop.findings import Finding
from hotloop.measure.steps import Floats, Steps
from hotloop.record.recording import Note, Process, Recording


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One run as the rules see it, made by ``evidence_of``. ``steps`` is the rank to speak about
    (``report.ranks.lead``).
    """

    recording: Recording
    steps: Steps
    ranks: tuple[Steps, ...]
    limits: Limits
    first_pass: FirstPass | None  # over the data, where later ones find kept what it waited for

    @property
    def machine(self) -> Mapping[str, Any]:
        """Facts of the machine, see ``launch.machine``."""
        return self.recording.machine

    @property
    def cores(self) -> float:
        """Cores this run may use: affinity and cgroup quota together."""
        return float(self.machine.get("cores", 1))

    @property
    def enough(self) -> bool:
        """Whether the run is long enough to speak about a rate."""
        steps, limits = self.steps, self.limits
        return steps.num_steps >= limits.min_steps and steps.span_s >= limits.min_span_s

    @property
    def process(self) -> Process | None:
        """The process of the rank to speak about."""
        return next((one for one in self.recording.ranks if one.pid == self.steps.pid), None)

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """Its DataLoader workers."""
        return tuple(worker.pid for worker in self.process.workers) if self.process is not None else ()

    def notes(self, kind: str) -> list[Note]:
        """The notes of this kind that this process wrote."""
        return self.process.notes.get(kind, []) if self.process is not None else []

    @property
    def span(self) -> tuple[float, float]:
        """The training span in seconds since the command started, as the launcher's samples count."""
        process = self.process
        offset = (process.start_ns - self.recording.start_ns) / 1e9 if process is not None else 0.0
        return self.steps.span[0] + offset, self.steps.span[1] + offset

    def sampled(self, pid: int | None, *names: str) -> tuple[Floats, ...]:
        """The times, and these columns, of what the launcher sampled of a process in the training span, all
        of them known; of the machine for None. Empty where a column was not sampled.
        """
        recording = self.recording
        columns = recording.system if pid is None else recording.process_system.get(pid, {})
        wanted = ("t_s", *names)
        if not set(wanted) <= set(columns):
            return tuple(np.zeros(0) for _ in wanted)
        found = [np.asarray(columns[name], float) for name in wanted]
        start, end = self.span
        inside = (found[0] >= start) & (found[0] <= end) & np.isfinite(found).all(axis=0)
        return tuple(values[inside] for values in found)

    @property
    def on_accelerator(self) -> bool:
        """Whether the model was on an accelerator."""
        return bool(self.steps.facts.get("accelerator"))


def evidence_of(recording: Recording, steps: Steps, ranks: tuple[Steps, ...], limits: Limits) -> Evidence:
    """The evidence on one rank, with what every rule asks for found out once."""
    return Evidence(
        recording=recording, steps=steps, ranks=ranks, limits=limits, first_pass=first_pass(steps, limits)
    )


Rule = Callable[[Evidence], Iterable[Finding]]
