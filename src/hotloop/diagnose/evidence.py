"""What a rule sees, and what a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hotloop.diagnose.limits import Limits
from hotloop.findings import Finding
from hotloop.measure.steps import Steps
from hotloop.record.recording import Recording


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One run as the rules see it. ``steps`` is the rank to speak about (``report.ranks.lead``)."""

    recording: Recording
    steps: Steps
    ranks: tuple[Steps, ...]
    limits: Limits

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


Rule = Callable[[Evidence], Iterable[Finding]]
