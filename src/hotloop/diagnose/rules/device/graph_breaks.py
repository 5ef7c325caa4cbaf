"""torch.compile cuts the model into pieces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hotloop.diagnose.causes import cause
from hotloop.diagnose.device_state import launching_idle_s
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding

ID = "device/graph-breaks"


def check(evidence: Evidence) -> Iterable[Finding]:
    """Graph breaks with their reasons; a cost is only claimed by the idle device of a launch-bound run."""
    steps, limits = evidence.steps, evidence.limits
    if steps.graph_breaks <= 0:
        return
    reasons = _reasons(steps.facts.get("compile"))
    bound = launching_idle_s(steps) >= limits.launch_bound_ratio * steps.span_s > 0
    many = f"{steps.graph_breaks} place{'s' if steps.graph_breaks > 1 else ''}"
    yield cause(
        evidence,
        ID,
        message=f"torch.compile leaves the graph in {many}: Python runs there, and nothing is fused across.",
        advice="Remove .item(), print and data-dependent branches from forward; see TORCH_LOGS=graph_breaks.",
        numbers=[f"{count} x {reason}" for reason, count in reasons[:5]]
        or [f"{steps.graph_breaks} graph breaks"],
        severity="low" if bound and evidence.on_accelerator else "info",
        data={"graph_breaks": steps.graph_breaks},
    )


def _reasons(note: object) -> list[tuple[str, int]]:
    breaks = note.get("graph_breaks") if isinstance(note, Mapping) else None
    if not isinstance(breaks, Mapping):
        return []
    return sorted(((_short(str(k)), int(v)) for k, v in breaks.items()), key=lambda item: -item[1])


def _short(reason: str) -> str:
    first = reason.strip().splitlines()[0] if reason.strip() else "unknown reason"
    return first[:160]
