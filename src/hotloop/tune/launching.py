"""Launches within a budget: each has a key, comes from the journal where it is there, and is judged."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

from hotloop.compare.losses import STEPS
from hotloop.compare.run import Trace
from hotloop.errors import CheckFailed
from hotloop.tune.candidate import Limits
from hotloop.tune.journal import Journal
from hotloop.tune.patching import Patches
from hotloop.tune.trial import (
    FAILED,
    PROOF,
    Arm,
    Bench,
    Examined,
    Ran,
    Request,
    Trial,
    epoch_of,
    fills,
    judged,
    queue_of,
    rate,
    settings,
    spell,
)

#: The first run may take this part of the budget, but not less and not more than these.
_FIRST_PART: Final = 0.2
_LEAST_FIRST_S: Final = 10.0
_FIRST_S: Final = 90.0
#: Seconds and steps that a launch is meant to show, its start not counted.
_SHOWN_S: Final = 3.0
_SHOWN_PART: Final = 0.01
_MOST_SHOWN_S: Final = 15.0
_SHOWN_STEPS: Final = 30
#: A launch may take so many times as long as the unmodified run, and this much more.
_PATIENCE: Final = 3.0
_PATIENCE_S: Final = 20.0
#: Epochs of a launch that fills a cache: one fills, one makes up, one shows.
FILL_EPOCHS: Final = 3
#: A proof may end so much behind the budget.
_BEHIND_S: Final = 5.0
#: An arm may be predicted to be slower than this; it is ended then.
_SLOWEST: Final = 0.5


def first_s(budget_s: float) -> float:
    """Seconds that the first run may take of a budget, where it has steps by then."""
    return min(_FIRST_S, max(_LEAST_FIRST_S, _FIRST_PART * budget_s))


class Spent(Exception):  # noqa: N818 - the end of a search
    """A launch was ended that therefore tells nothing and is not kept: by the budget, or a proof."""


@dataclass(frozen=True, kw_only=True)
class Say:
    """Where progress goes: ``trying`` before a launch (arm, share of the budget spent), ``done`` after it."""

    trying: Callable[[str, float], None]
    done: Callable[[Trial], None]


@dataclass(kw_only=True)
class Launcher:
    """``steps`` is how many a launch runs for (None: to its end), ``launch_s`` about how long one takes."""

    bench: Bench
    journal: Journal
    folder: Path
    budget_s: float
    limits: Limits
    say: Say
    command: Sequence[str] = ()
    patches: Patches | None = None  # of the unmodified run
    steps: int | None = None
    launch_s: float = 0.0
    start_s: float = 0.0  # of a launch, before its first step and after its last
    epoch: int = 0  # batches, where known
    epoch_s: float = 0.0  # and what they take unmodified
    once: bool = False  # the run goes through its data a single time
    own: Mapping[str, Any] = field(default_factory=dict)  # the loader's, where launches are no whole epochs
    found: Trial | None = None  # the first run, its rate taken as if it had been a launch
    spent: bool = False  # something was not launched for lack of time
    _before_s: float = 0.0
    _begun_s: float = field(default_factory=monotonic)

    def __post_init__(self) -> None:
        self._before_s = self.journal.seconds

    @property
    def single(self) -> int:
        """The batches of a run that goes through its data a single time, 0 where it does not."""
        return self.epoch if self.once else 0

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left; those of an earlier part of this tuning count."""
        return self.budget_s - self._before_s - (monotonic() - self._begun_s)

    def known(self, key: str) -> set[str]:
        """Arms that the journal has of a round, as they are spelled."""
        begins = re.compile(rf"{re.escape(key)}/(\d+: )?")
        return {one[found.end() :] for one in self.journal.trials if (found := begins.match(one))}

    def expected_s(self, arm: Arm, ratio: float = 1.0) -> float:
        """Seconds of a launch: what its last one took, or what one ``ratio`` times as fast would."""
        words = tuple(map(str, arm))
        timed = [one for one in self.journal.trials.values() if one.timed and "/" in one.key]
        known = [one for one in timed if one.remedies == words]
        if known:
            return known[-1].seconds
        if fills(arm) and self.steps is not None and self.epoch:
            return self.start_s + self.epoch_s * (1 + (FILL_EPOCHS - 1) / ratio)
        stepping_s = max(0.0, self.launch_s - self.start_s)
        if fills(arm) and self.steps is not None:
            return self.start_s + stepping_s * (1 + (FILL_EPOCHS - 1) / max(ratio, _SLOWEST))
        return self.start_s + stepping_s / max(ratio, _SLOWEST)

    def room(self, seconds: float, key: str = "") -> bool:
        """Whether the budget has room for so many seconds; what is in the journal costs nothing."""
        if (key and self.known(key)) or self.left_s > seconds:
            return True
        self.spent = True
        return False

    @property
    def patience_s(self) -> float:
        """Seconds after which a launch is given up."""
        return _PATIENCE * self.launch_s + _PATIENCE_S

    def first(self) -> tuple[Trial, Examined]:
        """The run as found, long enough for a diagnosis. Raises CheckFailed where it fails."""
        stop_s = first_s(self.budget_s)
        timeout_s = max(self.budget_s, 2 * stop_s + _PATIENCE_S)
        trial = self._trial("first", (), timeout_s=timeout_s, stop_s=stop_s)
        seen = self.examine(trial) if trial.status == "measured" else None
        if seen is None or seen.evidence is None:
            hint = f"its output is in {self.folder / trial.folder / 'output.log'}"
            if trial.status == "ended" or trial.more.get("stopped"):
                hint = f"give it a larger --budget; if it makes data first, run it once before; {hint}"
            raise CheckFailed(f"the unmodified run gives nothing to tune: {trial.why}", hint=hint)
        self.journal.hold(seen.files)
        self.patches = Patches(seen=seen, command=self.command, cut=bool(trial.more.get("stopped")))
        self._plan(trial, seen)
        return trial, seen

    def _plan(self, trial: Trial, seen: Examined) -> None:
        assert seen.evidence is not None and trial.s_per_step is not None
        steps = seen.evidence.steps
        shown_s = min(max(_SHOWN_S, _SHOWN_PART * self.budget_s), _MOST_SHOWN_S)
        num = max(_SHOWN_STEPS, round(shown_s / trial.s_per_step))
        epoch = epoch_of(seen)
        loader = steps.train_loader()
        if 0 < epoch <= num:  # whole epochs, the first of them not counted
            num = epoch * (1 + -(-num // epoch))
        elif loader is not None:
            self.own = loader.settings
            num += queue_of(self.own)
        wall_s = float(trial.more.get("wall_s") or trial.seconds)
        self.start_s, self.epoch_s = float(steps.start_s[0]) + 1.0, epoch * trial.s_per_step
        self.epoch = epoch
        self.launch_s = wall_s
        passes = loader.num_iterators if loader is not None else 0
        self.once = passes == 1 and steps.num_steps <= epoch and not trial.more.get("stopped")
        if trial.more.get("stopped") or num <= 0.7 * steps.num_steps:
            self.steps = num
            self.launch_s = min(wall_s, self.start_s + num * trial.s_per_step)
        cut = rate(seen.evidence.ranks, steps, strict=False, most=self.steps, once=self.single)
        self.found = trial
        if cut is not None:
            self.found = replace(trial, s_per_step=cut.s_per_step, samples_per_s=cut.samples_per_s)

    def round(
        self, key: str, arms: Sequence[Arm], skip: Callable[[Arm, Mapping[str, Trial]], bool] | None = None
    ) -> dict[str, Trial]:
        """One launch of each arm, by its spelling, but of what ``skip`` says so of after those before."""
        found: dict[str, Trial] = {}
        for arm in arms:
            if skip is not None and skip(arm, found):
                continue
            trial = self.launch(f"{key}/{spell(arm)}", arm, steps=self.steps, timeout_s=self.patience_s)
            if not arm and trial.status == "measured":
                self.launch_s = trial.seconds
            found[spell(arm)] = trial
        self.journal.finish(key)
        return found

    def launch(self, key: str, arm: Arm, *, steps: int | None, timeout_s: float) -> Trial:
        """One launch of so many steps, and as many as its arm's workers make ahead of them."""
        return self.warm(self._trial(key, arm, timeout_s=timeout_s, steps=self.steps_of(arm, steps)))

    def steps_of(self, arm: Arm, steps: int | None) -> int | None:
        """So many steps, and what an arm needs beyond them to show itself."""
        if steps is not None and self.own:
            steps += max(0, queue_of({**self.own, **settings(arm)}) - queue_of(self.own))
        if steps is not None and fills(arm):
            steps = max(steps, FILL_EPOCHS * self.epoch) if self.epoch else FILL_EPOCHS * steps
        return steps

    def warm(self, trial: Trial) -> Trial:
        """Launches start in what was seen of a later one: the first run may have been the first of all,
        and have filled its caches of files, of compiled modules, of fonts.
        """
        if trial.s_per_step is not None:
            # A launch may end before the steps it was given: of larger batches an epoch has fewer.
            ran = int(trial.more.get("steps") or trial.num_steps)
            start_s = max(0.0, trial.seconds - trial.s_per_step * ran)
            self.launch_s -= max(0.0, self.start_s - start_s)
            self.start_s = min(self.start_s, start_s)
        return trial

    def proof_s(self, steps: int = STEPS) -> float:
        """About how long the two launches of a proof take that has so many steps."""
        per_step_s = self.found.s_per_step if self.found is not None else None
        return 2 * (self.start_s + steps * (per_step_s or 0.0))

    def proof(self, arm: Arm, steps: int) -> str:
        """The key of what so many steps under an arm compute."""
        return f"{PROOF}{steps}/{spell(arm)}"

    def traced(self, arm: Arm, *, steps: int, again: str = "") -> Trace | None:
        """What so many steps under an arm compute, ``again`` or ``perturbed``. Raises Spent, with why, where
        they were not done.
        """
        timeout_s = self.start_s + max(self.launch_s, self.proof_s(steps)) + _PATIENCE_S
        key = f"{self.proof(arm, steps)} {again}".rstrip()
        how = {"evidence": True, "perturbed": again == "perturbed"}
        trial = self._trial(key, arm, timeout_s=timeout_s, steps=steps, behind_s=_BEHIND_S, **how)
        if trial.status == "refused" or trial.why.startswith(FAILED):
            raise Spent(trial.why)
        return self.examine(trial).trace

    def examine(self, trial: Trial) -> Examined:
        """A trial's recording, read again."""
        return self.bench.examine(self.folder / trial.folder)

    def _trial(self, key: str, arm: Arm, *, timeout_s: float, behind_s: float = 0.0, **more: Any) -> Trial:
        """The trial of this key: from the journal, or launched now. Raises Spent."""
        known = self.journal.trials.get(key)
        if known is not None and (known.status == "measured" or key != "first"):  # else: tried again
            return known
        most_s = self.left_s + behind_s if self.journal.trials else timeout_s  # the first one has to be
        if most_s <= 0:
            self.spent = True
            raise Spent("the budget is spent")
        request = self.request(arm, timeout_s=min(timeout_s, most_s), **more)
        self.say.trying(spell(arm), 1 - max(0.0, self.left_s) / self.budget_s)
        begun_s = monotonic()
        ran = self.bench.run(request)
        if ran.interrupted:
            raise KeyboardInterrupt
        if ran.ended_for and most_s < timeout_s and self.left_s <= 0:
            self.spent = True
            raise Spent("the budget is spent")
        if ran.ended_for and key.startswith(PROOF):
            raise Spent(ran.ended_for)
        return self.judge(key, request, ran, monotonic() - begun_s)

    def request(self, arm: Arm, **more: Any) -> Request:
        """A request in a new folder."""
        patch = self.patches.in_force(arm) if self.patches is not None else None
        number = len(self.journal.trials)
        while (folder := self.folder / "trials" / f"{number:03d}").exists():
            number += 1  # of a trial that did not come to an end
        folder.mkdir(parents=True)
        return Request(folder=folder, arm=arm, patch=patch, most_bytes=self.limits.most_bytes, **more)

    def judge(self, key: str, request: Request, ran: Ran, seconds: float) -> Trial:
        """What came of a launch, in the journal."""
        trial = replace(judged(key, request, ran, self.bench, self.single), seconds=seconds)
        self.journal.add(trial)
        self.say.done(trial)
        return trial
