"""Python between or inside the phases of a step takes time that the model needs."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from hotloop.diagnose.evidence import Evidence, at, cause, in_framework, rule, spot
from hotloop.diagnose.groups import LineGroup, sampled_interval, without
from hotloop.diagnose.inline import acting
from hotloop.diagnose.line_kinds import by_rows
from hotloop.diagnose.python_work import (
    beside_the_model,
    collecting_lines,
    collector_s,
    inner_loop,
    per_parameter,
    python_in_model,
    shared_loop,
)
from hotloop.diagnose.rollouts import ADVICE, may_act
from hotloop.diagnose.series import one_off
from hotloop.findings import Finding, Place
from hotloop.measure.steps import Steps
from hotloop.units import duration, share

#: What a profiler left on spends its time in; optimizers use torch.autograd.profiler without one.
_PROFILERS = ("torch.profiler", "torch.autograd.profiler_util", "torch._C._profiler")
#: Weights of a moving average: ``1 - decay``, 0.999.
_AVERAGES = re.compile(r"\b1(\.0*)?\s*-|\bone_minus|\b0?\.9\d*\b|\btau\b")
#: Calls that make other samples of the batch.
_AUGMENTS = re.compile(r"\b\w*(aug|augs|augment\w*|transforms?|mix_?up|cut_?mix|jitter|crop|flip)\(", re.I)
#: A step with many causes is told about the largest ones.
_MOST_FINDINGS = 3
_NATURES = {
    "python": "interpreter time or many tiny calls",
    "native": "long calls into native code",
    "waiting": "waiting, off the CPU",
    "unknown": "nature unknown",
}


@rule("host/python-in-step")
def check(evidence: Evidence) -> Iterable[Finding]:
    """The costliest pieces of the user's own code in the step, with the hottest line of each."""
    yield from acting(evidence)
    steps, limits = evidence.steps, evidence.limits
    exposed = steps.exposed("other")
    groups = beside_the_model(evidence)
    if not collecting_lines(steps):  # the garbage collector runs where objects are made: in the costliest
        groups = without(groups, min(collector_s(evidence), steps.gc_s_by_phase.get("other", 0.0)))
    beside = _worth(evidence, groups, limits.worth_fixing_ratio, exposed)
    once = [group for group in beside if one_off(steps, "other", group.seconds)]
    for group in once[:1]:
        yield _once(evidence, group)
    for group in [group for group in beside if group not in once][:_MOST_FINDINGS]:
        yield _finding(evidence, group, exposed, "between the phases of the step", None)
    # Recording a stack for each operation makes Python of all of forward.
    if evidence.on_accelerator or steps.facts.get("anomaly"):
        return
    least = limits.python_in_forward_ratio
    for group in _worth(evidence, python_in_model(evidence), least, 1.0)[:_MOST_FINDINGS]:
        loop = shared_loop(evidence, group)
        yield _finding(evidence, group, 1.0, "inside forward or backward", loop)


def _worth(evidence: Evidence, groups: list[LineGroup], ratio: float, exposed: float) -> list[LineGroup]:
    least, samples = ratio * evidence.steps.span_s, evidence.limits.min_samples
    return [group for group in groups if group.seconds * exposed >= least and group.num_samples >= samples]


def _finding(evidence: Evidence, group: LineGroup, exposed: float, where: str, loop: Place | None) -> Finding:
    steps, hottest = evidence.steps, group.hottest
    cost = group.seconds * exposed / steps.num_steps
    share_of_span = share(group.seconds / steps.span_s)
    numbers = [
        f"{duration(group.seconds / steps.num_steps)} per step ({share_of_span}) {where}, "
        f"from {group.num_samples} samples",
        f"hottest line {spot(hottest.place)} ({share(hottest.seconds / group.seconds)} of it): "
        f"{hottest.source.strip()}",
        f"{_NATURES[group.nature]}" + (f", in {hottest.library}" if hottest.library else ""),
    ]
    backward_s = steps.per_step("backward") if hottest.phase in ("forward", "backward") else 0.0
    if backward_s:
        numbers.append(f"what backward does for it is not in it: at most {duration(backward_s)} per step")
    if exposed < 1:
        numbers.append(f"{share(1 - exposed)} of it is hidden behind the device and costs nothing")
    return cause(
        evidence,
        message=(
            f"{_subject(steps, group, loop)} takes {duration(cost)} of every step "
            f"({share(cost * steps.num_steps / steps.span_s)}), {where}."
        ),
        advice=_advice(evidence, group),
        numbers=numbers,
        cost_s=cost,
        where=loop or hottest.place,
        ci95=sampled_interval(cost, group.num_samples),
        remedies=_remedies(evidence, group),
        data={"nature": group.nature, "library": hottest.library, "besides_s": backward_s},
    )


