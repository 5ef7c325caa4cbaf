"""What a rule sees, and what a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hotloop.diagnose.first_pass import FirstPass, first_pass
from hotloop.diagnose.limits import Limits
from hotloop.findings import Finding
from hotloop.measure.steps import Steps
from hotloop.record.recording import Recording


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
    def on_accelerator(self) -> bool:
        """Whether the model was on an accelerator."""
        return bool(self.steps.facts.get("accelerator"))


def evidence_of(recording: Recording, steps: Steps, ranks: tuple[Steps, ...], limits: Limits) -> Evidence:
    """The evidence on one rank, with what every rule asks for found out once."""
    return Evidence(
        recording=recording, steps=steps, ranks=ranks, limits=limits, first_pass=first_pass(steps, limits)
    )


Rule = Callable[[Evidence], Iterable[Finding]]
