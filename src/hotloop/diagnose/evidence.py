"""What a rule sees, and what a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from hotloop.diagnose.first_pass import FirstPass, first_pass
from hotloop.diagnose.limits import Limits
from hotloop.findings import Finding
from hotloop.measure.others import core_time_got, others_beside, span_s
from hotloop.measure.steps import Floats, Steps
from hotloop.record.recording import Note, Process, Recording

#: Fewer samples of a process, those of the first steps left out, do not show what it used of the cores.
_LEAST_SAMPLES: Final = 4
_BEGIN_S: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One run as the rules see it, made by ``evidence_of``. ``steps`` is the rank to speak about
    (``report.ranks.lead``).
    """

    recording: Recording
    process: Process  # the one that ``steps`` are of
    steps: Steps
    ranks: tuple[Steps, ...]
    limits: Limits
    span: tuple[float, float]  # of training, in seconds since the command started, as the launcher samples
    got: float  # of the core time that the training thread wanted, what it got; 1 not known
    workers_got: float  # of what its workers wanted; every ``on_cpu_ratio`` is divided by that of its process
    others_cores: float | None  # of this run's, that other programs kept busy; None not known
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
    def threads(self) -> float:
        """Threads that torch computes with on a CPU, no more than there are cores."""
        torch = self.steps.facts.get("torch") or {}
        return min(self.cores, float(torch.get("threads") or self.cores))

    @property
    def used_cores(self) -> float | None:
        """Cores that the training process kept busy over the span, None with too few samples."""
        seconds, used = self.sampled(self.process.pid, "cpu_ratio")
        inside = used[seconds > self.span[0] + _BEGIN_S]
        return float(inside.mean()) if len(inside) >= _LEAST_SAMPLES else None

    @property
    def stolen(self) -> float:
        """Share of the cores' time that the hypervisor gave to other machines."""
        _, seen = self.sampled(None, "steal_ratio")
        return float(seen.mean()) if len(seen) else 0.0

    @property
    def enough(self) -> bool:
        """Whether the run is long enough to speak about a rate."""
        steps, limits = self.steps, self.limits
        return steps.num_steps >= limits.min_steps and steps.span_s >= limits.min_span_s

    @property
    def crowded(self) -> bool:
        """Whether other programs took a part of this run's cores that counts."""
        taken = self.others_cores
        return taken is not None and taken >= self.limits.others_ratio * self.cores

    def notes(self, kind: str) -> list[Note]:
        """The notes of this kind that this process wrote."""
        return self.process.notes.get(kind, [])

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
    process = next(one for one in recording.ranks if one.pid == steps.pid)
    span, sampled = span_s(recording, process, steps), recording.process_system
    return Evidence(
        recording=recording,
        process=process,
        steps=steps,
        ranks=ranks,
        limits=limits,
        span=span,
        got=core_time_got([sampled.get(process.pid, {})], *span),
        workers_got=core_time_got([sampled.get(worker.pid, {}) for worker in process.workers], *span),
        others_cores=others_beside(recording.node_of(process.pid), *span),
        first_pass=first_pass(steps, limits),
    )


Rule = Callable[[Evidence], Iterable[Finding]]
