"""The four plans: conservative, balanced, aggressive, low-memory. What does not beat the noise is no plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from hotloop import units
from hotloop.feed.budget import headroom_of
from hotloop.feed.throughput import expected_hit_rate
from hotloop.findings import Finding
from hotloop.footprint.budgets import chosen
from hotloop.model import Pipeline, Prediction, Setup, gain, predict
from hotloop.remedy import catalogue
from hotloop.remedy.catalogue import Applied
from hotloop.remedy.remedy import EFFECTS, Effect
from hotloop.tune.calibrate import OTHERS
from hotloop.tune.plans.settings import Advance, Field, Timed, setting_of, setup_of

Name = Literal["conservative", "balanced", "aggressive", "low-memory"]

#: Settings within this of the fastest are as fast: the one that takes least is chosen.
_AS_FAST: Final = 0.02
_FASTEST: Final = 0.01
#: From this gain on, a change whose prediction is unsure is worth measuring.
_WORTH_MEASURING: Final = 1.10
#: A plan for memory must save this share of it.
_WORTH_SAVING: Final = 0.05
#: Restarting workers every epoch is worth a word from this share of the time on.
_WORTH_KEEPING: Final = 0.01
#: A diagnosis' estimate takes at most this share off a step.
_MOST_SAVED: Final = 0.7

#: Findings that a cache answers, where the samples are the same in each epoch.
_CACHED: Final = "input/repeated-work"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where it is to run. ``other`` where it is not the machine of the run, ``step_s`` of another device."""

    cores: float
    memory_bytes: float
    ranks: int
    step_s: float | None = None
    other: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One way to run. ``settings`` are what changes of the loader's arguments, ``remedies`` what else does.

    ``gain`` is (ratio, low, high) over the settings of the run on the same machine. ``recommended``: it beats
    them by more than the noise (low-memory: takes less and is no slower). Where not, ``why`` says so.
    """

    name: Name
    setup: Setup  # every field set
    settings: Mapping[str, Any]
    remedies: tuple[Applied, ...]
    effect: Effect
    alters: tuple[str, ...]
    prediction: Prediction
    gain: tuple[float, float, float]
    recommended: bool
    why: str
    cache_bytes: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Plans:
    """All four, beside the settings of the run on the same machine."""

    machine: Machine
    pipeline: Pipeline
    on: Setup  # the run's own settings, there
    now: Prediction
    plans: tuple[Plan, ...]
    doubts: tuple[str, ...]


def make(pipeline: Pipeline, machine: Machine, findings: Sequence[Finding], advance: Advance) -> Plans:
    """Works the four plans out."""
    on = Setup(
        cores=machine.cores if machine.other else None,
        ranks=machine.ranks if machine.ranks != pipeline.recorded.ranks else None,
        step_s=machine.step_s,
    )
    now = predict(pipeline, on)
    search = _Search(pipeline, machine, findings, on, now)
    plans = search.plans(advance)
    return Plans(
        machine=machine,
        pipeline=pipeline,
        on=pipeline.complete(on),
        now=now,
        plans=plans,
        doubts=_doubts(pipeline, machine, now),
    )


class _Search:
    """The settings that fit the machine, and what the run's findings ask for beside them."""

    def __init__(
        self,
        pipeline: Pipeline,
        machine: Machine,
        findings: Sequence[Finding],
        on: Setup,
        now: Prediction,
    ) -> None:
        self.pipeline, self.machine, self.findings, self.on, self.now = pipeline, machine, findings, on, now
        room = machine.memory_bytes - headroom_of(int(machine.memory_bytes))
        room = room / machine.ranks - pipeline.memory.main_bytes
        self.field = Field(pipeline=pipeline, on=on, room_bytes=max(0.0, room))

    def plans(self, advance: Advance) -> tuple[Plan, ...]:
        """The four, in the order they ask more."""
        timed = self.field.all(lambda share, words: advance(share / 2, words))
        kept = self._kept()
        lasting = timed if kept is None else kept.all(lambda share, words: advance((1 + share) / 2, words))
        return (
            self._conservative(timed),
            self._balanced(lasting, kept or self.field),
            self._aggressive(lasting, kept or self.field),
            self._low(timed),
        )

    def _conservative(self, timed: Sequence[Timed]) -> Plan:
        """Workers on at most half of the cores, two batches ahead, half of the memory; nothing else."""
        most = max(1, int(self.machine.cores / self.machine.ranks / 2))
        half = self.machine.memory_bytes / 2 / self.machine.ranks - self.pipeline.memory.main_bytes
        small = [
            one
            for one in timed
            if one.setting.num_workers <= most
            and one.setting.prefetch_factor <= 2
            and one.extra_bytes <= half
        ]
        return self._plan("conservative", self.field.least(small or timed[:1], _AS_FAST), (), "")

    def _balanced(self, timed: Sequence[Timed], found: Field) -> Plan:
        """The least that is as fast as anything, and what keeps every number of the training."""
        usual = [one for one in timed if one.setting.prefetch_factor != 1]  # fewer ahead save little memory
        return self._plan("balanced", found.least(usual, _AS_FAST), self._asked("exact"), "")

    def _aggressive(self, timed: Sequence[Timed], found: Field) -> Plan:
        """The fastest that fits, samples in memory where they can be, lower precision where it pays."""
        remedies = self._asked("numeric")
        best = found.least(timed, _FASTEST)
        cache = self._cache(best)
        if cache is None:
            return self._plan("aggressive", best, remedies, "")
        setup, words = cache
        held = replace(found, on=setup, known={})
        # Where all samples fit no value is given: it would have to hold tables and more of each sample.
        value = None if setup.hit_rate == 1 else f"{max(1, int(setup.cache_bytes / 2**20))}MiB"
        cached = Applied(remedy=catalogue.get("cache-samples"), value=value)
        setup = held.least(held.all(lambda share, words: None), _FASTEST)
        return self._plan("aggressive", setup, (cached, *remedies), words)

    def _low(self, timed: Sequence[Timed]) -> Plan:
        """The least memory that is no slower than the settings of the run."""
        limit = self.now.s_per_step * (1 + _AS_FAST)
        least = next((one for one in timed if one.s_per_step <= limit), None)
        setup = setup_of(least.setting, self.on) if least is not None else self.on
        return self._plan("low-memory", setup, (), "")

    def _cache(self, best: Setup) -> tuple[Setup, str] | None:
        """The setup with samples in memory, where the run's samples are the same in each epoch."""
        asked = any(finding.id == _CACHED for finding in self.findings)
        sample = self.pipeline.memory.batch_bytes / max(1.0, self.pipeline.batch_samples)
        whole = sample * self.pipeline.num_samples
        if not asked or whole <= 0:
            return None
        taken = predict(self.pipeline, best).host_bytes
        room = min(whole, chosen(int(self.machine.memory_bytes), taken_bytes=taken))
        rate = expected_hit_rate("keep", room / whole)
        words = f"a cache of {units.size(room)} holds {units.share(room / whole)} of the samples"
        return replace(best, hit_rate=rate, cache_bytes=room), words

    def _asked(self, allowed: Effect) -> tuple[Applied, ...]:
        """What the findings ask for beside loading, by cost; one remedy for each."""
        found: dict[str, Applied] = {}
        for finding in self.findings:
            if finding.id.startswith("input/") or finding.cost_s_per_step <= 0:
                continue
            for remedy in map(catalogue.get, finding.remedies):
                if remedy.live and EFFECTS.index(remedy.effect) <= EFFECTS.index(allowed):
                    parameter = remedy.parameter
                    value = finding.data.get(parameter.finding_key, parameter.default) if parameter else None
                    found.setdefault(remedy.id, Applied(remedy=remedy, value=value))
                    break
        return tuple(found.values())

    def _saved_s(self, remedies: Iterable[Applied]) -> float:
        """What the findings say these would save of a step's own work."""
        ids = {one.remedy.id for one in remedies}
        saved = sum(
            finding.cost_s_per_step
            for finding in self.findings
            if not finding.id.startswith("input/") and ids.intersection(finding.remedies)
        )
        return min(saved, _MOST_SAVED * float(self.pipeline.step_s.mean()))

    def _plan(self, name: Name, setup: Setup, remedies: tuple[Applied, ...], words: str) -> Plan:
        saved = self._saved_s(remedies) if self.on.step_s is None else 0.0
        if saved > 0:
            setup = replace(setup, step_s=float(self.pipeline.step_s.mean()) - saved)
        prediction, ratio = predict(self.pipeline, setup), gain(self.pipeline, setup, over=self.on)
        if saved > 0:
            words = (
                f"{words + '; ' if words else ''}{units.duration(saved)} of a step by the diagnosis' estimate"
            )
            prediction = replace(prediction, confirm=True)
        settings = _changed(self.pipeline.recorded, setup)
        changes = bool(settings or remedies or setup.cache_bytes)
        why, recommended = self._judged(name, setup, prediction, ratio, changes)
        if changes and not recommended and why != _MEASURE:
            plan = self._plan(name, self.on, (), "")
            return replace(plan, why=why)
        effects = [one.remedy.effect for one in remedies]
        alters = [one.remedy.alters for one in remedies if one.remedy.alters]
        alters += [text for key, text in _ALTERS.items() if key in settings]
        if "persistent_workers" in settings:
            effects.append("semantic")
        return Plan(
            name=name,
            setup=self.pipeline.complete(setup),
            settings=settings,
            remedies=remedies,
            effect=max(effects, key=EFFECTS.index, default="exact"),
            alters=tuple(dict.fromkeys(alters)),
            prediction=prediction,
            gain=ratio,
            recommended=recommended,
            why="; ".join(part for part in (why, words) if part),
            cache_bytes=setup.cache_bytes,
        )

    def _kept(self) -> Field | None:
        """The settings with workers that stay from epoch to epoch, where starting them again costs."""
        two = replace(self.on, num_workers=max(2, self.pipeline.recorded.num_workers or 0))
        kept = replace(two, persistent_workers=True)
        ratio = predict(self.pipeline, two).s_per_step / predict(self.pipeline, kept).s_per_step
        if self.pipeline.anew or self.pipeline.recorded.persistent_workers or ratio <= 1 + _WORTH_KEEPING:
            return None
        return replace(self.field, on=replace(self.on, persistent_workers=True), known={})

    def _judged(
        self,
        name: Name,
        setup: Setup,
        prediction: Prediction,
        ratio: tuple[float, float, float],
        changes: bool,
    ) -> tuple[str, bool]:
        """Why, in words, and whether it is to be recommended."""
        if changes and prediction.host_bytes > self.machine.memory_bytes:
            return "the run's own settings: no others fit into the machine's memory", False
        if name == "low-memory":
            saved = 1 - prediction.host_bytes / self.now.host_bytes
            if not changes or saved < _WORTH_SAVING:
                return "nothing takes less memory without being slower", False
            return f"takes {units.share(saved)} less host memory and is no slower", True
        if not changes:
            return "the run's own settings: none is predicted to be faster", False
        if ratio[1] > 1 and not any(doubt.startswith(OTHERS) for doubt in prediction.doubts):
            return f"{setting_of(self.pipeline.complete(setup))}: {_LIMITS[prediction.limit]}", True
        if prediction.confirm and ratio[0] >= _WORTH_MEASURING:
            return _MEASURE, False
        if ratio[0] <= 1:
            within = " within half of the cores" if name == "conservative" else ""
            return f"the run's own settings: none{within} is predicted to be faster", False
        return "the run's own settings: what others would gain is within the noise of the prediction", False


