"""A device-bound model computes in single precision."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause
from hotloop.diagnose.configured import wanted
from hotloop.diagnose.costs import enough
from hotloop.diagnose.device_state import device_bound, device_s, has_tensor_cores, has_tf32
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import autocast_share, has_conv, low_precision_weights, num_params
from hotloop.findings import Finding
from hotloop.units import duration, share

ID = "device/amp-off"


def check(evidence: Evidence) -> Iterable[Finding]:
    """No autocast in a device-bound run of a model large enough for tensor cores; the gain is assumed."""
    steps, limits = evidence.steps, evidence.limits
    if not enough(evidence) or not device_bound(evidence) or not has_tensor_cores(evidence):
        return
    if autocast_share(steps) != 0.0 or low_precision_weights(steps) or wanted(evidence, "amp"):
        return
    if not has_conv(steps) and num_params(steps) < limits.large_model_params:
        return
    dtype = "bfloat16" if has_tf32(evidence) else "float16 with a GradScaler"
    cost = limits.amp_saves_ratio * device_s(evidence)
    yield cause(
        evidence,
        ID,
        message="The device is the bottleneck and computes in float32 instead of on its tensor cores.",
        advice=f"Run forward and loss under torch.autocast in {dtype}.",
        numbers=[
            f"device busy {duration(device_s(evidence))} of {duration(steps.step_s)} per step",
            "no training forward ran under autocast",
            f"saving assumed, not measured: {share(limits.amp_saves_ratio)} of device time",
        ],
        cost_s=cost,
        where=steps.source_loop,
        remedies=(
            "autocast-bf16",
            "autocast-fp16",
        ),
        data={"assumed": True, "effect": "numeric"},
    )
