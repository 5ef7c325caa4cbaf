"""What is worth trying: from the diagnosis to remedies with values, the promising ones first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final

from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding
from hotloop.measure.steps import Steps
from hotloop.remedy import catalogue
from hotloop.remedy.catalogue import Applied
from hotloop.remedy.remedy import EFFECTS, Remedy
from hotloop.tune import by_model
from hotloop.tune.candidate import Candidate, LeftOut, Limits, onto
from hotloop.tune.patching import OF_LOADERS
from hotloop.tune.trial import Arm, edited, effect_of

_WORKERS: Final = ("num-workers", "no-workers")
#: Useless without each other.
_TOGETHER: Final = ("pin-memory", "non-blocking")
#: Says how much more rarely something is to come.
_RARER: Final = "every"
#: What a finding knows of a remedy that saves only part of its cost.
_SAVES: Final = {"evaluation-workers": "loader_saves_s", "memoize": "function_saves_s"}
#: A finding whose cost is less of a step asks for nothing.
_LEAST_SHARE: Final = 0.02
#: A predicted gain that is not worth launches; the same for other values of what was taken up.
_LEAST_GAIN: Final = 1.02
_AGAIN: Final = 1.1


def ideas(
    evidence: Evidence,
    findings: Sequence[Finding],
    have: Arm,
    limits: Limits,
    tried: Collection[str],
    *,
    once: bool = False,
    cannot: Callable[[Arm], str],
    draws: Collection[str] = (),
    steps: int | None = None,
) -> tuple[list[Candidate], list[LeftOut]]:
    """What to try on top of ``have``, given a run under it, the most promising first, and what is left out.

    ``tried``: spellings of arms that were. ``once``: the run goes through its data a single time. ``cannot``:
    why what in an arm has no live form cannot be tried as a patch. ``draws``: generators that samples were
    seen to draw from. ``steps``: of a launch that is cut short.
    """
    found: dict[str, Candidate] = {}
    left: dict[str, LeftOut] = {}
    pipeline = by_model.pipeline_of(evidence)
    if pipeline is not None and once:
        pipeline = by_model.in_one_pass(pipeline)
    step_s = evidence.steps.step_s
    rewritten = {one.remedy.id for one in edited(have)}  # what they ask for now is of the code as it runs
    for finding in findings:
        if finding.cost_s_per_step < _LEAST_SHARE * step_s and not finding.data.get("unpriced"):
            continue
        ratio = _gives(finding, step_s)
        if not _remedies(finding):
            why = "no change that a launch could have in force"
            left[finding.id] = _left(finding.id, finding, why, finding.advice, ratio)
        for remedy in _remedies(finding):
            if remedy.id in rewritten:
                continue
            why_not = _no_samples(remedy, finding, evidence.steps)
            together = [catalogue.get(name) for name in finding.remedies if name in _TOGETHER]
            group = together if remedy in together else [remedy]
            new = [Applied(remedy=each, value=_value(each, finding, steps)) for each in group]
            asked = next(each for each in new if each.remedy is remedy)
            gives = _gives(finding, step_s, remedy.id)
            why_not = why_not or _why_not(asked, finding, limits, gives, draws)
            times = (getattr(remedy.parameter, "name", "") == _RARER and asked.value) or 1
            if why_not is None and steps is not None and 2 * times * _every(finding) > steps:
                why_not = _by_hand(remedy, finding, "comes too rarely for a trial", gives)
            wanted = remedy.spell(_value(remedy, finding))
            if why_not is None and wanted != str(asked):
                why = f"comes less than twice in a trial; tried as {asked}"
                left.setdefault(wanted, LeftOut(remedy=wanted, why=why))
            if why_not is not None:
                left.setdefault(remedy.id, why_not)
                continue
            candidate = Candidate(arm=onto(have, new), why=finding.id, predicted=gives or None)
            if edited(tuple(new)):
                arm, why = _writable(have, new, cannot)
                if why:
                    left.setdefault(remedy.id, _by_hand(remedy, finding, why, gives))
                    continue
                candidate = replace(candidate, arm=arm)
            found.setdefault(candidate.name, candidate)
    if pipeline is not None and any(finding.id.startswith("input/") for finding in findings):
        cache = onto(have, [catalogue.parse("cache-samples")])
        cached = by_model.cached(pipeline, evidence, cache, found.values())
        for one in (
            *by_model.settings(pipeline, have, once=once),
            *cached,
            *by_model.without_workers(pipeline, cached),
        ):
            if not (_is_iterable(evidence.steps) and any(each.remedy.id in _WORKERS for each in one.arm)):
                found[one.name] = one
    kept: dict[str, Candidate] = {}
    for one in found.values():
        if one.name not in tried and set(map(str, one.arm)) != set(map(str, have)):
            told = by_model.predicted(pipeline, one, have)
            if _worth(told, have):
                kept.setdefault(told.name, told)
    return _varied(kept.values()), list(left.values())


def _worth(told: Candidate, have: Arm) -> bool:
    """Whether a candidate is worth launches, as far as the model can say."""
    asked = told.why != by_model.MODEL and not have
    if told.bounds is not None and told.bounds[1] < _LEAST_GAIN and not asked:
        return False
    again = {one.remedy.id for one in told.arm} == {one.remedy.id for one in have}
    least = _AGAIN if again else _LEAST_GAIN if told.why == by_model.MODEL else 0.0
    return (told.predicted or 1.0) > least


def _varied(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The largest predicted gain first, and before the same remedies with other values different ones."""
    ordered = sorted(candidates, key=lambda one: -(one.predicted or 1.0))
    seen: Counter[frozenset[str]] = Counter()
    turns = []
    for one in ordered:
        names = frozenset(part.remedy.id for part in one.arm)
        turns.append(seen[names])
        seen[names] += 1
    return [one for _, one in sorted(zip(turns, ordered, strict=True), key=lambda pair: pair[0])]


