"""What is worth trying: from the diagnosis to remedies with values, the promising ones first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final

from hotloop.diagnose import Evidence
from hotloop.diagnose.reading import is_random, may_vary
from hotloop.diagnose.source import dataset_text
from hotloop.errors import UsageError
from hotloop.feed.throughput import Setting
from hotloop.findings import Finding
from hotloop.measure.steps import Steps
from hotloop.remedy import catalogue
from hotloop.remedy.catalogue import Applied
from hotloop.remedy.remedy import EFFECTS, Effect, Remedy
from hotloop.tune.pipeline import Pipeline, Setup, calibrate, gain, predict
from hotloop.tune.pipeline.pipeline import AHEAD, Memory
from hotloop.tune.pipeline.predict import fast
from hotloop.tune.trial import Arm, edited, effect_of, spell
from hotloop.units import size

#: Of these one at a time.
_EITHER: Final = (
    ("num-workers", "no-workers"),
    ("autocast-bf16", "autocast-fp16"),
    ("compile", "cuda-graphs"),
    ("fused-optimizer", "foreach"),
    ("foreach-loop", "foreach-lerp"),
)
_WORKERS: Final = ("num-workers", "no-workers")
#: Useless without each other.
_TOGETHER: Final = ("pin-memory", "non-blocking")
#: A finding whose cost is less of a step asks for nothing.
_LEAST_SHARE: Final = 0.02
#: A predicted gain that is not worth launches, and how much worse a smaller setting may be predicted.
_LEAST_GAIN: Final = 1.02
#: The same for other values of what was taken up.
_AGAIN: Final = 1.1
_SLACK: Final = 1.02
_ALIKE: Final = 1.005
#: Numbers of workers that are thought of, where the cores, memory and descriptors have room for them.
_WORKERS_TRIED: Final = (*range(9), *range(10, 17, 2), 20, 24, 32, 40, 48, 56, 64)
#: Batches ahead in all, at most, and what they may take of the memory beyond so many workers as they are.
_USUAL: Final = 16
_MOST_AHEAD: Final = 256
_MOST_AHEAD_BYTES: Final = 2 << 30
#: What says so where it is no finding.
_MODEL: Final = "pipeline"
#: Batches of an epoch that make the workers' start and end worth a look.
SHORT_EPOCH: Final = 200


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An arm to try in place of the one in force. ``predicted``: speed ratio to that one, where known."""

    arm: Arm
    why: str
    predicted: float | None = None
    bounds: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        """How it is spelled."""
        return spell(self.arm)


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """What is not tried, and why; ``by_hand`` says how to do it.

    ``most`` is what ``cause`` costs as a whole, as a ratio; 0 where that is not known.
    """

    remedy: str
    why: str
    by_hand: str = ""
    most: float = 0.0
    cause: str = ""

    @property
    def words(self) -> str:
        """Why, with what it can give at most."""
        return self.why + (f"; up to {self.most:.2f}x, all that {self.cause} costs" if self.most else "")


