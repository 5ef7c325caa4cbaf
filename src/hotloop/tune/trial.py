"""A trial: one launch of the command with remedies in force, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from hotloop.compare.run import Trace
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding
from hotloop.fix.in_force import InForce
from hotloop.measure.steps import Steps
from hotloop.phases import COLUMN
from hotloop.record.samples import device_peak
from hotloop.remedy.catalogue import Applied
from hotloop.remedy.remedy import Effect

#: refused: a remedy was not in effect; failed: the command did; ended: by hotloop, for time or memory.
Status = Literal["measured", "refused", "failed", "ended"]

#: What a step waits before it has its batch, workers that start included.
_WAITS: Final = [COLUMN["data_wait"], COLUMN["epoch_gap"]]

#: What the keys of launches for a proof begin with.
PROOF: Final = "proof/"

CACHE: Final = "cache-samples"
#: Show nothing before they are filled.
_FILLED: Final = (CACHE, "memoize")
#: How the words of a command that failed begin.
FAILED: Final = "exit code"

#: An arm of the search: the remedies in force, in the order they were taken up.
Arm = tuple[Applied, ...]


def spell(arm: Arm) -> str:
    """An arm as people read it."""
    return " + ".join(map(str, arm)) or "unmodified"


def edited(arm: Arm) -> Arm:
    """The remedies of an arm without a live form: a patch is in force."""
    return tuple(one for one in arm if not one.is_live)


def live(arm: Arm) -> Arm:
    """The remedies of an arm that are in force without a patch."""
    return tuple(one for one in arm if one.is_live)


def effect_of(one: Applied, *, drawn: bool = False) -> Effect:
    """What a remedy may alter in a trial: its source form may alter more than its live one."""
    return one.remedy.effect_where(drawn, live=one.is_live)


def asked(arm: Arm, patch: Path | None) -> list[str]:
    """The words of ``run`` and ``verify`` for an arm, with the file that holds its patch."""
    words = ["--patch", str(patch)] if patch is not None else []
    return [*words, *(word for one in live(arm) for word in ("--apply", str(one)))]


def command_of(arm: Arm, command: Sequence[str], patch: Path | None = None) -> list[str]:
    """The command line that puts an arm in force."""
    return ["hotloop", "run", *asked(arm, patch), "--", *command] if arm else list(command)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to launch. ``stop_s`` interrupts it in time, which is no failure; ``timeout_s`` kills it.

    ``evidence`` records its losses, of ``perturbed`` weights.
    """

    folder: Path
    arm: Arm
    timeout_s: float
    steps: int | None = None
    stop_s: float | None = None
    most_bytes: float | None = None
    patch: InForce | None = None
    evidence: bool = False
    perturbed: bool = False


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a launch ended. ``ended_for``: why hotloop ended it; ``interrupted``: hotloop was told to end.
    ``started``: False where it could not even begin, which is nobody's fault."""

    exit_code: int
    wall_s: float
    ended_for: str = ""
    stopped: bool = False
    interrupted: bool = False
    started: bool = True
    peak_bytes: float = 0.0
    last_words: str = ""
    node: str = ""  # where, if that is not this machine