def _once(evidence: Evidence, group: LineGroup) -> Finding:
    steps = evidence.steps
    at_step = int(np.argmax(steps.phase("other")))
    return cause(
        evidence,
        message=(
            f"{_subject(steps, group, None)} takes {duration(group.seconds)} once, at step {at_step} of "
            f"{steps.num_steps}: {share(group.seconds / steps.span_s)} of this run, and less of a longer one."
        ),
        advice="Store its result where each start of the script makes it anew; no step waits for it.",
        numbers=[f"{group.num_samples} samples, hottest line {spot(group.hottest.place)}"],
        where=group.hottest.place,
        severity="info",
        remedies=(),
        data={"step": at_step},
    )


def _remedies(evidence: Evidence, group: LineGroup) -> tuple[str, ...]:
    """What writes a loop over parameters as calls for all of them, the first with other rounding; or makes
    tensors of rows at once.
    """
    if in_framework(evidence.steps, group.hottest.place):
        return ()
    if per_parameter(evidence, group.hottest) != "update":
        return by_rows(group.hottest.source)
    loop = inner_loop(evidence, group.hottest)
    averages = loop is not None and _AVERAGES.search(loop.text)
    return ("foreach-lerp", "foreach-loop") if averages else ("foreach-loop",)


def _subject(steps: Steps, group: LineGroup, loop: Place | None) -> str:
    if loop is not None:
        return f"The loop{at(loop)}"
    if in_framework(steps, group.hottest.place):
        package, _, function = group.hottest.within.partition(":")
        within = f", most of it within {function}()," if function else ""
        package = package.partition(".")[0] or "The framework"
        return f"{package}'s own work{at(group.hottest.place)}{within}"
    name = f"{group.function}()" if group.function else "Code of the training loop"
    return f"{name}{at(group.hottest.place)}"


def _advice(evidence: Evidence, group: LineGroup) -> str:
    if in_framework(evidence.steps, group.hottest.place):
        return (
            "None of it is your code. Leave out callbacks, metrics, log and progress lines that no step "
            "needs, and take torch's optimizer where the framework brings its own; larger batches share the "
            "rest among more samples, a loop of your own does without."
        )
    if group.hottest.library.startswith(_PROFILERS):
        return (
            "Profile a few steps and stop (torch.profiler.schedule with repeat=1), or take the profiler out."
        )
    if may_act(evidence, group.hottest.place):
        return ADVICE
    if group.hottest.library.startswith("torch.distributions"):
        return (
            "torch.distributions checks every argument at each call. Once the loop works, "
            "torch.distributions.Distribution.set_default_validate_args(False) leaves that out."
        )
    each = per_parameter(evidence, group.hottest)
    if each == "update":
        return (
            "Update all parameters in one call (torch._foreach_lerp_, torch.optim.swa_utils; hotloop fix "
            "writes it), or every few steps."
        )
    if each == "scan":
        return "Look at all gradients in one call (torch._foreach_norm or clip_grad_norm_), every N steps."
    if _AUGMENTS.search(group.hottest.source):
        return (
            "Augment in the dataset or in collate_fn, so that loader workers do it while the model trains; "
            "what is not random needs doing only once."
        )
    if group.nature == "waiting":
        return "Take the waiting out of the step: do it in a thread, less often, or not at all."
    if inner_loop(evidence, group.hottest) is not None:
        return (
            "Replace the Python loop by operations on the whole tensor, do it once before training, or less "
            "often."
        )
    return "Do this work less often, on whole tensors, or outside the training loop."