@dataclass(frozen=True, kw_only=True)
class Ideas:
    """What a diagnosis gives to try, the most promising first, and what is left out."""

    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a candidate must keep to."""

    allow: Effect
    most_bytes: float | None = None

    def forbids(self, effect: Effect) -> bool:
        """Whether that alters more than is allowed."""
        return EFFECTS.index(effect) > EFFECTS.index(self.allow)


def ideas(
    evidence: Evidence,
    findings: Sequence[Finding],
    have: Arm,
    limits: Limits,
    tried: Collection[str],
    *,
    once: bool = False,
    alone_s: float | None = None,
    cannot: Callable[[Arm], str] | None = None,
    written: Collection[str] = (),
    several: Collection[str] = (),
    draws: Collection[str] = (),
    anew: bool = False,
) -> Ideas:
    """What to try on top of ``have``, given a run under it; ``tried`` are spellings of arms that were.

    ``once``: the run goes through its data a single time. ``alone_s``: what a step takes that waits for
    nothing, where that was measured. ``cannot``: why what in an arm has no live form cannot be
    tried as a patch; None: nothing is. ``written``: remedies to try as one though they have a live form;
    ``several``: those whose live form changes more than their patch, tried as one where it can be made.
    ``draws``: generators that samples were seen to draw from; ``anew``: a trial saw samples change between
    epochs.
    """
    found: dict[str, Candidate] = {}
    left: dict[str, LeftOut] = {}
    pipeline = pipeline_of(evidence, alone_s if not have or setup_of(have) is not None else None)
    if pipeline is not None and once:
        pipeline = in_one_pass(pipeline)
    if pipeline is not None and anew:
        pipeline = replace(pipeline, anew=True)
    step_s = evidence.steps.step_s
    random = _random(evidence, draws)
    rewritten = {one.remedy.id for one in edited(have)}  # what they ask for now is of the code as it runs
    for finding in findings:
        unpriced = bool(finding.data.get("unpriced"))  # what it costs shows in launches alone
        if finding.cost_s_per_step < _LEAST_SHARE * step_s and not unpriced:
            continue
        ratio = 0.0 if unpriced else step_s / max(step_s - finding.cost_s_per_step, 0.05 * step_s)
        for remedy in _remedies(finding):
            if remedy.id in rewritten:
                continue
            why_not = _no_samples(remedy, finding, evidence.steps)
            together = [catalogue.get(name) for name in finding.remedies if name in _TOGETHER]
            group = together if remedy in together else [remedy]
            new = [
                Applied(remedy=each, value=_value(each, finding), written=each.id in written)
                for each in group
            ]
            asked = next(each for each in new if each.remedy is remedy)
            why_not = why_not or _why_not(
                asked, finding, limits, ratio, patched=cannot is not None, random=random
            )
            if why_not is not None:
                left.setdefault(remedy.id, why_not)
                continue
            candidate = Candidate(arm=onto(have, new), why=finding.id, predicted=ratio or None)
            why = ""
            if cannot is not None and edited(tuple(new)):
                arm, why = _writable(have, new, cannot)
                candidate = replace(candidate, arm=arm)
            if why:
                left.setdefault(remedy.id, _by_hand(remedy, finding, why, ratio))
                continue
            found.setdefault(candidate.name, candidate)
    if pipeline is not None and any(finding.id.startswith("input/") for finding in findings):
        cached = _cached(pipeline, evidence, onto(have, [catalogue.parse("cache-samples")]), found.values())
        for one in (
            *_by_model(pipeline, have, once=once),
            *cached,
            *_without_workers(pipeline, have, cached),
        ):
            if not (_is_iterable(evidence.steps) and any(each.remedy.id in _WORKERS for each in one.arm)):
                found[one.name] = one
    kept: dict[str, Candidate] = {}
    for each in found.values():
        one = replace(each, arm=_as_patched(each.arm, several, limits, cannot))
        why = _over(pipeline, one, have, limits)
        if why:
            left[one.name] = LeftOut(remedy=one.name, why=why)
        elif one.name not in tried and set(map(str, one.arm)) != set(map(str, have)):
            told = _told(pipeline, one, have)
            if _worth(told, have):
                kept.setdefault(told.name, told)
    return Ideas(candidates=tuple(_varied(kept.values())), left_out=tuple(left.values()))


def in_one_pass(pipeline: Pipeline) -> Pipeline:
    """The model of a run of a single epoch: no worker stays for another or is waited for at its end."""
    recorded = replace(pipeline.recorded, persistent_workers=False)
    return replace(pipeline, recorded=recorded, epoch=replace(pipeline.epoch, stop_s=0.0))


def _worth(told: Candidate, have: Arm) -> bool:
    """Whether a candidate is worth launches, as far as the model can say."""
    asked = told.why != _MODEL and not have
    if told.bounds is not None and told.bounds[1] < _LEAST_GAIN and not asked:
        return False
    again = {one.remedy.id for one in told.arm} == {one.remedy.id for one in have}
    least = _AGAIN if again else _LEAST_GAIN if told.why == _MODEL else 0.0
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
    one: Applied, finding: Finding, limits: Limits, ratio: float, *, patched: bool, random: str
) -> LeftOut | None:
    remedy = one.remedy
    if remedy.stores and random:
        return LeftOut(remedy=remedy.id, why=f"{random}: bake what comes before that")
    if remedy.stores:
        return _by_hand(remedy, finding, "not tried: it writes every sample to files that stay", ratio)
    if edited((one,)) and not (patched and remedy.source):
        return _by_hand(remedy, finding, "cannot be tried without an edit", ratio)
    effect = effect_of(one)
    if limits.forbids(effect):
        return _by_hand(
            remedy, finding, f"{effect}: needs --allow {effect}", ratio if edited((one,)) else 0.0
        )
    return None


def _random(evidence: Evidence, draws: Collection[str]) -> str:
    """What says that samples may be others in each epoch, "" where nothing does."""
    if draws:
        return f"samples draw from {', '.join(draws)}"
    loader = evidence.steps.train_loader()
    if loader is None:
        return ""
    varies = may_vary(map(str, loader.dataset.get("transforms") or ()))
    return "samples may be random" if varies or is_random(dataset_text(evidence, loader)) else ""


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


def _as_patched(
    arm: Arm, several: Collection[str], limits: Limits, cannot: Callable[[Arm], str] | None
) -> Arm:
    """An arm with the patches of those remedies in place of their live forms, where they can be made.

    None of them is live beside a patch: it would meet the loaders that are not patched. One whose patch
    alters more than is allowed goes.
    """
    patched = [replace(one, written=True) if one.remedy.id in several else one for one in arm]
    patched = [one for one in patched if one.remedy.id not in several or not limits.forbids(effect_of(one))]
    made = cannot is not None and any(one.written for one in patched) and not cannot(tuple(patched))
    return tuple(patched) if made else arm


def _by_hand(remedy: Remedy, finding: Finding, why: str, ratio: float) -> LeftOut:
    """What is left to a person, and the most that it can give where that is known."""
    value = str(_value(remedy, finding) or "N")
    words = remedy.words.replace("{value!r}", "{value}").replace("{value}", value)
    return LeftOut(remedy=remedy.id, why=why, by_hand=words, most=ratio, cause=finding.id)


def _no_samples(remedy: Remedy, finding: Finding, steps: Steps) -> LeftOut | None:
    """What needs the samples of a DataLoader, or cannot be given to an iterable dataset, whose workers decide
    what is read.
    """
    if not steps.loaders and remedy.indexed:
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


def _value(remedy: Remedy, finding: Finding) -> Any:
    parameter = remedy.parameter
    if parameter is None:
        return None
    asked = finding.data.get(parameter.finding_key) if parameter.finding_key else None
    return asked if asked is not None else parameter.default


def onto(have: Arm, new: Iterable[Applied]) -> Arm:
    """``have`` with remedies added; what they replace or exclude goes."""
    added = list(new)
    names = {one.remedy.id for one in added}
    gone = names.union(*(set(group) for group in _EITHER if names & set(group)))
    kept = [one for one in have if one.remedy.id not in gone]
    return tuple(sorted([*kept, *added], key=lambda one: one.remedy.id))


def switchable(one: Applied) -> bool:
    """Whether a remedy can be switched on and off within a run."""
    if edited((one,)):
        return False
    module, _, form = one.remedy.live.partition(":")
    return bool(getattr(import_module(module), form).switchable)


# -- the pipeline model --------------------------------------------------------------------------------------


def pipeline_of(evidence: Evidence, alone_s: float | None = None) -> Pipeline | None:
    """The model of a run; None where there is no pipeline to speak of: no loader, too few steps."""
    try:
        return replace(calibrate(evidence), alone_s=alone_s)
    except UsageError:
        return None


def setup_of(arm: Arm) -> Setup | None:
    """What the model calls an arm; None where something in it is not the loader's."""
    setup = Setup()
    for one in arm:
        match one.remedy.id:
            case "num-workers":
                setup = replace(setup, num_workers=one.value)
            case "no-workers":
                setup = replace(setup, num_workers=0)
            case "prefetch-factor":
                setup = replace(setup, prefetch_factor=one.value)
            case "persistent-workers":
                setup = replace(setup, persistent_workers=True)
            case "cache-samples":
                setup = replace(setup, hit_rate=1.0)
            case _:
                return None
    return setup