def _remedies(finding: Finding) -> list[Remedy]:
    """Those the finding names, then what else answers it and can be tried."""
    named = [catalogue.get(name) for name in finding.remedies]
    others = [one for one in catalogue.answering(finding.id) if one.live and not one.where_named]
    return [*named, *(one for one in others if one not in named)]


def _why_not(
    one: Applied, finding: Finding, limits: Limits, ratio: float, draws: Collection[str]
) -> LeftOut | None:
    remedy = one.remedy
    if remedy.stores and draws:
        why = f"samples draw from {', '.join(draws)}: bake what comes before that"
        return LeftOut(remedy=remedy.id, why=why)
    if remedy.stores:
        return _by_hand(remedy, finding, "not tried: it writes every sample to files that stay", ratio)
    if edited((one,)) and not remedy.source:
        return _by_hand(remedy, finding, "cannot be tried without an edit", ratio)
    effect = effect_of(one)
    if EFFECTS.index(effect) > EFFECTS.index(limits.allow):
        return _by_hand(
            remedy, finding, f"{effect}: needs --allow {effect}", ratio if edited((one,)) else 0.0
        )
    return None


def _writable(have: Arm, new: list[Applied], cannot: Callable[[Arm], str]) -> tuple[Arm, str]:
    """The arm with the largest number asked for that a patch can be made with: half of it, half of that, ...

    With why there is none: a run of twelve evaluations cannot keep one in 75, but one in 9.
    """
    arm = onto(have, new)
    why = first = cannot(arm)
    while why and len(new) == 1 and isinstance(new[0].value, int) and new[0].value > 3:
        new = [replace(new[0], value=new[0].value // 2)]
        arm = onto(have, new)
        why = cannot(arm)
    return arm, first if why else ""


def _every(finding: Finding) -> float:
    """Steps between two occurrences of what a finding speaks of, inf where one was seen."""
    return float(finding.data.get("steps_between", 1) or inf)


def _gives(finding: Finding, step_s: float, remedy_id: str = "") -> float:
    """The gain without what a finding costs, or what a remedy saves of it; 0 where only launches show it."""
    saves_s = float(finding.data.get(_SAVES.get(remedy_id, ""), finding.cost_s_per_step))
    return 0.0 if finding.data.get("unpriced") else step_s / max(step_s - saves_s, 0.05 * step_s)


def _by_hand(remedy: Remedy, finding: Finding, why: str, ratio: float) -> LeftOut:
    """What is left to a person."""
    return _left(remedy.id, finding, why, remedy.said(_value(remedy, finding)), ratio)


def _left(name: str, finding: Finding, why: str, by_hand: str, ratio: float) -> LeftOut:
    """With the most that it can give, where that is known."""
    return LeftOut(remedy=name, why=why, by_hand=by_hand, most=ratio, cause=finding.id)


def _no_samples(remedy: Remedy, finding: Finding, steps: Steps) -> LeftOut | None:
    """What needs the samples of a DataLoader, or cannot be given to an iterable dataset, whose workers decide
    what is read.
    """
    feeding = any(one.role == "train" and not one.own for one in steps.loaders)
    if not feeding and (remedy.indexed or remedy.id in OF_LOADERS):
        return LeftOut(remedy=remedy.id, why="the batches come from no DataLoader")
    if not _is_iterable(steps):
        return None
    if remedy.indexed:
        return LeftOut(remedy=remedy.id, why="the dataset is iterable: its samples have no number")
    if remedy.id not in _WORKERS:
        return None
    why = "the dataset is iterable: its workers decide what is read, and in which order"
    words = (
        f"num_workers={_value(remedy, finding) or 0}, if __iter__ takes a worker's part by get_worker_info()"
    )
    return LeftOut(remedy=remedy.id, why=why, by_hand=words)


def _is_iterable(steps: Steps) -> bool:
    loader = steps.train_loader()
    return loader is not None and bool(loader.settings.get("iterable"))


def _value(remedy: Remedy, finding: Finding, steps: int | None = None) -> Any:
    """What the finding asks for; what is to come more rarely, so that it comes twice in so many steps."""
    parameter = remedy.parameter
    if parameter is None:
        return None
    asked = finding.data.get(parameter.finding_key) if parameter.finding_key else None
    value = asked if asked is not None else parameter.default
    if steps is not None and parameter.name == _RARER and value is not None:
        return min(value, max(2, int(steps / (2 * _every(finding)))))
    return value
