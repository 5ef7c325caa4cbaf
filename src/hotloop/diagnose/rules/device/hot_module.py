"""One submodule takes a large share of forward and backward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hotloop.diagnose.causes import cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding
from hotloop.measure.steps import ModuleCost, Steps
from hotloop.units import share

ID = "device/hot-module"

#: In a model of fewer parts some part always takes a third.
_FEWEST_MODULES = 4

#: A part with parts of its own that takes more than this of the model is its body: naming it says nothing.
_WHOLE = 0.9


def check(evidence: Evidence) -> Iterable[Finding]:
    """The smallest submodule that still takes a third of the model's time: where to look, not a fault."""
    steps, limits = evidence.steps, evidence.limits
    inner = [module for module in steps.modules if module.depth > 0]
    model = steps.share("forward") + steps.share("backward")
    if not enough(evidence) or len(inner) < _FEWEST_MODULES or model < 0.5:
        return
    hot = [
        m
        for m in inner
        if _share(steps, m) >= limits.hot_module_ratio
        and _is_consistent(m)
        and _is_usual(m, steps.modules)
        and not _is_whole(steps, m)
    ]
    if not hot:
        return
    top = max(hot, key=lambda module: (module.depth, _share(steps, module)))
    ranked = sorted(inner, key=lambda module: -_share(steps, module))
    yield cause(
        evidence,
        ID,
        message=f"{top.name} ({top.cls}) takes {share(_share(steps, top))} of forward and backward.",
        advice="Start there when the model itself is to become faster.",
        numbers=[
            f"{module.name} ({module.cls}): forward {share(module.forward_share)}, "
            f"backward {share(module.backward_share)}"
            for module in ranked[:5]
        ],
        severity="info",
        data={"module": top.name, "share": _share(steps, top)},
    )


def _is_consistent(module: ModuleCost) -> bool:
    """Whether backward goes with forward.

    Where a module is called twice, or hands on packed sequences, the order of gradients tells nothing.
    """
    return 0.4 * module.forward_share <= module.backward_share <= 2.5 * module.forward_share


def _is_usual(module: ModuleCost, modules: Sequence[ModuleCost]) -> bool:
    """Whether the share is that of a usual call, not of one that waited for a core or came first."""
    outermost = {one.name: one for one in modules if one.depth == 0}
    model = outermost.get(module.name.split(".")[0]) or outermost.get("")
    if model is None or not (model.call_s and model.forward_share and module.call_s and module.calls):
        return True
    usual = module.calls * module.call_s / model.call_s
    return 0.4 * usual <= module.forward_share / model.forward_share <= 2.5 * usual


def _is_whole(steps: Steps, module: ModuleCost) -> bool:
    holds = any(one.name.startswith(module.name + ".") for one in steps.modules)
    return holds and _share(steps, module) > _WHOLE


def _share(steps: Steps, module: ModuleCost) -> float:
    forward, backward = steps.per_step("forward"), steps.per_step("backward")
    if module.backward_share <= 0 or forward + backward <= 0:
        return module.forward_share
    return (forward * module.forward_share + backward * module.backward_share) / (forward + backward)
