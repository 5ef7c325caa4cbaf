"""``compare``: runs side by side, how much faster each is than the first, what moved and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, inf
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from hotloop.compare.checklist import host_memory
from hotloop.compare.run import Run, how_it_failed
from hotloop.compare.speed import Speed, core_time, crowded, per_s, samples_per_s, speed
from hotloop.measure.stepping import block_means
from hotloop.phases import PHASES
from hotloop.record.samples import device_peak
from hotloop.stats import standard_error, t95

#: A phase that moved by less than this part of the first run's step is not told.
_WORTH_TELLING: Final = 0.01

Judgement = Literal["faster", "same", "slower", "cannot tell"]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs under one label: launches of the same thing."""

    label: str
    runs: tuple[Run, ...]

    @property
    def lead(self) -> Run:
        """The first of them: settings and findings are its."""
        return self.runs[0]


class Moved(NamedTuple):
    """A phase in seconds per step; ``beyond_noise`` where the change is larger than its interval."""

    phase: str
    base_s: float
    candidate_s: float
    beyond_noise: bool


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One group beside the first. ``settings`` maps a name to both values, where they differ.

    ``broken``: a run of either side is not whole.
    """

    label: str
    speed: Speed
    phases: tuple[Moved, ...]
    settings: Mapping[str, tuple[Any, Any]]
    gone: tuple[str, ...]
    new: tuple[str, ...]
    memory: Mapping[str, tuple[float | None, float | None]]
    words: tuple[str, ...] = ()
    broken: bool = False

    def judged(self, slower_than: float) -> Judgement:
        """Against a limit: ``slower`` only where the whole interval is beyond it."""
        if self.speed.ci95 is None or self.speed.doubt or self.broken:
            return "cannot tell"
        low, high = self.speed.ci95
        limit = 1 / (1 + slower_than)
        if high < limit:
            return "slower"
        if low < limit:
            return "cannot tell"
        return "faster" if low > 1 else "same"

    def to_json(self) -> dict[str, Any]:
        """An entry of ``comparisons``."""
        return {
            "label": self.label,
            "ratio": self.speed.ratio,
            "ci95": self.speed.ci95,
            "of": self.speed.of,
            "launches": self.speed.launches,
            "phases": [moved._asdict() for moved in self.phases],
            "settings": self.settings,
            "findings_gone": self.gone,
            "findings_new": self.new,
            "memory": self.memory,
            "words": self.words,
        }


def compare(groups: Sequence[Group]) -> list[Comparison]:
    """Every group but the first beside the first."""
    return [_beside(groups[0], group) for group in groups[1:]]


def summary(group: Group) -> dict[str, Any]:
    """What one column of the table says, in plain numbers."""
    run = group.lead
    rate, edges = per_s(*group.runs)
    return {
        "label": group.label,
        "runs": [one.label for one in group.runs],
        "command": list(run.recording.command),
        "num_steps": run.lead.num_steps,
        "steps_per_s": rate,
        "ci95": edges,
        "samples_per_s": samples_per_s(*group.runs),
        "phases": {name: run.lead.per_step(name) for name in PHASES},
        "findings": [finding.id for finding in run.findings if finding.severity != "info"],
        "noted": [finding.id for finding in run.findings if finding.severity == "info"],
    }


def _beside(base: Group, candidate: Group) -> Comparison:
    a, b = base.lead, candidate.lead
    before, after = ([f.id for f in run.findings if f.severity != "info"] for run in (a, b))
    was, still = ({f.id for f in run.findings} for run in (a, b))  # noted is neither gone nor new
    mine, theirs = _in_effect(a), _in_effect(b)
    settings = {name: (mine.get(name), theirs.get(name)) for name in mine | theirs}
    return Comparison(
        label=candidate.label,
        speed=speed(base.runs, candidate.runs),
        phases=_moved(a, b),
        settings={name: (one, other) for name, (one, other) in settings.items() if one != other},
        gone=tuple(one for one in dict.fromkeys(before) if one not in still),
        new=tuple(one for one in dict.fromkeys(after) if one not in was),
        memory={
            "host": (host_memory(a), host_memory(b)),
            "device": (device_peak(a.recording), device_peak(b.recording)),
        },
        words=_words(base, candidate),
        broken=any(how_it_failed(run.recording) for run in (*base.runs, *candidate.runs)),
    )


def _moved(a: Run, b: Run) -> tuple[Moved, ...]:
    """Phases that moved, the largest change first. Sure is a change beyond the noise, and beyond what others
    on the machine could make of it.
    """
    found = []
    got, other_got = map(core_time, (a, b))
    for phase in PHASES:
        before, after = a.lead.per_step(phase), b.lead.per_step(phase)
        if abs(after - before) < _WORTH_TELLING * a.lead.step_s or phase == "startup":
            continue
        means = [block_means(run.lead.phase(phase)) for run in (a, b)]
        least = min(map(len, means))
        noise = t95(least - 1) * hypot(*map(standard_error, means)) if least else inf
        apart = after < before * got or after * other_got > before
        found.append(Moved(phase, before, after, apart and abs(after - before) > noise))
    return tuple(sorted(found, key=lambda moved: -abs(moved.candidate_s - moved.base_s)))


def _in_effect(run: Run) -> dict[str, Any]:
    found = {setting.name: setting.in_effect for setting in run.lead.settings}
    torch = run.lead.facts.get("torch") or {}
    found |= {name: torch[name] for name in ("version", "threads", "device_name") if name in torch}
    found |= {"python": run.process.first("process").get("python")}
    if run.recording.patch is not None:
        found["patch in force"] = ", ".join(Path(file).name for file in run.recording.patch.met)
    for note in run.applied:
        value = note.get("value")
        found[f"applied {note['id']}"] = value if value is not None else note.get("status")
    return {name: value for name, value in found.items() if value is not None}


def _words(base: Group, candidate: Group) -> tuple[str, ...]:
    a, b, label = base.lead, candidate.lead, candidate.label
    failed = [(run.label, how_it_failed(run.recording)) for run in (*base.runs, *candidate.runs)]
    words = [f"{name} is not whole: {why}" for name, why in failed if why]
    if a.recording.machine.get("hostname") != b.recording.machine.get("hostname"):
        words.append(f"{label} ran on another machine")
    if min(len(base.runs), len(candidate.runs)) == 1:
        words.append(
            f"{label}: one launch of a side; the interval does not hold what the machine did "
            "differently between launches (give several runs a label: a=RUN1 a=RUN2 b=RUN3)"
        )
    if others := crowded(a, b):
        words.append(f"{label}: {others}")
    return tuple(words)
