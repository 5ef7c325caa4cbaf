"""The optimizer updates parameters one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hotloop.diagnose.causes import at, cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import Fact, entries
from hotloop.diagnose.groups import LineGroup, sampled_interval, select
from hotloop.diagnose.python_work import per_parameter
from hotloop.findings import Finding
from hotloop.units import duration, share

ID = "device/optimizer-not-fused"
EFFORT = 0

#: Optimizers with a fused form, and what that is assumed to save of the looping form.
_FUSABLE = {"Adam", "AdamW", "SGD", "Adagrad"}
_SAVES_RATIO = 0.5
#: Of these the default on a CPU goes tensor by tensor, and one kernel saved 40 % and more of it at every size
#: that was tried (``python benchmarks/fused.py``); plain SGD gains nothing there.
_LOOP_ON_CPU = {"Adam", "AdamW", "Adagrad"}


def check(evidence: Evidence) -> Iterable[Finding]:
    """A looping optimizer that takes a visible share: on a device its idle time, on a CPU its own."""
    steps, limits = evidence.steps, evidence.limits
    if not enough(evidence):
        return
    own = _own_loop(evidence)
    if own is not None:
        yield _own_finding(evidence, own)
        return
    seconds = _optimizer_s(evidence)
    optimizers = [o for o in entries(steps, "optimizers") if _unfused(evidence, o)]
    tensors = max((int(o.get("num_params") or 0) for o in optimizers), default=0)
    if tensors < limits.many_tensors or seconds < limits.optimizer_ratio * steps.span_s:
        yield from _by_default(evidence, seconds)
        return
    name = str(optimizers[0].get("class"))
    cost = _SAVES_RATIO * seconds / steps.num_steps
    yield cause(
        evidence,
        ID,
        message=f"{name} updates {tensors} tensors one by one: {share(seconds / steps.span_s)} of the step.",
        advice=f"Construct it with {name}(..., fused=True), or without foreach=False.",
        numbers=[
            f"optimizer {duration(seconds / steps.num_steps)} per step",
            f"foreach={optimizers[0].get('foreach')}, fused={optimizers[0].get('fused')}",
            f"saving assumed, not measured: {share(_SAVES_RATIO)} of it",
        ],
        cost_s=cost,
        where=steps.source_loop,
        remedies=("fused-optimizer", "foreach"),
        data={"assumed": True, "effect": "numeric"},
    )


def _by_default(evidence: Evidence, seconds: float) -> Iterator[Finding]:
    """What torch does on a CPU where nothing is asked for. What one kernel saves is for a launch to say."""
    steps, limits = evidence.steps, evidence.limits
    looping = [
        o for o in entries(steps, "optimizers") if o.get("class") in _LOOP_ON_CPU and not o.get("fused")
    ]
    if evidence.on_accelerator or not looping or seconds < limits.default_optimizer_ratio * steps.span_s:
        return
    name, tensors = looping[0]["class"], int(looping[0].get("num_params") or 0)
    each = f"its {tensors} tensors one by one" if tensors > 1 else "in several passes"
    yield cause(
        evidence,
        ID,
        message=f"{name} updates {each}: {share(seconds / steps.span_s)} of the step.",
        advice=f"{name}(..., fused=True) does it in one kernel, on a CPU too; hotloop tune measures it.",
        numbers=[
            f"optimizer {duration(seconds / steps.num_steps)} per step",
            f"foreach={looping[0].get('foreach')}, fused={looping[0].get('fused')}",
        ],
        where=steps.source_loop,
        severity="info",
        remedies=("fused-optimizer",),
        data={"effect": "numeric", "unpriced": True},
    )


def _unfused(evidence: Evidence, optimizer: Fact) -> bool:
    """Whether the optimizer loops: told so, or by its default on this device."""
    if optimizer.get("class") not in _FUSABLE or optimizer.get("fused"):
        return False
    if evidence.on_accelerator:
        return True  # foreach is the default there and still launches many kernels
    return optimizer.get("foreach") is False


def _optimizer_s(evidence: Evidence) -> float:
    steps = evidence.steps
    if evidence.on_accelerator:
        return steps.device.idle_s_by_phase.get("optimizer", 0.0) if steps.device else 0.0
    return steps.span_totals.get("optimizer", 0.0)


def _own_loop(evidence: Evidence) -> LineGroup | None:
    """The user's own optimizer, looping over parameters in Python."""
    steps, limits = evidence.steps, evidence.limits
    if evidence.on_accelerator and steps.device is None:
        return None
    lines = [
        line
        for line in select(steps, lambda line: line.phase == "optimizer" and line.nature == "python")
        if per_parameter(evidence, LineGroup(lines=(line,)))
    ]
    group = LineGroup(lines=tuple(sorted(lines, key=lambda line: -line.seconds)))
    enough = lines and group.num_samples >= limits.min_samples
    return group if enough and group.seconds >= limits.optimizer_ratio * steps.span_s else None


def _own_finding(evidence: Evidence, group: LineGroup) -> Finding:
    steps = evidence.steps
    cost = group.seconds / steps.num_steps
    if evidence.on_accelerator and steps.device is not None:
        cost = min(cost, steps.device.idle_s_by_phase.get("optimizer", 0.0) / steps.num_steps)
    place = group.hottest.place
    return cause(
        evidence,
        ID,
        message=f"The optimizer loops over parameters in Python{at(place)}: {duration(cost)} per step.",
        advice=(
            "Where it does what an optimizer of torch does, build that, with fused=True: hotloop fix tries "
            "them and writes the call. Else update all parameters at once (torch._foreach_*)."
        ),
        numbers=[f"{share(group.seconds / steps.span_s)} of the span, from {group.num_samples} samples"],
        cost_s=cost,
        where=place,
        remedies=("library-optimizer",),
        data={"effect": "numeric"},
        ci95=sampled_interval(cost, group.num_samples),
    )
