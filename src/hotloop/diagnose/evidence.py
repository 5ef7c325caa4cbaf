"""What a rule sees, what a rule is, and what it yields."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any, Final

import numpy as np

from hotloop.diagnose.limits import Limits
from hotloop.findings import ENTRIES, Finding, Place, Severity
from hotloop.measure.steps import (
    Floats,
    Interval,
    LoaderUse,
    SiteCost,
    Steps,
    core_time_got,
    others_beside,
    span_s,
)
from hotloop.record.recording import Note, Process, Recording
from hotloop.source.written import Written

#: Fewer samples of a process, those of the first steps left out, do not show what it used of the cores.
_LEAST_SAMPLES: Final = 4
_BEGIN_S: Final = 0.5
#: Of a loader, what findings propose another number for.
_PROPOSED = ("num_workers", "prefetch_factor", "batch_size")
#: A thread that got less of a core shows nothing of what it would do alone.
_MOST_TAKEN: Final = 0.9


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One run as the rules see it, made by ``evidence_of``. ``steps`` is the rank to speak about
    (``report.ranks.lead``).
    """

    recording: Recording
    process: Process  # the one that ``steps`` are of
    steps: Steps
    ranks: tuple[Steps, ...]
    limits: Limits
    span: tuple[float, float]  # of training, in seconds since the command started, as the launcher samples
    got: float  # of the core time that the training thread wanted, what it got; 1 not known
    workers_got: float  # of what its workers wanted; every ``on_cpu_ratio`` is divided by that of its process
    others_cores: float | None  # of this run's, that other programs kept busy; None not known
    first_pass: FirstPass | None  # over the data, where later ones find kept what it waited for
    about: str = ""  # id of the rule that sees it, and of what that finds

    @property
    def machine(self) -> Mapping[str, Any]:
        """Facts of the machine, see ``launch.machine``."""
        return self.recording.machine

    @property
    def cores(self) -> float:
        """Cores this run may use: affinity and cgroup quota together."""
        return float(self.machine.get("cores", 1))

    @property
    def rank_cores(self) -> float:
        """Cores for this rank and its workers. Those on its machine, and trainings beside them, share what
        other programs leave: with workers for each none takes more from the others.
        """
        here = {one.pid for one in self.recording.node_of(self.process.pid).ranks}
        share = sum(one.pid in here for one in self.ranks) + self.recording.num_beside
        others = min(0.8 * self.cores, self.others_cores or 0.0) * min(1.0, max(0.0, share - 1))
        return (self.cores - others) / max(1.0, share)

    @property
    def threads(self) -> float:
        """Threads that torch computes with on a CPU, no more than there are cores."""
        torch = self.steps.facts.get("torch") or {}
        return min(self.cores, float(torch.get("threads") or self.cores))

    @property
    def used_cores(self) -> float | None:
        """Cores that the training process kept busy over the span, None with too few samples."""
        seconds, used = self.sampled(self.process.pid, "cpu_ratio")
        inside = used[seconds > self.span[0] + _BEGIN_S]
        return float(inside.mean()) if len(inside) >= _LEAST_SAMPLES else None

    @property
    def stolen(self) -> float:
        """Share of the cores' time that the hypervisor gave to other machines."""
        _, seen = self.sampled(None, "steal_ratio")
        return float(seen.mean()) if len(seen) else 0.0

    @property
    def enough(self) -> bool:
        """Whether the run is long enough to speak about a rate."""
        steps, limits = self.steps, self.limits
        return steps.num_steps >= limits.min_steps and steps.span_s >= limits.min_span_s

    @property
    def crowded(self) -> bool:
        """Whether other programs took a part of this run's cores that counts."""
        taken = self.others_cores
        return taken is not None and taken >= self.limits.others_ratio * self.cores

    @property
    def crowded_out(self) -> bool:
        """Whether they kept the training thread from the cores it wanted."""
        return self.crowded and self.got <= self.limits.got_ratio

    @property
    def taken(self) -> float | None:
        """Share of the time in which the training thread waited for a core that another program had; None
        where that is not known, or where workers, who wait as well, make the batches.
        """
        seconds, waited = self.sampled(self.process.pid, "core_wait_s")
        if self.process.workers or self.others_cores is None or len(seconds) < _LEAST_SAMPLES:
            return None
        share = float(np.ptp(waited) / np.ptp(seconds)) if self.crowded else 0.0
        return min(share, _MOST_TAKEN)

    def notes(self, kind: str) -> list[Note]:
        """The notes of this kind that this process wrote."""
        return self.process.notes.get(kind, [])

    def sampled(self, pid: int | None, *names: str) -> tuple[Floats, ...]:
        """The times, and these columns, of what the launcher sampled of a process in the training span, all
        of them known; of the machine for None. Empty where a column was not sampled.
        """
        recording = self.recording
        columns = recording.system if pid is None else recording.process_system.get(pid, {})
        wanted = ("t_s", *names)
        if not set(wanted) <= set(columns):
            return tuple(np.zeros(0) for _ in wanted)
        found = [np.asarray(columns[name], float) for name in wanted]
        start, end = self.span
        inside = (found[0] >= start) & (found[0] <= end) & np.isfinite(found).all(axis=0)
        return tuple(values[inside] for values in found)

    @property
    def on_accelerator(self) -> bool:
        """Whether the model was on an accelerator."""
        return bool(self.steps.facts.get("accelerator"))