def _by_model(pipeline: Pipeline, have: Arm, *, once: bool) -> Iterator[Candidate]:
    """The best few settings of the loader by prediction: of what is near the best, and of what is as good,
    what takes least memory.
    """
    recorded = pipeline.recorded
    short = pipeline.batches_per_epoch < SHORT_EPOCH and not once and not pipeline.anew
    best: dict[bool, list[tuple[Setup, float]]] = {}
    for kept in dict.fromkeys((bool(recorded.persistent_workers), short)):
        setups = [replace(setup, persistent_workers=kept) for setup in _settings(pipeline)]
        best[kept] = [(setup, fast(pipeline, setup)) for setup in setups]
    # Workers that stay are another remedy: they have to be worth it.
    known = min(
        best.items(), key=lambda one: min(seconds for _, seconds in one[1]) * (_SLACK if one[0] else 1.0)
    )[1]
    tries = [_least(known, _SLACK)]
    if predict(pipeline, tries[0]).confirm:
        tries.append(_least(known, _ALIKE))
    for setup in dict.fromkeys(tries):
        yield from _loader(have, recorded, setup)


def _least(known: Sequence[tuple[Setup, float]], slack: float) -> Setup:
    """The first that is near the fastest."""
    most_s = slack * min(seconds for _, seconds in known)
    return next(setup for setup, seconds in known if seconds <= most_s)


