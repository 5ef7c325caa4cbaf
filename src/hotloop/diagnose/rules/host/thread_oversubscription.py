"""More computing threads than cores hold each other up."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hotloop.diagnose.evidence import Evidence, at, cause, rule
from hotloop.diagnose.facts import flag, set_at
from hotloop.findings import Finding
from hotloop.phases import CLASSES
from hotloop.units import share

#: A step with r threads per core was seen to take 1.2-1.7 (r = 1.5), 1.5-2 (2), 2.4-3 (4), 10 times (12)
#: as long as with as many threads as cores (CNN and MLP, 2 crowded cores, torch 2.13): sqrt(r) is below.
_SLOWDOWN_POWER = 0.5
#: Helper threads that use less than this of the process's CPU time have nothing to fight over.
_HELPERS_RATIO = 0.2


@rule("host/thread-oversubscription")
def check(evidence: Evidence) -> Iterable[Finding]:
    """Intra-op threads of all ranks against the usable cores, where the helper threads really compute.

    Where there are too many only for the cores that other programs left, launches say what fewer give.
    """
    steps, limits = evidence.steps, evidence.limits
    threads = flag(steps, "threads")
    if not isinstance(threads, int) or "cores" not in evidence.machine:
        return
    ranks = max(1, sum(1 for rank in evidence.ranks if rank.num_steps > 0))
    total = threads * ranks
    computing = sum(steps.share(phase) for phase in CLASSES["device"])
    if evidence.on_accelerator or threads <= 1 or computing < limits.worth_fixing_ratio:
        return
    alone = total > limits.threads_per_core * evidence.cores
    taken = 0.0 if alone or not evidence.crowded else evidence.others_cores or 0.0
    free = evidence.cores - taken
    helpers = _helpers_ratio(evidence)
    if total <= limits.threads_per_core * free or (taken and (helpers or 0.0) < _HELPERS_RATIO):
        return
    each = max(1, round(free / ranks) if taken else int(free // ranks))
    saved = 1 - (total / evidence.cores) ** -_SLOWDOWN_POWER
    fights = not taken and helpers is not None and helpers >= _HELPERS_RATIO
    where = set_at(steps, "threads", threads)
    who = f"{ranks} ranks x {threads} threads" if ranks > 1 else f"{threads} threads"
    cores = evidence.cores
    message = f"PyTorch computes with {who} on {cores:g} cores: the threads hold each other up."
    if taken:
        message = (
            f"PyTorch computes with {who}, and other programs use {taken:.1f} of {cores:g} cores: the "
            "threads may wait for each other."
        )
    advice = f"Set OMP_NUM_THREADS={each} (or torch.set_num_threads({each})) for each training process."
    if taken:
        advice = (
            f"Use {each} while the others run (OMP_NUM_THREADS={each}); with the machine to itself {threads} "
            "threads may be faster, so leave the source as it is."
        )
    elif where is not None:
        advice = (
            f"Call torch.set_num_threads({each}){at(where)}, or leave the call out and set "
            f"OMP_NUM_THREADS={each}, which it overrides."
        )
    yield cause(
        evidence,
        message=message,
        advice=advice,
        numbers=[
            f"{total} computing threads on {cores:g} usable cores",
            "what the helper threads use was not sampled"
            if helpers is None
            else f"helper threads use {share(helpers)} of the process's CPU time",
            f"forward, backward and optimizer take {share(computing)} of the training span",
            *[f"saving assumed from the number of threads per core: {share(saved)} of that"] * fights,
        ],
        cost_s=saved * computing * steps.step_s if fights else 0.0,
        where=where,
        severity=None if fights else "info",
        data={"threads": total, "suggested": each, "assumed": True, "unpriced": not alone},
    )


def _helpers_ratio(evidence: Evidence) -> float | None:
    """Share of the process's CPU time in the span that was not its first thread's; None where not sampled."""
    seconds, main, ratio = evidence.sampled(evidence.steps.pid, "main_cpu_s", "cpu_ratio")
    if len(seconds) < 2:
        return None
    used = float(ratio[1:] @ np.diff(seconds))
    return max(0.0, 1 - float(np.ptp(main)) / used) if used > 0.1 else None