def evidence_of(recording: Recording, steps: Steps, ranks: tuple[Steps, ...], limits: Limits) -> Evidence:
    """The evidence on one rank, with what every rule asks for found out once."""
    process = next(one for one in recording.ranks if one.pid == steps.pid)
    span, sampled = span_s(recording, process, steps), recording.process_system
    return Evidence(
        recording=recording,
        process=process,
        steps=steps,
        ranks=ranks,
        limits=limits,
        span=span,
        got=core_time_got([sampled.get(process.pid, {})], *span),
        workers_got=core_time_got([sampled.get(worker.pid, {}) for worker in process.workers], *span),
        others_cores=others_beside(recording.node_of(process.pid), *span),
        first_pass=first_pass(steps, limits),
    )


Rule = Callable[[Evidence], Iterable[Finding]]


#: Steps at the start of each pass that are left out: workers that begin, queues that fill.
_BEGIN: Final = 1
#: Later steps that work longer by this part of what they wait less hide the wait.
_HIDDEN: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class FirstPass:
    """Seconds that a step of the first pass waited for data, and one of the later passes."""

    num_steps: int
    wait_s: float
    later_s: float
    excess_s: float  # of the training span, in all
    share: float  # of all steps

    def after(self, loader: LoaderUse) -> LoaderUse:
        """The loader with the makes of later passes only."""
        return replace(loader, make_s=loader.make_s[round(self.share * len(loader.make_s)) :])


def epoch_steps(steps: Steps) -> float:
    """Steps of a pass over the loader that drives the loop, 0 where there is none."""
    loader = steps.train_loader()
    return loader.batches_per_epoch * steps.num_steps / max(1, loader.num_batches) if loader else 0.0