@dataclass(frozen=True, kw_only=True)
class Examined:
    """A trial's recording, read. ``evidence`` is None where no step was seen."""

    evidence: Evidence | None
    findings: tuple[Finding, ...]
    applied: Mapping[str, str]  # remedy id -> its last status
    draws: tuple[str, ...] = ()  # generators that the training samples draw from, as far as was seen
    crowded: bool = False  # others used the cores
    files: tuple[Path, ...] = ()  # code and configuration that it read and did not write
    missed: tuple[str, ...] = ()  # files of the patch in force that no process loaded
    trace: Trace | None = None  # what it computed, where that was recorded


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What the search cannot do itself: launch a trial, and read its recording.

    ``beside`` launches each sequence on one of ``nodes`` machines, as far as it gets in so many seconds.
    """

    run: Callable[[Request], Ran]
    examine: Callable[[Path], Examined]
    nodes: int = 1
    beside: Callable[[Sequence[Sequence[Request]], float], list[list[Ran]]] = lambda requests, _: []


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A line of trials.jsonl. ``s_per_step`` is over what counts (``rate``); ``seconds`` is what it cost.
    ``more["taken"]``: see ``Evidence.taken``.
    """

    key: str
    remedies: tuple[str, ...]
    status: Status
    folder: str
    seconds: float
    why: str = ""
    s_per_step: float | None = None
    samples_per_s: float | None = None
    num_steps: int = 0
    host_bytes: float = 0.0
    device_bytes: float = 0.0
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def timed(self) -> bool:
        """Whether it is a run whose rate can be compared: proofs are not."""
        return not self.key.startswith(PROOF)

    @property
    def cost_s(self) -> float | None:
        """Seconds per sample, per step where samples are not known: what the search compares."""
        return 1 / self.samples_per_s if self.samples_per_s else self.s_per_step

    def to_json(self) -> dict[str, Any]:
        """The line."""
        return {**asdict(self), "remedies": list(self.remedies)}

    @classmethod
    def of_json(cls, line: Mapping[str, Any]) -> Trial:
        """Raises TypeError for a line of another shape."""
        known = {one.name for one in fields(cls)}
        found = {name: value for name, value in line.items() if name in known}
        return cls(**{**found, "remedies": tuple(found.get("remedies", ()))})


def costs(trials: Iterable[Trial]) -> list[float | None]:
    """What trials cost beside each other: without what others took of the cores, where it is known of all."""
    known = list(trials)
    alone = all(one.more.get("taken") is not None for one in known)
    return [one.cost_s and one.cost_s * (1.0 - one.more["taken"] if alone else 1.0) for one in known]


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How fast a run went where it ran evenly: from the second epoch on, where there is one."""

    s_per_step: float
    samples_per_s: float | None
    num_steps: int


def rate(
    ranks: tuple[Steps, ...],
    steps: Steps,
    *,
    strict: bool = True,
    fills: bool = False,
    most: int | None = None,
    once: int = 0,
) -> Rate | None:
    """The rate of a run: from step to step, all between them included; None with fewer than two steps.

    The first epoch is left out where a whole second one was seen: a run of days is not made of it. Where a
    cache ``fills``, so is the second, where there is a third: what ``drop_last`` dropped and the evaluation
    after the first epoch are not cached before; where nobody knows how long an epoch is, the last third of
    the steps counts then. Where less than an epoch was seen the batches that may have been made ahead while
    the loop warmed up are left out, as many as the queue holds; not ``strict``: unless there are no others.
    Warm-up steps and steps with a compile in them never count. ``most``: as a run would have it that was
    over after so many steps. ``once``: the steps of a run that goes through its data a single time: what
    those left out waited, workers that start first of all, is spread over them.
    """
    num = min(steps.num_steps, most or steps.num_steps)
    if num < 2:
        return None
    length = np.append(np.diff(steps.start_s), steps.end_s[-1] - steps.start_s[-1])[:num]
    counted = steps.steady[:num].copy()
    loader = steps.train_loader()
    epoch = round(loader.batches_per_epoch) if loader is not None else 0
    out = epoch * (2 if fills and num >= 3 * epoch else 1)
    if epoch > 0 and num >= out + epoch and counted[out:].any():
        counted[:out] = False
        if num == steps.num_steps:
            length[-1] = max(0.0, length[-1] - _behind(steps))
    elif fills and not epoch and counted[(late := 2 * num // 3) :].any():
        counted[:late] = False  # nobody knows how long its epochs are
    elif loader is not None and not 0 < epoch <= num:
        ahead = queue_of(loader.settings)
        if strict or counted[ahead:].any():
            counted[:ahead] = False
    if not counted.any():
        return None
    seconds = float(length[counted].sum())
    samples = sum(float(np.nansum(one.samples)) / max(1, one.num_steps) for one in ranks)
    per_step = seconds / int(counted.sum())
    if once:
        waited = steps.phases[:num, _WAITS].sum(axis=1)
        per_step += float((waited[~counted] - waited[counted].mean()).sum()) / max(once, num)
    return Rate(
        s_per_step=per_step,
        samples_per_s=samples / per_step if samples > 0 else None,
        num_steps=int(counted.sum()),
    )


def _behind(steps: Steps) -> float:
    """Seconds of what came after the last step: what came before the first that counts is counted."""
    over_s = steps.end_s[-1]
    passed = (*steps.evaluations, *steps.checkpoints)
    return sum(one.seconds for one in passed if one.after_step >= steps.num_steps and one.end_s <= over_s)


def queue_of(settings: Mapping[str, Any]) -> int:
    """Batches that a loader's workers make ahead."""
    return int(settings.get("num_workers") or 0) * int(settings.get("prefetch_factor") or 2)


