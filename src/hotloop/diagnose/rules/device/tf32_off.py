"""Single-precision matrix products do not use TF32."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.device_state import device_bound, device_s, has_tf32
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import autocast_share, flag, has_conv, low_precision_weights, num_params
from hotloop.findings import Finding
from hotloop.units import share

ID = "device/tf32-off"


def check(evidence: Evidence) -> Iterable[Finding]:
    """float32 matrix products at the highest precision in a device-bound run; the gain is assumed."""
    steps, limits = evidence.steps, evidence.limits
    if not enough(evidence) or not device_bound(evidence) or not has_tf32(evidence):
        return
    if (autocast_share(steps) or 0.0) > 0.5 or low_precision_weights(steps):
        return
    matmul = (
        flag(steps, "matmul_allow_tf32") is False and flag(steps, "float32_matmul_precision") == "highest"
    )
    conv = flag(steps, "cudnn_allow_tf32") is False and has_conv(steps)
    if not (conv or (matmul and not has_conv(steps) and num_params(steps) >= limits.large_model_params)):
        return
    yield cause(
        evidence,
        ID,
        message="The device computes float32 matrix products in full precision although it knows TF32.",
        advice="Call torch.set_float32_matmul_precision('high'); leave torch.backends.cudnn.allow_tf32 on.",
        numbers=[
            f"float32_matmul_precision={flag(steps, 'float32_matmul_precision')}, "
            f"cudnn.allow_tf32={flag(steps, 'cudnn_allow_tf32')}",
            f"saving assumed, not measured: {share(limits.tf32_saves_ratio)} of device time",
        ],
        cost_s=limits.tf32_saves_ratio * device_s(evidence),
        remedies=("tf32",),
        data={"assumed": True, "effect": "numeric"},
    )