def first_pass(steps: Steps, limits: Limits) -> FirstPass | None:
    """The first pass, where each later one waited far less; None where there is none, or none to compare."""
    loader = steps.train_loader()
    if loader is None or not loader.batches_per_epoch or not loader.num_batches or loader.num_iterators < 2:
        return None
    length = round(epoch_steps(steps))
    passes = steps.num_steps // length if length else 0
    if passes < 2 or length < limits.min_steps:
        return None
    if any(one.role == "train" and len(one.wait_s) for one in steps.loaders if one is not loader):
        return None  # others feed the steps too
    wait = steps.phase("data_wait")
    turns = [slice(at + _BEGIN, at + length) for at in range(0, passes * length, length)]
    means = [float(wait[turn].mean()) for turn in turns]
    medians = [float(np.median(wait[turn])) for turn in turns]  # a disturbance is of some steps
    first, later = means[0], max(means[1:])
    if later > limits.later_pass_ratio * first or first - later < limits.worth_fixing_ratio * steps.step_s:
        return None
    if max(medians[1:]) > limits.later_pass_ratio * medians[0]:
        return None
    busy = np.asarray(steps.end_s) - np.asarray(steps.start_s) - steps.phase("data_wait")
    slower = min(float(busy[turn].mean()) for turn in turns[1:]) - float(busy[turns[0]].mean())
    if slower > _HIDDEN * (first - later):  # workers have longer for a batch: nothing is kept
        return None
    excess = float(np.maximum(0.0, wait[:length] - later).sum())
    usual = float(np.mean(means[1:]))
    share = length / steps.num_steps
    return FirstPass(num_steps=length, wait_s=first, later_s=usual, excess_s=excess, share=share)


# Every rule, found by its folder


@dataclass(frozen=True, kw_only=True)
class RuleEntry:
    """One rule: its public id and its function.

    Of a ``costed`` rule, findings that cost nothing (hidden work) are not reported. A rule that speaks of
    rates is silent about a run too short for one, unless it speaks of ``short_runs`` as well.
    """

    id: str
    check: Rule
    costed: bool = False
    short_runs: bool = False

    def __call__(self, evidence: Evidence) -> Iterable[Finding]:
        """Run the rule."""
        return self.check(replace(evidence, about=self.id)) if self.short_runs or evidence.enough else ()


def rule(finding_id: str, *, costed: bool = False, short_runs: bool = False) -> Callable[[Rule], RuleEntry]:
    """Make a function over the evidence the rule of a finding."""
    return lambda check: RuleEntry(id=finding_id, check=check, costed=costed, short_runs=short_runs)


@lru_cache(maxsize=1)
def rules() -> tuple[RuleEntry, ...]:
    """Every rule, sorted by id."""
    folder = Path(__file__).parent / "rules"
    files = (path for path in folder.glob("*/*.py") if not path.name.startswith("_"))
    names = (f"hotloop.diagnose.rules.{path.parent.name}.{path.stem}" for path in files)
    by_id: dict[str, RuleEntry] = {}
    for name in names:
        module = vars(importlib.import_module(name))
        found = [*module.values(), *module.get("RULES", ())]
        by_id |= {entry.id: entry for entry in found if isinstance(entry, RuleEntry)}
    return tuple(by_id[name] for name in sorted(by_id))


# What a rule yields


#: Of what is done so often in a run at least this many times are left, whatever they take.
_STAY = 4


def cause(
    evidence: Evidence,
    *,
    message: str,
    numbers: Iterable[str],
    advice: str = "",
    cost_s: float = 0.0,
    where: Place | None = None,
    ci95: tuple[float, float] | None = None,
    severity: Severity | None = None,
    remedies: tuple[str, ...] | None = None,
    data: Mapping[str, Any] | None = None,
) -> Finding:
    """What a rule finds, on the rank spoken about. ``cost_s`` is in seconds per step, not negative.

    ``advice`` and ``remedies`` that are not given are those of the finding's id.

    A ``severity`` given here is kept as it is (``severity_fixed``): for causes whose cost is not time.
    """
    steps, home = evidence.steps, ENTRIES[evidence.about]
    cost = max(0.0, cost_s)
    facts = dict(data or {})
    if severity is not None:
        facts["severity_fixed"] = True
    return Finding(
        id=evidence.about,
        message=message,
        advice=(advice or home.advice) + _asked_by(evidence, facts),
        evidence=tuple(numbers),
        cost_s_per_step=cost,
        cost_ci95=ci95,
        share=cost / steps.step_s if steps.step_s > 0 else 0.0,
        severity=severity or "info",
        where=where,
        remedies=home.remedies if remedies is None else remedies,
        rank=steps.rank if len(evidence.ranks) > 1 else None,
        data=facts,
    )


