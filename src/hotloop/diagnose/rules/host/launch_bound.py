"""The device waits for the host to launch the next small kernel."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import is_compiled
from hotloop.findings import Finding
from hotloop.units import duration, share

ID = "host/launch-bound"

_LAUNCHING = ("forward", "backward", "optimizer")


def check(evidence: Evidence) -> Iterable[Finding]:
    """Idle device time while the host was inside forward, backward or the optimizer."""
    steps = evidence.steps
    if not evidence.on_accelerator or steps.device is None or not enough(evidence):
        return
    idle = {phase: steps.device.idle_s_by_phase.get(phase, 0.0) for phase in _LAUNCHING}
    seconds = sum(idle.values())
    if steps.device.launch_bound_ratio is not None:  # kernel times are the truth where they were taken
        seconds = min(seconds, steps.device.launch_bound_ratio * steps.span_s) or (
            steps.device.launch_bound_ratio * steps.span_s
        )
    if seconds < evidence.limits.launch_bound_ratio * steps.span_s:
        return
    cost = seconds / steps.num_steps
    compiled = is_compiled(steps)
    yield cause(
        evidence,
        ID,
        message=(
            "The model's operations are too small for the device: it is idle "
            f"{share(seconds / steps.span_s)} of the time while the host launches the next one."
        ),
        advice=(
            "Use CUDA graphs (torch.compile mode='reduce-overhead') or a larger batch."
            if compiled
            else "Compile the model (torch.compile, mode='reduce-overhead'), or use a larger batch."
        ),
        numbers=[
            ", ".join(
                f"idle in {phase} {duration(s / steps.num_steps)} per step" for phase, s in idle.items()
            ),
            f"device busy {share(steps.device.busy_ratio)} of the training span",
            *(
                []
                if steps.device.launch_bound_ratio is not None
                else ["an upper bound: no kernel times (--profile)"]
            ),
        ],
        cost_s=cost,
        where=steps.source_loop,
        remedies=("compile", "cuda-graphs"),
        data={"upper_bound": steps.device.launch_bound_ratio is None},
    )
