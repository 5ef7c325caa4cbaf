"""Backward makes gradients of weights that nothing updates."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.diagnose.evidence import Evidence, cause, rule
from hotloop.diagnose.facts import entries, noted
from hotloop.findings import Finding, Place

#: Of a layer's backward: the gradient of its input is the other half.
_OF_WEIGHTS = 0.5


@rule("device/unused-gradients")
def check(evidence: Evidence) -> Iterator[Finding]:
    """A network that only judges (a perceptual loss) and was not frozen; its part of backward, as timed."""
    steps, told = evidence.steps, noted(evidence.steps, "untrained")
    if not told.get("num_params"):
        return
    path, cls = str(told.get("path") or ""), told.get("class")
    named = [one for one in steps.modules if path and f".{one.name}.".endswith(f".{path}.")]
    share = max((one.backward_share for one in named), default=0.0)
    around = next((one for one in entries(steps, "modules") if one.get("id") == told.get("id")), {})
    place = around.get("place") or {}
    where = Place(file=str(place["file"]), line=int(place["line"])) if place.get("file") else None
    yield cause(
        evidence,
        message=f"{path or cls} ({cls}) gets gradients for {told['num_params']:,} weights in every backward, "
        "and nothing updates them.",
        numbers=["no optimizer has these weights, and their values stayed while their gradients changed"],
        cost_s=_OF_WEIGHTS * share * steps.per_step("backward"),
        where=where or steps.source_loop,
        severity=None if share else "low",
        data={"assumed": True, "module": path, "num_params": told["num_params"]},
    )
