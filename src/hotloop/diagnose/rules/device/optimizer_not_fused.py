"""The optimizer updates parameters one by one."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.evidence import Evidence, at, cause, rule
from hotloop.diagnose.facts import entries
from hotloop.diagnose.groups import LineGroup, grouped, sampled_interval, select
from hotloop.diagnose.python_work import per_parameter
from hotloop.diagnose.source import sources
from hotloop.findings import Finding, Place
from hotloop.source.written import called_at
from hotloop.units import duration, share

#: Optimizers with a fused form, and what that is assumed to save of the looping form.
_FUSABLE = {"Adam", "AdamW", "SGD", "Adagrad"}
_SAVES_RATIO = 0.5
#: Of these the default on a CPU goes tensor by tensor, and one kernel saved 40 % and more of it at every size
#: that was tried (``python benchmarks/fused.py``); plain SGD gains nothing there.
_LOOP_ON_CPU = {"Adam", "AdamW", "Adagrad"}


@rule("device/optimizer-not-fused")
def check(evidence: Evidence) -> Iterable[Finding]:
    """A looping optimizer that takes a visible share: on a device its idle time, on a CPU its own."""
    steps, limits = evidence.steps, evidence.limits
    idle = steps.device.idle_s_by_phase.get("optimizer", 0.0) if steps.device else 0.0
    seconds = idle if evidence.on_accelerator else steps.span_totals.get("optimizer", 0.0)
    own, copied = _own_loop(evidence), _copied(evidence)
    if own is not None or copied.lines:
        if own is not None or copied.seconds >= limits.optimizer_ratio * steps.span_s:
            yield _own_finding(evidence, own or copied, idle, copied=own is None)
        return
    looping = [
        note
        for note in entries(steps, "optimizers")
        if note.get("class") in _FUSABLE and not note.get("fused")
        # On a device foreach is the default and still launches many kernels.
        and (evidence.on_accelerator or note.get("foreach") is False or note.get("class") in _LOOP_ON_CPU)
    ]  # fmt: skip
    asked = [note for note in looping if evidence.on_accelerator or note.get("foreach") is False]
    tensors = max((int(note.get("num_params") or 0) for note in asked), default=0)
    priced = tensors >= limits.many_tensors and seconds >= limits.optimizer_ratio * steps.span_s
    if not priced:  # what torch does on a CPU where nothing is asked for: a launch says what one kernel saves
        asked = [] if evidence.on_accelerator else [n for n in looping if n.get("class") in _LOOP_ON_CPU]
        if not asked or seconds < limits.default_optimizer_ratio * steps.span_s:
            return
        tensors = int(asked[0].get("num_params") or 0)
    name = str(asked[0].get("class"))
    each = f"{'' if priced else 'its '}{tensors} tensors one by one" if tensors > 1 else "in several passes"
    if not priced and len(asked) > 1:  # several of this class, each of so many
        each = "its tensors one by one"
    yield cause(
        evidence,
        message=f"{name} updates {each}: {share(seconds / steps.span_s)} of the step.",
        advice=f"Construct it with {name}(..., fused=True), or without foreach=False."
        if priced
        else f"{name}(..., fused=True) does it in one kernel, on a CPU too; hotloop tune measures it.",
        numbers=[
            f"optimizer {duration(seconds / steps.num_steps)} per step",
            f"foreach={asked[0].get('foreach')}, fused={asked[0].get('fused')}",
            *([f"saving assumed, not measured: {share(_SAVES_RATIO)} of it"] if priced else []),
        ],
        cost_s=_SAVES_RATIO * seconds / steps.num_steps if priced else 0.0,
        where=_built(evidence, name) or steps.source_loop,
        severity=None if priced else "info",
        remedies=None if priced else ("fused-optimizer",),
        data={"effect": "numeric", **({"assumed": True} if priced else {"unpriced": True})},
    )


def _built(evidence: Evidence, name: str) -> Place | None:
    """Where an optimizer of this class is built, if one place alone does."""
    found = called_at(sources(evidence), name, name.__eq__)
    return Place(file=found.file, line=found.line) if found is not None else None


def _own_loop(evidence: Evidence) -> LineGroup | None:
    """The user's own optimizer, looping over parameters in Python."""
    steps, limits = evidence.steps, evidence.limits
    if evidence.on_accelerator and steps.device is None:
        return None
    python = select(steps, lambda line: line.phase == "optimizer" and line.nature == "python")
    lines = [line for line in python if per_parameter(evidence, line)]
    group = grouped(lines)
    visible = group.seconds >= limits.optimizer_ratio * steps.span_s
    return group if lines and group.num_samples >= limits.min_samples and visible else None


def _copied(evidence: Evidence) -> LineGroup:
    """The lines of an optimizer of the user's that is called as one of torch's that has a fused form."""
    known = {f"{note.get('class')}.step" for note in entries(evidence.steps, "optimizers")}
    named = known & {f"{name}.step" for name in _FUSABLE}
    of_user = select(evidence.steps, lambda line: line.phase == "optimizer" and line.place.function in named)
    return grouped(of_user)


def _own_finding(evidence: Evidence, group: LineGroup, idle: float, *, copied: bool) -> Finding:
    steps, place = evidence.steps, group.hottest.place
    cost = (min(group.seconds, idle) if evidence.on_accelerator else group.seconds) / steps.num_steps
    name, each = place.function.removesuffix(".step"), duration(cost)
    return cause(
        evidence,
        message=f"{name} is not torch's: it updates its tensors one by one{at(place)}: {each} per step."
        if copied
        else f"The optimizer loops over parameters in Python{at(place)}: {each} per step.",
        advice=(
            f"If it computes the same, take torch.optim.{name}: fused=True, or foreach=True for complex "
            "numbers."
        )
        if copied
        else "",
        numbers=[f"{share(group.seconds / steps.span_s)} of the span, from {group.num_samples} samples"],
        cost_s=_SAVES_RATIO * cost if copied else cost,
        where=place,
        remedies=(),
        data={"effect": "numeric", **({"assumed": True} if copied else {})},
        ci95=None if copied else sampled_interval(cost, group.num_samples),
    )
