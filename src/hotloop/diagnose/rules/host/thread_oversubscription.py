"""More computing threads than cores hold each other up."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause, measurable
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import flag
from hotloop.findings import Finding
from hotloop.measure.steps import Steps
from hotloop.units import share

ID = "host/thread-oversubscription"

_COMPUTING = ("forward", "backward", "optimizer")


def check(evidence: Evidence) -> Iterable[Finding]:
    """Intra-op threads of all ranks against the usable cores; the cost is computing time off the CPU."""
    steps, limits = evidence.steps, evidence.limits
    threads = flag(steps, "threads")
    if not measurable(evidence) or not isinstance(threads, int) or "cores" not in evidence.machine:
        return
    ranks = max(1, sum(1 for rank in evidence.ranks if rank.num_steps > 0))
    total = threads * ranks
    computing = sum(steps.share(phase) for phase in _COMPUTING)
    if evidence.on_accelerator or threads <= 1 or computing < limits.worth_fixing_ratio:
        return
    if total <= limits.threads_per_core * evidence.cores:
        return
    each = max(1, int(evidence.cores // ranks))
    off_cpu = _off_cpu_ratio(steps)
    who = f"{ranks} ranks x {threads} threads" if ranks > 1 else f"{threads} threads"
    yield cause(
        evidence,
        ID,
        message=f"PyTorch computes with {who} on {evidence.cores:g} cores: the threads hold each other up.",
        advice=f"Set OMP_NUM_THREADS={each} (or torch.set_num_threads({each})) for each training process.",
        numbers=[
            f"{total} computing threads on {evidence.cores:g} usable cores",
            f"the training thread was off the CPU for {share(off_cpu)} of the computing time",
            f"forward, backward and optimizer take {share(computing)} of the training span",
        ],
        cost_s=off_cpu * computing * steps.step_s,
        severity=None if off_cpu > 0 else "info",
        remedies=("num-threads",),
        data={"threads": total, "cores": evidence.cores, "suggested": each},
    )


def _off_cpu_ratio(steps: Steps) -> float:
    """Share of the sampled computing time in which the training thread waited for a core."""
    lines = [line for line in steps.lines if line.phase in _COMPUTING]
    total = sum(line.seconds for line in lines)
    off = sum(line.seconds * (1 - min(1.0, line.on_cpu_ratio)) for line in lines)
    return off / total if total > 0 else 0.0