def _asked_by(evidence: Evidence, facts: Mapping[str, Any]) -> str:
    """Which option, or key of a file, gave the loader the number that another is proposed for."""
    loader, found = evidence.steps.train_loader(), set()
    for note in evidence.notes("config") if loader is not None else ():
        name, value, option = note.get("meaning"), note.get("value"), str(note.get("option") or "")
        if loader and name in _PROPOSED and name in facts and value == loader.settings.get(name):
            given = f"{option} {value}" if option.startswith("-") else f"{note.get('key')}={value}"
            default = option and not note.get("given", True)
            found.add(given + (" (its default)" if default else "" if option else of_note(note)))
    return f" The number comes from {found.pop()}." if len(found) == 1 else ""


def of_note(note: Mapping[str, Any]) -> str:
    """Where a configured value stands, as ``(joey.yaml:66)`` behind a space, "" where that is not known."""
    file, line = note.get("file"), note.get("line")
    return f" ({PurePath(str(file)).name}{f':{line}' if line else ''})" if file else ""


def spot(place: Place | None) -> str:
    """A place in a sentence: ``train.py:41``, "" when unknown."""
    return f"{PurePath(place.file).name}:{place.line}" if place else ""


def calls_of(steps: Steps, site: SiteCost) -> str:
    """Where something was called how often: ``train.py:41: all_reduce, 2 per step``."""
    often = f"{site.count / steps.num_steps:.2g} per step"
    return f"{spot(site.place) or 'unknown place'}: {site.operation}, {often}"


def reachable(place: Place, function: str) -> str | None:
    """A function as live forms want it named, ``train.py:Head.targets``; None where none is of that name."""
    return f"{PurePath(place.file).name}:{function}" if function and "<" not in function else None


def decided(by: Written) -> str:
    """What put a value in effect: ``data.py:18 num_workers=2``."""
    return f"{spot(Place(file=by.file, line=by.line))} {by.text}" if by.file else by.text


def at(place: Place | None) -> str:
    """`` at train.py:41``, "" when unknown."""
    return f" at {spot(place)}" if place else ""


def in_framework(steps: Steps, place: Place | None) -> bool:
    """Whether a place is the line in which a framework runs the whole training: none of the user's code."""
    call = steps.framework_call
    return call is not None and place is not None and place.at_line == call.at_line


def rarer(steps: Steps, seconds: float, count: int, free_ratio: float) -> int:
    """Done one time in 2, 5, 10, 20, ..., what now takes these seconds over the span takes the free share of
    it; a few of the ``count`` times stay.
    """
    rest_s = max(1e-9, steps.span_s - seconds)
    wanted = max(2.0, seconds * (1 - free_ratio) / (free_ratio * rest_s))
    most = max(2.0, count / _STAY)
    if wanted <= most:
        rounded = next(number for number in _rounded(wanted) if number >= wanted)
        if rounded <= most:
            return rounded
    return max(number for number in _rounded(most) if number <= most)


def _rounded(number: float) -> list[int]:
    """1, 2, 5 and 10 times the power of ten below a number."""
    unit = 10 ** math.floor(math.log10(number))
    return [unit * part for part in (1, 2, 5, 10)]


def beyond(steps: Steps, seconds: float, free_ratio: float) -> float:
    """Seconds per step of ``seconds`` (over the span) beyond a share of the span that is fair to spend."""
    return max(0.0, seconds - free_ratio * steps.span_s) / max(1, steps.num_steps)


def steps_between(steps: Steps, intervals: Sequence[Interval]) -> float:
    """Steps from one evaluation or checkpoint to the next: the median; of a single one all steps."""
    gaps = np.diff(sorted(interval.after_step for interval in intervals))
    gaps = gaps[gaps > 0]
    return float(np.median(gaps)) if len(gaps) else steps.num_steps / max(1, len(intervals))