_LIMITS: Final = {
    "input": "making batches is still the limit",
    "cores": "the cores are then all busy",
    "transfer": "moving batches is then the limit",
    "device": "the step no longer waits for its data",
}
_MEASURE: Final = "may be faster, but the prediction is not sure enough: measure it first"

#: What a setting may alter, in the words of its remedy.
_ALTERS: Final = {
    "num_workers": catalogue.get("num-workers").alters,
    "persistent_workers": (
        "with persistent_workers=True in the code, order and augmentation differ from the second epoch on "
        "(run --apply persistent-workers keeps them)"
    ),
}


def _changed(recorded: Setup, setup: Setup) -> dict[str, Any]:
    """The loader's arguments that differ from the run's."""
    changed: dict[str, Any] = {}
    if setup.num_workers is not None and setup.num_workers != recorded.num_workers:
        changed["num_workers"] = setup.num_workers
    workers = recorded.num_workers if setup.num_workers is None else setup.num_workers
    before = recorded.prefetch_factor if recorded.num_workers else 2  # torch's own
    if workers and setup.prefetch_factor is not None and setup.prefetch_factor != before:
        changed["prefetch_factor"] = setup.prefetch_factor
    if not workers and recorded.num_workers:
        changed["prefetch_factor"] = None
        if recorded.persistent_workers:
            changed["persistent_workers"] = False
    elif workers and setup.persistent_workers and not recorded.persistent_workers:
        changed["persistent_workers"] = True
    return changed


def _doubts(pipeline: Pipeline, machine: Machine, now: Prediction) -> tuple[str, ...]:
    doubts = list(now.doubts)
    if now.host_bytes > machine.memory_bytes:
        doubts.insert(
            0,
            f"the run does not fit: it needs {units.size(now.host_bytes)} of host memory, the machine has "
            f"{units.size(machine.memory_bytes)}",
        )
    if machine.other:
        doubts.append("another machine's cores, memory and disks are taken to be as fast as the run's")
    if machine.ranks > max(1, pipeline.recorded.ranks or 1):
        doubts.append("what the GPUs exchange with each other is not in it")
    if pipeline.iterable:
        doubts.append("the dataset is a stream: more workers than the run had could hand out samples twice")
    if not pipeline.memory.measured:
        doubts.append(
            f"a worker is taken to need {units.size(pipeline.memory.worker_bytes)}: the run shows none"
        )
    return tuple(doubts)
