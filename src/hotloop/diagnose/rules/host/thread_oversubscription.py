"""More computing threads than cores hold each other up."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hotloop.diagnose.causes import at, cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.crowding import crowd, others_took, span_since_command
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import flag, set_at
from hotloop.findings import Finding
from hotloop.units import share

ID = "host/thread-oversubscription"
EFFORT = 0

_COMPUTING = ("forward", "backward", "optimizer")
#: A step with r threads per core was seen to take 1.2-1.7 (r = 1.5), 1.5-2 (2), 2.4-3 (4), 10 times (12)
#: as long as with as many threads as cores (CNN and MLP, 2 crowded cores, torch 2.13): sqrt(r) is below.
_SLOWDOWN_POWER = 0.5
#: Helper threads that use less than this of the process's CPU time have nothing to fight over.
_HELPERS_RATIO = 0.2


def check(evidence: Evidence) -> Iterable[Finding]:
    """Intra-op threads of all ranks against the usable cores, where the helper threads really compute."""
    steps, limits = evidence.steps, evidence.limits
    threads = flag(steps, "threads")
    if not enough(evidence) or not isinstance(threads, int) or "cores" not in evidence.machine:
        return
    ranks = max(1, sum(1 for rank in evidence.ranks if rank.num_steps > 0))
    total = threads * ranks
    computing = sum(steps.share(phase) for phase in _COMPUTING)
    if evidence.on_accelerator or threads <= 1 or computing < limits.worth_fixing_ratio:
        return
    helpers = _helpers_ratio(evidence)
    if total <= limits.threads_per_core * evidence.cores:
        yield from _held_up(evidence, threads, helpers)
        return
    each = max(1, int(evidence.cores // ranks))
    saved = 1 - (total / evidence.cores) ** -_SLOWDOWN_POWER
    fights = helpers is not None and helpers >= _HELPERS_RATIO
    where = set_at(steps, "threads", threads)
    who = f"{ranks} ranks x {threads} threads" if ranks > 1 else f"{threads} threads"
    yield cause(
        evidence,
        ID,
        message=f"PyTorch computes with {who} on {evidence.cores:g} cores: the threads hold each other up.",
        advice=(
            f"Set OMP_NUM_THREADS={each} (or torch.set_num_threads({each})) for each training process."
            if where is None
            else f"Call torch.set_num_threads({each}){at(where)}, or leave the call out and set "
            f"OMP_NUM_THREADS={each}, which it overrides."
        ),
        numbers=[
            f"{total} computing threads on {evidence.cores:g} usable cores",
            "what the helper threads use was not sampled"
            if helpers is None
            else f"helper threads use {share(helpers)} of the process's CPU time",
            f"forward, backward and optimizer take {share(computing)} of the training span",
            *(
                [f"saving assumed from the number of threads per core: {share(saved)} of that"]
                if fights
                else []
            ),
        ],
        cost_s=saved * computing * steps.step_s if fights else 0.0,
        where=where,
        severity=None if fights else "info",
        remedies=("threads",),
        data={"threads": total, "cores": evidence.cores, "suggested": each, "assumed": True},
    )


def _held_up(evidence: Evidence, threads: int, helpers: float | None) -> Iterable[Finding]:
    """Threads that are no more than the cores, where others hold the cores: every operation ends with its
    last thread, and the rest spin until that one had its turn. What one thread would take nobody saw.
    """
    steps, limits = evidence.steps, evidence.limits
    got = crowd(evidence, (steps.pid,)).run_ratio
    if str((steps.facts.get("env") or {}).get("OMP_WAIT_POLICY", "")).lower() == "passive":
        return  # nothing spins
    if got is None or got > limits.held_up_ratio or (helpers or 0.0) < _HELPERS_RATIO:
        return
    others = others_took(evidence) or 0.0
    workers = _workers_cores(evidence)
    if others + workers < limits.others_ratio * evidence.cores:
        return
    who = "other programs" if others > workers else "the loader's workers"
    yield cause(
        evidence,
        ID,
        message=f"{threads} threads share every operation while {who} hold cores: each waits for the last.",
        advice=(
            "Try OMP_NUM_THREADS=1 or OMP_WAIT_POLICY=PASSIVE, or leave the cores to this run; "
            "hotloop what-if threads=1 measures the first."
        ),
        numbers=[
            f"the training thread got {share(got)} of the core time it wanted",
            f"others kept {others:.1f} cores busy, loader workers {workers:.1f}, of {evidence.cores:g}",
            f"helper threads use {share(helpers or 0.0)} of the process's CPU time",
        ],
        severity="info",
        remedies=("threads",),
        data={"threads": threads, "cores": evidence.cores, "suggested": 1},
    )


def _workers_cores(evidence: Evidence) -> float:
    """Cores that this rank's loader workers keep busy."""
    loader = evidence.steps.train_loader()
    workers = loader.settings.get("num_workers") if loader is not None else None
    if loader is None or not isinstance(workers, int):
        return 0.0
    return workers * (loader.busy_ratio or 0.0) * (loader.make_on_cpu_ratio or 0.0)


def _helpers_ratio(evidence: Evidence) -> float | None:
    """Share of the process's CPU time in the span that was not its first thread's; None where not sampled."""
    columns = evidence.recording.process_system.get(evidence.steps.pid, {})
    if not {"t_s", "cpu_ratio", "main_cpu_s"} <= set(columns):
        return None
    start, end = span_since_command(evidence)
    seconds = np.asarray(columns["t_s"], float)
    main, ratio = np.asarray(columns["main_cpu_s"], float), np.asarray(columns["cpu_ratio"], float)
    inside = (seconds >= start) & (seconds <= end) & np.isfinite(main) & np.isfinite(ratio)
    if inside.sum() < 2:
        return None
    used = float(ratio[inside][1:] @ np.diff(seconds[inside]))
    return max(0.0, 1 - float(np.ptp(main[inside])) / used) if used > 0.1 else None
