"""How busy the accelerator was, what it is, how much memory the run used; None where nobody looked."""

from __future__ import annotations

import numpy as np

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import operation_s
from hotloop.diagnose.python_work import python_in_model
from hotloop.measure.steps import Steps
from hotloop.phases import CLASSES
from hotloop.record.recording import Recording
from hotloop.record.samples import device_peak

_MOST_GPUS = 32


def busy_ratio(evidence: Evidence) -> float | None:
    """Share of time the device worked: its own clock, else what the driver said in the second half."""
    if evidence.steps.device is not None:
        return evidence.steps.device.busy_ratio
    return max(
        (ratio for i in range(_MOST_GPUS) if (ratio := later_mean(evidence, f"gpu{i}_util_ratio"))),
        default=None,
    )


def power_ratio(evidence: Evidence) -> float | None:
    """Power drawn over the power limit, of the device that was used most, in the run's second half."""
    used = [(later_mean(evidence, f"gpu{i}_util_ratio") or 0.0, i) for i in range(_MOST_GPUS)]
    index = max(used)[1]
    drawn, limit = (later_mean(evidence, f"gpu{index}_{name}") for name in ("power_w", "power_limit_w"))
    return drawn / limit if drawn is not None and limit else None


def later_mean(evidence: Evidence, column: str) -> float | None:
    """Mean of a sampled column over the run's second half, None where it was hardly sampled."""
    values = np.asarray(evidence.recording.system.get(column, ()), dtype=float)
    tail = values[len(values) // 2 :]
    tail = tail[np.isfinite(tail)]
    return float(tail.mean()) if len(tail) >= 2 else None


def device_bound(evidence: Evidence) -> bool:
    """Whether the device is what the run waits for: only then does its own speed matter."""
    busy = busy_ratio(evidence)
    return evidence.on_accelerator and busy is not None and busy >= evidence.limits.device_bound_ratio


def device_s(evidence: Evidence) -> float:
    """Seconds per step the device works in a device-bound run."""
    return (busy_ratio(evidence) or 0.0) * evidence.steps.step_s


def computing_s(evidence: Evidence) -> float:
    """Seconds per step of forward, backward and optimizer on a CPU, of a device that the run waits for."""
    if evidence.on_accelerator:
        return device_s(evidence) if device_bound(evidence) else 0.0
    return sum(evidence.steps.per_step(phase) for phase in CLASSES["device"])


def is_all_calls(evidence: Evidence) -> bool:
    """Whether a CPU's time goes to calling operations, whatever they compute: these take most of the step,
    and forward and backward no longer for each than its two calls do.
    """
    steps, limits = evidence.steps, evidence.limits
    each_s = operation_s(steps)
    if evidence.on_accelerator or each_s is None or each_s > limits.calls_s:
        return False
    python_s = sum(group.seconds for group in python_in_model(evidence)) / steps.num_steps
    if python_s >= limits.python_in_forward_ratio * steps.step_s:  # loops call them as often as they like
        return False
    return computing_s(evidence) - python_s >= limits.computing_ratio * steps.step_s


def launching_idle_s(steps: Steps) -> float:
    """Seconds over the span the device idled while the host was in forward, backward or the optimizer."""
    if steps.device is None:
        return 0.0
    return sum(steps.device.idle_s_by_phase.get(phase, 0.0) for phase in CLASSES["device"])


def memory_ratio(evidence: Evidence) -> float | None:
    """Peak of the memory torch reserved or allocated, as a share of the device's; None when unknown."""
    peak, total = device_peak(evidence.recording), smallest_device_bytes(evidence.recording)
    return peak / total if peak and total else None


def smallest_device_bytes(recording: Recording) -> float | None:
    """Memory of the smallest GPU that the run could see; None when unknown."""
    gpus = [gpu for gpu in recording.machine.get("gpus") or () if gpu.get("visible", True)]
    return min((float(gpu.get("memory_bytes") or 0) for gpu in gpus), default=0.0) or None


def capability(evidence: Evidence) -> tuple[int, int]:
    """Compute capability of the least capable visible GPU; zeros where nobody saw one."""
    found = []
    for gpu in evidence.machine.get("gpus") or ():
        major, _, minor = str(gpu.get("compute_capability") or "").partition(".")
        if gpu.get("visible", True) and major.isdigit() and minor.isdigit():
            found.append((int(major), int(minor)))
    return min(found, default=(0, 0))
