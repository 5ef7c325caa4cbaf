"""One submodule, or one line of tensor operators, takes a large share of what computes."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.evidence import Evidence, cause, rule, spot
from hotloop.diagnose.groups import hottest
from hotloop.findings import Finding
from hotloop.measure.steps import ModuleCost, Steps
from hotloop.units import share

#: In a model of fewer parts some part always takes a third.
_FEWEST_MODULES = 4
#: A part with parts of its own that takes more than this of the model is its body: naming it says nothing.
_WHOLE = 0.9
#: Backward agrees with the share of forward within this factor.
_AGREES = 2.5


@rule("device/hot-module")
def check(evidence: Evidence) -> Iterable[Finding]:
    """The smallest submodule that still takes a third of the model's time: where to look, not a fault.

    On a CPU a line that calls no module, and takes as much of the run, is named as well.
    """
    steps, limits = evidence.steps, evidence.limits
    own = [
        one for one in steps.lines if one.phase == "forward" and one.nature == "native" and not one.library
    ]
    line = None if evidence.on_accelerator else hottest(own, steps.span_s)
    if line is not None and line.share >= limits.hot_module_ratio:
        yield cause(
            evidence,
            message=f"{line.what} at {spot(line.place)} takes {share(line.share)} of the training time.",
            advice="If it gives the same in every step, compute it once, before the loop.",
            numbers=[f"{line.num_samples} stack samples"],
            severity="info",
            where=line.place,
            data={"share": line.share},
        )
    inner = [module for module in steps.modules if module.depth > 0]
    model = steps.share("forward") + steps.share("backward")
    # Of a thread that others keep from its core, a few timed steps show where that happened.
    if len(inner) < _FEWEST_MODULES or model < 0.5 or evidence.got < limits.got_ratio:
        return
    hot = [one for one in inner if share_of(steps, one) >= limits.hot_module_ratio and _is_sure(steps, one)]
    top = max(hot, key=lambda module: (module.depth, share_of(steps, module)), default=None)
    if top is None:
        return
    ranked = sorted(inner, key=lambda module: -share_of(steps, module))
    yield cause(
        evidence,
        message=f"{top.name} ({top.cls}) takes {share(share_of(steps, top))} of forward and backward.",
        numbers=[
            f"{module.name} ({module.cls}): forward {share(module.forward_share)}, "
            f"backward {share(module.backward_share)}"
            for module in ranked[:5]
        ],
        severity="info",
        data={"module": top.name, "share": share_of(steps, top)},
    )


def _is_sure(steps: Steps, module: ModuleCost) -> bool:
    """Whether the share stands: backward goes with forward (a module called twice tells nothing), and the
    module is not the body of the model.
    """
    whole = any(one.name.startswith(module.name + ".") for one in steps.modules)
    forward, backward = module.forward_share, module.backward_share
    agrees = forward / _AGREES <= backward <= forward * _AGREES
    return agrees and not (whole and share_of(steps, module) > _WHOLE)


def share_of(steps: Steps, module: ModuleCost) -> float:
    """A module's share of forward and backward."""
    forward, backward = steps.per_step("forward"), steps.per_step("backward")
    if module.backward_share <= 0 or forward + backward <= 0:
        return module.forward_share
    return (forward * module.forward_share + backward * module.backward_share) / (forward + backward)