def _settings(pipeline: Pipeline) -> list[Setup]:
    """The numbers of workers and batches ahead that there is room for, what takes least memory first."""
    recorded, memory = pipeline.recorded, pipeline.memory
    now = recorded.prefetch_factor or 2
    if pipeline.alone:
        return [Setup(num_workers=0, prefetch_factor=now)]
    # Workers that compute gain nothing beyond the cores.
    most = (recorded.cores or 1.0) / max(pipeline.make_cores, 1e-3) + 2
    most_ahead = min(_MOST_AHEAD, pipeline.batches_per_epoch)
    found = [Setting("process", 0, now)]
    for workers in (count for count in _WORKERS_TRIED if 0 < count <= most):
        depths = {*(now * depth for depth in (2, 4, 8, 16)), -(-AHEAD // workers)}
        deeper = [depth for depth in depths if now < depth <= most_ahead / workers]
        found += [Setting("process", workers, depth) for depth in (now, *deeper)]
    taken_bytes = _taken(memory, Setting("process", recorded.num_workers or 0, now))
    room_bytes = taken_bytes + memory.room_bytes / (recorded.ranks or 1)
    usual = [one for one in found if one.prefetch_factor == now and one.num_workers <= _USUAL]
    fitting = [
        one
        for one in found
        if not one.num_workers
        or (
            _taken(memory, one) <= room_bytes
            and (one in usual or one.num_ahead * memory.batch_bytes <= _MOST_AHEAD_BYTES)
            and memory.carries(one.num_workers, one.prefetch_factor)
        )
    ]
    fitting.sort(key=lambda one: (_taken(memory, one), one.num_workers, one.prefetch_factor))
    return [Setup(num_workers=one.num_workers, prefetch_factor=one.prefetch_factor) for one in fitting]


def _taken(memory: Memory, setting: Setting) -> int:
    return setting.memory_bytes(int(memory.worker_bytes), int(memory.batch_bytes))


def _cached(pipeline: Pipeline, evidence: Evidence, arm: Arm, found: Iterable[Candidate]) -> list[Candidate]:
    """The cache that a finding asks for; where none does, one that epochs seen to repeat would use."""
    asked = [one for one in found if one.arm == arm]
    loader = evidence.steps.train_loader()
    repeats = (
        loader is not None
        and loader.num_iterators > 1
        and not (pipeline.iterable or pipeline.alone or pipeline.anew)
    )
    return asked or ([Candidate(arm=arm, why=_MODEL)] if repeats else [])


def _without_workers(pipeline: Pipeline, have: Arm, cached: Iterable[Candidate]) -> Iterator[Candidate]:
    """What a cache hands out at once needs no workers, whose batches have to be shipped."""
    if pipeline.recorded.num_workers:
        for one in cached:
            yield Candidate(arm=onto(one.arm, [catalogue.parse("no-workers")]), why=_MODEL)


def _loader(have: Arm, recorded: Setup, wanted: Setup) -> Iterator[Candidate]:
    """The arm that makes a loader of ``recorded`` one of ``wanted``, if anything is to be changed."""
    words = []
    if wanted.num_workers != recorded.num_workers:
        words.append(f"num-workers={wanted.num_workers}" if wanted.num_workers else "no-workers")
    if wanted.num_workers and wanted.persistent_workers and not recorded.persistent_workers:
        words.append("persistent-workers")
    if wanted.num_workers and wanted.prefetch_factor not in (None, recorded.prefetch_factor):
        words.append(f"prefetch-factor={wanted.prefetch_factor}")
    if words:
        yield Candidate(arm=onto(have, map(catalogue.parse, words)), why=_MODEL)


def _told(pipeline: Pipeline | None, one: Candidate, have: Arm) -> Candidate:
    """With what the model predicts, where it can speak: relative to the run under ``have``."""
    setup = setup_for(one.arm, have, pipeline)
    if pipeline is None or setup is None:
        return one
    ratio, low, high = gain(pipeline, setup)
    return replace(one, predicted=ratio, bounds=(low, high))


def setup_for(arm: Arm, have: Arm, pipeline: Pipeline | None) -> Setup | None:
    """What is new in an arm, as a setup; ``have`` is in force in the run the model was made from.

    A cache holds as many samples as memory has room for.
    """
    known = set(map(str, have))
    new = tuple(one for one in arm if str(one) not in known)
    setup = setup_of(new) if new else None
    if setup is None or not setup.hit_rate or pipeline is None:
        return setup
    sample = pipeline.memory.batch_bytes / max(1.0, pipeline.batch_samples)
    whole = sample * pipeline.num_samples
    room = min(whole, pipeline.memory.room_bytes)
    return replace(setup, hit_rate=room / whole if whole > 0 else 1.0, cache_bytes=room)


def _over(pipeline: Pipeline | None, one: Candidate, have: Arm, limits: Limits) -> str:
    setup = setup_for(one.arm, have, pipeline)
    if pipeline is None or setup is None or limits.most_bytes is None:
        return ""
    wanted = predict(pipeline, setup).host_bytes
    if wanted <= limits.most_bytes:
        return ""
    return f"predicted to use {size(wanted)} of memory, the limit is {size(limits.most_bytes)}"
