"""The model is not compiled in a run whose device is busy with many kernels."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.device_state import device_bound, device_s
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import is_compiled, num_params, trained_modules
from hotloop.findings import Finding
from hotloop.units import share

ID = "device/compile-off"


def check(evidence: Evidence) -> Iterable[Finding]:
    """No torch.compile in a device-bound run; launch-bound runs are told by ``host/launch-bound``."""
    steps, limits = evidence.steps, evidence.limits
    if not enough(evidence) or not device_bound(evidence) or is_compiled(steps):
        return
    if not trained_modules(steps) or num_params(steps) < limits.large_model_params:
        return
    yield cause(
        evidence,
        ID,
        message="The model runs kernel by kernel: torch.compile would fuse the small ones.",
        advice="Try model = torch.compile(model) where shapes are fixed; the first steps take long.",
        numbers=[f"saving assumed, not measured: {share(limits.small_saves_ratio)} of device time"],
        cost_s=limits.small_saves_ratio * device_s(evidence),
        remedies=("compile",),
        data={"assumed": True, "effect": "numeric"},
    )
