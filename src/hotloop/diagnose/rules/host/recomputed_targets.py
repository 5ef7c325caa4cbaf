"""Targets that depend on the batch alone are made inside the step."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.collating import ASKING, at_calls, giving_back_s
from hotloop.diagnose.evidence import Evidence, at, cause, reachable, rule, spot
from hotloop.diagnose.groups import LineGroup, group_lines, sampled_interval, select, without
from hotloop.diagnose.line_kinds import is_random
from hotloop.diagnose.python_work import is_wait
from hotloop.diagnose.repeating import tried
from hotloop.diagnose.source import function_text
from hotloop.findings import Finding
from hotloop.units import duration, share


@rule("host/recomputed-targets")
def check(evidence: Evidence) -> Iterable[Finding]:
    """Work in the step whose input is the batch and not the model: the loader could have done it."""
    steps, limits = evidence.steps, evidence.limits
    lines = select(steps, lambda line: line.role == "targets" and line.phase not in ("startup", "evaluation"))
    loading = at_calls(steps, *ASKING)
    groups = group_lines(line for line in lines if line not in loading and not is_wait(line))
    returned_s = max(0.0, giving_back_s(steps) - sum(line.seconds for line in loading))
    for group in without(groups, returned_s)[:3]:
        exposed = steps.exposed(group.hottest.phase)
        if group.seconds * exposed < limits.worth_fixing_ratio * steps.span_s:
            continue
        if group.num_samples >= limits.min_samples:
            yield _finding(evidence, group, exposed)


def _finding(evidence: Evidence, group: LineGroup, exposed: float) -> Finding:
    steps = evidence.steps
    hottest = group.hottest
    cost = group.seconds * exposed / steps.num_steps
    function = group.function
    if steps.source_loop is not None and function == steps.source_loop.function:
        function = ""  # it stands in the loop itself
    subject = f"{function}()" if function else "Work on the batch"
    named = reachable(hottest.place, function)
    varies = is_random(function_text(evidence, hottest.place))
    kept = not varies and not tried(evidence)
    return cause(
        evidence,
        message=(
            f"{subject}{at(hottest.place)} depends on the batch alone, yet it is done in every step: "
            f"{duration(cost)} ({share(cost / steps.step_s)})."
        ),
        advice=_advice(varies, named if kept else None),
        numbers=[
            f"{duration(group.seconds / steps.num_steps)} per step from {group.num_samples} samples",
            f"hottest line {spot(hottest.place)}: {hottest.source.strip()}",
            "nothing of it depends on the model's output or parameters",
        ],
        cost_s=cost,
        where=hottest.place,
        ci95=sampled_interval(cost, group.num_samples),
        remedies=("memoize",) if kept else (),
        data={"random": varies, "nature": group.nature, "function": named},
    )


def _advice(varies: bool, named: str | None) -> str:
    if varies:
        return "Move it into the dataset or collate_fn, so that loader workers do it while the model trains."
    advice = (
        "Compute it once with the data, or in the dataset so that loader workers do it; vectorize its loops."
    )
    return f"{advice} Without an edit: --apply memoize={named}" if named else advice
