"""A convolutional model under mixed precision keeps its channels first."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.device_state import device_bound, device_s, has_tf32
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import autocast_share, low_precision_weights, trained_modules
from hotloop.findings import Finding
from hotloop.units import share

ID = "device/channels-last-off"


def check(evidence: Evidence) -> Iterable[Finding]:
    """2-d convolutions in half precision without channels_last: each of them is transposed."""
    steps, limits = evidence.steps, evidence.limits
    if not enough(evidence) or not device_bound(evidence) or not has_tf32(evidence):
        return
    convolutional = [m for m in trained_modules(steps) if m.get("has_conv") and m.get("conv_ndim") == 2]
    half = (autocast_share(steps) or 0.0) > 0.5 or low_precision_weights(steps)
    if not convolutional or not half or any(m.get("channels_last") is not False for m in convolutional):
        return
    yield cause(
        evidence,
        ID,
        message="Convolutions run in half precision with channels first: cuDNN transposes each time.",
        advice="Call model.to(memory_format=torch.channels_last) and the same for the images.",
        numbers=[f"saving assumed, not measured: {share(limits.small_saves_ratio)} of device time"],
        cost_s=limits.small_saves_ratio * device_s(evidence),
        remedies=("channels-last",),
        data={"assumed": True, "effect": "numeric"},
    )
