"""From the blocks of a what-if run to speed ratios with intervals, the ceiling, and the contention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal

from hotloop.diagnose.costs import interval as cost_interval
from hotloop.findings import Finding
from hotloop.measure.steps import Steps
from hotloop.phases import COLUMN
from hotloop.record.recording import Note, Recording
from hotloop.stats import interval, ratio_interval

Method = Literal["blocks", "accounted"]

#: Intervention -> the phase that is left out, and whether it lies outside the steps that blocks time.
ACCOUNTED: Final = {
    "free-evaluation": ("evaluation", True),
    "free-checkpoint": ("checkpoint", True),
    "free-logging": ("logging", False),
    "no-sync": ("sync", False),
}
EPOCH_START: Final = "free-epoch-start"
#: Targets that every step makes anew: the finding says what they take.
TARGETS: Final = ("free-targets", "host/recomputed-targets")
#: Names of rows that are told from what was recorded, asked for or not.
TOLD: Final = frozenset([*ACCOUNTED, EPOCH_START, TARGETS[0]])
#: Batches of a fill that a loader's own rate is told from.
_LEAST_ALONE: Final = 8
#: An interval wider than this to either side does not tell whether gains add up.
_TELLING: Final = 1.15
#: What is less than this part of a step gets no row.
_LEAST_COST: Final = 0.005
#: A gain smaller than this is not worth a line of the ceiling.
_MARGIN: Final = 1.05


@dataclass(frozen=True, kw_only=True)
class Row:
    """One intervention: how many times faster, with the 95 % interval.

    ``blocks``: the arm's own blocks, paired with a baseline block of the same cycle each. ``accounted`` rows
    leave a phase's own time out instead of running without it. ``words``: why there is no ratio, or what to
    keep in mind.
    """

    intervention: str
    ratio: float | None
    ci95: tuple[float, float] | None
    blocks: int
    method: Method = "blocks"
    words: str = ""

    @property
    def in_noise(self) -> bool:
        """Whether the interval has 1 in it: no gain was shown."""
        return self.ci95 is None or self.ci95[0] <= 1 <= self.ci95[1]

    def to_json(self) -> dict[str, Any]:
        """A row of what_if.json."""
        ci95 = list(self.ci95) if self.ci95 else None
        return {**asdict(self), "ci95": ci95, "in_noise": self.in_noise}


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """All that a what-if run has to say. Seconds per step; None where it was not measured.

    ``step_alone_s`` is the step with batches for free and idle workers, ``loader_alone_s`` a batch with the
    cores to the loader, ``cores_s`` the CPU work of a step over the cores this run may use. ``ceiling`` is
    the largest of the three: what the fastest run with this step and this loader is limited by.
    ``epoch_start_s`` is what the starts of epochs take of each step where blocks do not hold them, and
    ``startup_s`` what the command took to its first block.
    """

    baseline_s: float
    baseline_ci95: tuple[float, float]
    baseline_blocks: int
    block_steps: int
    wait_s: float | None
    rows: tuple[Row, ...]
    step_alone_s: float | None
    loader_alone_s: float | None
    cores_s: float | None
    ceiling: str | None
    contention_s: float | None
    not_exact: str
    epoch_start_s: float = 0.0
    startup_s: float = 0.0
    doubt: str = ""

    @property
    def ceiling_s(self) -> float | None:
        """The shortest step that this loader, this step and these cores allow."""
        known = [s for s in (self.step_alone_s, self.loader_alone_s, self.cores_s) if s is not None]
        return max(known) if self.step_alone_s is not None else None

    def to_json(self) -> dict[str, Any]:
        """what_if.json, schema 1."""
        return {
            "schema": 1,
            "baseline": {
                "s_per_step": self.baseline_s,
                "ci95": list(self.baseline_ci95),
                "blocks": self.baseline_blocks,
                "steps_per_block": self.block_steps,
                "data_wait_s_per_step": self.wait_s,
            },
            "ceiling": self.ceiling,
            "ceiling_s_per_step": self.ceiling_s,
            "step_alone_s": self.step_alone_s,
            "loader_alone_s": self.loader_alone_s,
            "cores_s": self.cores_s,
            "contention_s_per_step": self.contention_s,
            "epoch_start_s_per_step": self.epoch_start_s,
            "startup_s": self.startup_s,
            "not_exact": self.not_exact,
            "doubt": self.doubt,
            "rows": [row.to_json() for row in self.rows],
        }


def estimate(recording: Recording, steps: Steps | None, findings: Sequence[Finding] = ()) -> WhatIf | None:
    """What the blocks of a recording say; None where it has none of the baseline.

    ``findings`` of the run tell what making targets anew takes.
    """
    notes = _of_leader(recording, "block")
    baseline = _valid(notes, "baseline")
    if len(baseline) < 2:
        return None
    asked = interventions(recording)
    rows = [_row(note, notes, _others(note, recording)) for note in asked]
    rows = [_combined(row, note.get("members") or (), rows) for row, note in zip(rows, asked, strict=True)]
    mean, low, high = interval([note["mean_s"] for note in baseline])
    free = _valid(notes, "free-data")
    every = not any(note["name"] == "free-data" and note.get("others") for note in asked)
    alone = fmean([note["mean_s"] for note in free]) if free and every else None
    wait_s, cpu_s = (_mean([note.get(name) for note in baseline]) for name in ("wait_s", "cpu_s"))
    start_s = _epoch_start_s(baseline, wait_s or 0.0)
    starts = _left_out(EPOCH_START, (start_s,), mean, outside=True)
    parts = {
        "device": alone,
        "input": _loader_alone(free),
        "cores": cpu_s / max(1.0, float(recording.machine.get("cores", 1))) if cpu_s is not None else None,
    }
    return WhatIf(
        baseline_s=mean,
        baseline_ci95=(max(0.0, low), high),
        baseline_blocks=len(baseline),
        block_steps=round(fmean([note["steps"] for note in baseline])),
        wait_s=wait_s,
        rows=(*rows, *starts, *_accounted(steps, mean), *_targets(findings, mean)),
        step_alone_s=alone,
        loader_alone_s=parts["input"],
        cores_s=parts["cores"],
        ceiling=_ceiling(parts, steps) if alone is not None else None,
        contention_s=_contention(baseline, free),
        epoch_start_s=start_s,
        startup_s=float(baseline[0].get("startup_s") or 0.0),
        not_exact=next((str(note["exact"]) for note in asked if note.get("exact")), ""),
    )


def interventions(recording: Recording) -> list[Note]:
    """How each intervention went: ``name``, ``status`` ("" where it was in force), ``exact``."""
    return _of_leader(recording, "intervention")


def _of_leader(recording: Recording, kind: str) -> list[Note]:
    return [note for one in recording.ranks for note in one.notes.get(kind, ()) if note.get("leads")]


def _valid(notes: Sequence[Note], name: str) -> list[Note]:
    return [note for note in notes if note["name"] == name and note["valid"] and note["mean_s"]]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _row(asked: Note, notes: Sequence[Note], words: str) -> Row:
    name = str(asked["name"])
    baseline = {note["cycle"]: note["mean_s"] for note in _valid(notes, "baseline")}
    mine = [note for note in _valid(notes, name) if note["cycle"] in baseline]
    ratios = [log(baseline[note["cycle"]] / note["mean_s"]) for note in mine]
    if asked.get("status"):
        return Row(intervention=name, ratio=None, ci95=None, blocks=0, words=str(asked["status"]))
    if len(ratios) < 2:
        tried = [note for note in notes if note["name"] == name]
        words = "the run or the budget ended before two pairs of blocks were done"
        if len(tried) - len(mine) >= 2:
            words = "too few steps in a row without an evaluation, a checkpoint, or an epoch's start"
        return Row(intervention=name, ratio=None, ci95=None, blocks=len(ratios), words=words)
    ratio, low, high = ratio_interval(ratios)
    return Row(intervention=name, ratio=ratio, ci95=(low, high), blocks=len(ratios), words=words)


def _combined(row: Row, members: Sequence[str], rows: Sequence[Row]) -> Row:
    """An arm of several: do their gains multiply, mask each other, or overlap? Half widths in quadrature."""
    parts = [one for one in rows if one.intervention in members and one.ratio and one.ci95]
    if not row.ratio or row.ci95 is None or not members:
        return row
    told = [" and ".join(members)]
    if len(parts) == len(members):
        alone = sum(log(one.ratio) for one in parts if one.ratio)
        edges = [one.ci95 for one in (row, *parts) if one.ci95]
        half = sqrt(sum((log(high / low) / 2) ** 2 for low, high in edges))
        product = f"the gains of each alone multiply to {exp(alone):.2f}x"
        if log(row.ratio) - alone > half:
            told.append(f"{product}: alone, one masks what another gives")
        elif max(log(one.ratio) for one in parts if one.ratio) - log(row.ratio) > half:
            told.append(f"{product}: they hinder each other, and the best of them alone gives more")
        elif alone - log(row.ratio) > half:
            told.append(f"{product}: they overlap, and in part give the same")
        elif half < log(_TELLING):
            told.append(f"{product}: they add up")
    return replace(row, words="; ".join([*told, *([row.words] if row.words else [])]))


def _others(asked: Note, recording: Recording) -> str:
    """What to keep in mind of a loop over several loaders."""
    notes = next((process.notes for process in recording.ranks if process.notes.get("intervention")), {})
    sites = {note["id"]: f"{Path(note['file']).name}:{note['line']}" for note in notes.get("site", ())}
    built = {note["id"]: note["where"] for note in notes.get("loader", ())}
    places = dict.fromkeys(sites.get(built.get(one), "another place") for one in asked.get("others", ()))
    return f"the DataLoader of {' and of '.join(places)}, stayed as it was" if places else ""


def _epoch_start_s(baseline: Sequence[Note], wait_s: float) -> float:
    """What an epoch waits for at its start, more than for any other batch, spread over its steps."""
    starts = [start for note in baseline for start in note.get("starts") or ()]
    epoch = next((note["epoch"] for note in reversed(baseline) if note.get("epoch")), None)
    return max(0.0, fmean(starts) - wait_s) / epoch if starts and epoch else 0.0


def _accounted(steps: Steps | None, baseline_s: float) -> list[Row]:
    """What leaving the own time of evaluation, checkpoints, logging and waits out would give."""
    rows: list[Row] = []
    if steps is None or not steps.num_steps:
        return rows
    for name, (phase, outside) in ACCOUNTED.items():
        cost = steps.span_totals.get(phase, 0.0) * steps.exposed(phase) / steps.num_steps
        edges = cost_interval(cost, steps.phases[:, COLUMN[phase]])
        rows += _left_out(name, (cost, *(edges or ())), baseline_s, outside=outside)
    return rows


def _left_out(name: str, costs: Sequence[float], baseline_s: float, *, outside: bool = False) -> list[Row]:
    """The row of what costs so much per step, with its interval where that is known."""
    if costs[0] <= _LEAST_COST * baseline_s:
        return []
    base_s = baseline_s
    ratios = [
        (base_s + cost) / base_s if outside else base_s / max(base_s - cost, 0.01 * base_s) for cost in costs
    ]
    ci95 = (ratios[1], ratios[2]) if len(ratios) == 3 else None
    return [Row(intervention=name, ratio=ratios[0], ci95=ci95, blocks=0, method="accounted")]


def _targets(findings: Sequence[Finding], baseline_s: float) -> list[Row]:
    """What leaving out the targets that every step makes anew would give."""
    costs = [(f.cost_s_per_step, *(f.cost_ci95 or ())) for f in findings if f.id == TARGETS[1]]
    whole = all(len(one) == 3 for one in costs)
    sums = [sum(part) for part in zip(*costs, strict=whole)]
    return _left_out(TARGETS[0], sums, baseline_s) if costs else []


def _loader_alone(free: Sequence[Note]) -> float | None:
    """What the loader needs for a batch, with the cores to itself."""
    fills = [fill for note in free for fill in note.get("fill") or ()]
    count = sum(fill["alone_batches"] for fill in fills)
    return sum(fill["alone_s"] for fill in fills) / count if count >= _LEAST_ALONE else None


def _ceiling(parts: dict[str, float | None], steps: Steps | None) -> str:
    known = {name: seconds for name, seconds in parts.items() if seconds is not None}
    name = max(known, key=lambda one: known[one])
    # CPU seconds are counted in hundredths: the cores limit only what they clearly limit.
    if name == "cores" and known["cores"] < _MARGIN * max(s for n, s in known.items() if n != "cores"):
        name = max((one for one in known if one != "cores"), key=lambda one: known[one])
    # Without a clock of the device a copy that waits for the step before it cannot be told from a slow one.
    if name == "device" and steps is not None and steps.num_steps and steps.device is not None:
        transfer = steps.per_step("transfer") * steps.exposed("transfer")
        return "transfer" if transfer > 0.5 * known["device"] else "device"
    return name


def _contention(baseline: Sequence[Note], free: Sequence[Note]) -> float | None:
    """How much longer the step itself takes while workers run: both without the wait for data."""
    busy = [_mean([n["mean_s"] - n["wait_s"] for n in notes if n.get("wait_s") is not None])
            for notes in (baseline, free)]  # fmt: skip
    return busy[0] - busy[1] if busy[0] is not None and busy[1] is not None else None
