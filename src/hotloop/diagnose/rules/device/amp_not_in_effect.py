"""Mixed precision is configured and no forward ran under autocast."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause, decided
from hotloop.diagnose.configured import wanted
from hotloop.diagnose.device_state import device_bound, device_s
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import autocast_share, low_precision_weights
from hotloop.findings import Finding, Place
from hotloop.units import share

ID = "device/amp-not-in-effect"


def check(evidence: Evidence) -> Iterable[Finding]:
    """A configuration that says mixed precision beside training forwards that were all outside autocast."""
    steps, limits = evidence.steps, evidence.limits
    setting = wanted(evidence, "amp")
    if setting is None or autocast_share(steps) != 0.0 or low_precision_weights(steps):
        return
    by, bound = setting.by, device_bound(evidence)
    where = f" in {setting.where}" if setting.where else ""
    numbers = [f"configured {setting.configured}{where}", "share of training forwards under autocast: 0 %"]
    if bound:
        numbers.append(f"saving assumed, not measured: {share(limits.amp_saves_ratio)} of device time")
    yield cause(
        evidence,
        ID,
        message=f"Mixed precision is configured{where} but no training forward ran under autocast"
        f"{f': {decided(by)}, which {setting.configured} never equals' if by else ''}.",
        advice="Enter torch.autocast around forward and loss, with the configured dtype, or remove the key.",
        numbers=numbers,
        cost_s=limits.amp_saves_ratio * device_s(evidence) if bound else 0.0,
        where=Place(file=by.file, line=by.line) if by else steps.source_loop,
        severity=None if bound else ("low" if evidence.on_accelerator else "info"),
        remedies=(
            "autocast-bf16",
            "autocast-fp16",
        ),
        data={"assumed": bound, "configured": setting.configured},
    )