def fills(arm: Arm) -> list[str]:
    """The remedies of an arm that show nothing before its first epoch is over."""
    return [one.remedy.id for one in arm if one.remedy.id in _FILLED]


def settings(arm: Arm) -> dict[str, Any]:
    """What an arm sets of the loader's workers."""
    given = {one.remedy.parameter.name: one.value for one in arm if one.remedy.parameter is not None}
    return {"num_workers": 0, **given} if any(one.remedy.id == "no-workers" for one in arm) else given


def epoch_of(seen: Examined) -> int:
    """Batches of an epoch of the training loader, 0 where they are not known."""
    loader = seen.evidence.steps.train_loader() if seen.evidence is not None else None
    if loader is None or seen.evidence is None:
        return 0
    samples = float(loader.dataset.get("len") or 0) / len(seen.evidence.ranks)
    whole = samples / float(loader.settings.get("batch_size") or samples or 1)
    return round(whole if loader.num_iterators < 2 else loader.batches_per_epoch)


def judged(key: str, request: Request, ran: Ran, bench: Bench, once: int) -> Trial:
    """What came of a launch; ``once`` as in ``rate``."""
    folder = request.folder
    blank = Trial(
        key=key,
        remedies=tuple(map(str, request.arm)),
        status="failed",
        folder=f"{folder.parent.name}/{folder.name}",
        seconds=0.0,
        host_bytes=ran.peak_bytes,
        more={"wall_s": ran.wall_s, "stopped": ran.stopped}
        | ({} if ran.started else {"started": False})
        | ({"node": ran.node} if ran.node else {}),
    )
    if ran.ended_for:
        return replace(blank, status="ended", why=ran.ended_for)
    seen = bench.examine(folder)
    oom = next((one.message for one in seen.findings if one.id == "memory/out-of-memory"), "")
    if oom or (ran.exit_code and not ran.stopped):
        return replace(blank, why=oom or f"{FAILED} {ran.exit_code}: {ran.last_words}".rstrip(": "))
    if seen.evidence is None:
        return replace(blank, why="no training step was seen")
    missing = _not_in_effect(request.arm, seen)
    if missing:
        return replace(blank, status="refused", why="; ".join(missing))
    filling = bool(fills(request.arm))
    found = rate(seen.evidence.ranks, seen.evidence.steps, strict=key != "first", fills=filling, once=once)
    if found is None:
        return replace(blank, why="too few training steps were seen")
    return replace(
        blank,
        status="measured",
        s_per_step=found.s_per_step,
        samples_per_s=found.samples_per_s,
        num_steps=found.num_steps,
        more={**blank.more, "steps": seen.evidence.steps.num_steps, "taken": seen.evidence.taken},
        device_bytes=device_peak(seen.evidence.recording) or 0.0,
    )


def _not_in_effect(arm: Arm, seen: Examined) -> list[str]:
    """What the remedies say that were not in effect, each in one line."""
    if seen.missed:
        return [
            f"the patch was not met: {', '.join(Path(file).name for file in seen.missed)} was not imported"
        ]
    status = {one.remedy.id: seen.applied.get(one.remedy.id, "nothing was noted") for one in live(arm)}
    missing = {name: words for name, words in status.items() if not words.startswith("in effect")}
    return [
        " ".join((words if len(arm) == 1 else f"{name}: {words}").split()) for name, words in missing.items()
    ]
