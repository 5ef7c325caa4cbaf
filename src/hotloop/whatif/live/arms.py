"""What a block can have in force: nothing, batches for free, or a remedy."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from hotloop.probe.probe import Probe
from hotloop.remedy.live.applying import make
from hotloop.remedy.live.form import Form
from hotloop.remedy.live.loader import LoaderForm
from hotloop.whatif.live.feeder import Feeder
from hotloop.whatif.live.sibling import Sibling


class Arm:
    """The baseline, and what all have in common.

    ``settle`` is how many steps after a switch to or from it tell nothing yet.
    """

    name = "baseline"
    refused = ""
    feeds = False  # the driving loader, and no other that feeds updates too

    def settle(self, iterator: Any) -> int:
        """Its workers' first batches, and two steps."""
        return 2 + int(getattr(iterator, "_num_workers", 0))

    def on(self, iterator: Any, num_steps: int) -> None:
        """In force from this boundary, for ``num_steps`` steps."""

    def keep(self, iterator: Any, num_steps: int) -> list[dict[str, Any]]:
        """At each of its boundaries, with ``num_steps`` steps to come: facts for the block's note."""
        return []

    def off(self, iterator: Any) -> None:
        """As the script has it."""

    def whole_epochs(self) -> None:
        """Epochs are so short that a block holds several."""

    def members(self) -> list[str]:
        """The arms it is made of, where it is made of several."""
        return []

    def status(self) -> str:
        """Why it was never in force, "" where it was."""
        return self.refused


class FreeData(Arm):
    """Batches taken ahead, untimed, then handed out: a perfect loader with the same transport."""

    name = "free-data"
    feeds = True

    def __init__(self, feeder: Feeder) -> None:
        self._feeder = feeder

    def settle(self, iterator: Any) -> int:
        """One step."""
        return 2

    def on(self, iterator: Any, num_steps: int) -> None:
        """Only for loops over a DataLoader."""
        if iterator is None:
            self.refused = "no DataLoader drives this loop"

    def keep(self, iterator: Any, num_steps: int) -> list[dict[str, Any]]:
        """Take the batches of the whole block, and those of each epoch that begins within it."""
        return self._feeder.fill(iterator, num_steps) if iterator is not None else []

    def off(self, iterator: Any) -> None:
        """Let the workers go on."""
        self._feeder.settle()


class FormArm(Arm):
    """A switchable live form."""

    def __init__(self, name: str, form: Form) -> None:
        self.name, self._form = name, form
        self._tried = False
        form.active = False
        form.guard(form.install)()

    def settle(self, iterator: Any) -> int:
        """What the form needs."""
        return self._form.warm_up

    def on(self, iterator: Any, num_steps: int) -> None:
        """On."""
        self._tried = True
        self._form.guard(self._form.on)()

    def off(self, iterator: Any) -> None:
        """Off; a form that found nothing to do is not tried again."""
        self._form.guard(self._form.off)()
        if not self._form.count:
            self.refused = self._form.status()

    def status(self) -> str:
        """What the form says, once it had its turn."""
        works = self._form.count and self._form.status().startswith("in effect")
        return "" if works or not self._tried else self._form.status()


class LoaderArm(Arm):
    """A loader with other settings: an iterator of our own that draws from the script's sampler."""

    feeds = True

    def __init__(self, name: str, forms: Sequence[LoaderForm], feeder: Feeder) -> None:
        self.name, self.forms, self._feeder = name, forms, feeder
        self._sibling: Sibling | None = None

    def settle(self, iterator: Any) -> int:
        """What the others were given comes first, then its workers' first batches."""
        given = int(getattr(iterator, "_prefetch_factor", 0) or 0) * int(getattr(iterator, "_num_workers", 0))
        return 2 + given + (self._sibling.num_tasks if self._sibling is not None else 8)

    def on(self, iterator: Any, num_steps: int) -> None:
        """Its batches from here on."""
        if self._sibling is None and not self.refused:
            self._begin(iterator)
        if self._sibling is not None:
            self._feeder.use(self._sibling, iterator)

    def off(self, iterator: Any) -> None:
        """The script's own again."""
        self._feeder.leave()

    def status(self) -> str:
        """What became of its workers, if they were ever in force."""
        return (self._sibling.failed if self._sibling is not None else "") or self.refused

    def whole_epochs(self) -> None:
        """What new workers take to start, in each epoch, is no part of blocks."""
        self.refused = (
            "epochs are too short to exchange workers within one: compare two runs, "
            f"hotloop run --apply {self.name} -- COMMAND and one without"
        )

    def _begin(self, iterator: Any) -> None:
        if iterator is None:
            self.refused = "no DataLoader drives this loop"
        elif iterator._dataset_kind != 0:
            self.refused = "an iterable dataset: its workers cannot be exchanged within an epoch"
        elif (loader := self._feeder.loader()) is None:
            self.refused = "the script let go of the DataLoader it iterates over"
        elif not isinstance(loader, sys.modules["torch"].utils.data.DataLoader):
            self.refused = "the loop's loader is no DataLoader: only torch's workers can be exchanged"
        else:
            changes: dict[str, Any] = {}
            for form in self.forms:
                changes |= form.changes(loader, {**loader.__dict__, **changes}) or {}
            if not changes:
                self.refused = self.forms[-1].status()
            elif all(loader.__dict__.get(name) == value for name, value in changes.items()):
                self.refused = "the script has it already"
            elif not (why := self._feeder.why_not(changes)):
                self._sibling = self._feeder.sibling(changes)
            else:
                self.refused = why


class Together(Arm):
    """Several arms at once: those that were in force when each had its turn."""

    def __init__(self, name: str, arms: Sequence[Arm], feeder: Feeder) -> None:
        self.name = name
        forms = [form for arm in arms if isinstance(arm, LoaderArm) for form in arm.forms]
        self._loader = LoaderArm(name, forms, feeder)
        self._arms = arms

    def _parts(self) -> list[Arm]:
        """What is switched: one iterator for all that other workers need."""
        working = [arm for arm in self._arms if not arm.refused]
        others = [arm for arm in working if not isinstance(arm, LoaderArm)]
        return others if len(others) == len(working) else [*others, self._loader]

    def members(self) -> list[str]:
        """The names of those in force."""
        return [arm.name for arm in self._arms if not arm.refused]

    def settle(self, iterator: Any) -> int:
        """What the slowest needs."""
        return max((part.settle(iterator) for part in self._parts()), default=2)

    def on(self, iterator: Any, num_steps: int) -> None:
        """All on."""
        if len(self.members()) < 2:
            self.refused = "fewer than two of them can be in force here"
            return
        for part in self._parts():
            part.on(iterator, num_steps)
        self.refused = self._loader.refused

    def off(self, iterator: Any) -> None:
        """All off."""
        for part in self._parts():
            part.off(iterator)

    @property
    def feeds(self) -> bool:  # type: ignore[override]
        """As for each."""
        return any(isinstance(arm, LoaderArm) and not arm.refused for arm in self._arms)


def build(probe: Probe, feeder: Feeder, plan: Sequence[dict[str, Any]]) -> list[Arm]:
    """The arms of the plan's entries: ``{"name": ..., "remedy": [id, value, live] | None}``.

    An entry with ``together``, the names of earlier ones, is these at once.
    """
    arms: dict[str, Arm] = {}
    for wanted in plan:
        members = [arms[name] for name in wanted.get("together", ())]
        arms[wanted["name"]] = (
            Together(wanted["name"], members, feeder) if members else _one(probe, feeder, wanted)
        )
    return list(arms.values())


def _one(probe: Probe, feeder: Feeder, wanted: dict[str, Any]) -> Arm:
    name, remedy = wanted["name"], wanted.get("remedy")
    if remedy is None:
        return FreeData(feeder)
    form = make(probe, *remedy)
    if form is None:
        arm = Arm()
        arm.name, arm.refused = name, "could not be made"
        return arm
    return LoaderArm(name, [form], feeder) if isinstance(form, LoaderForm) else FormArm(name, form)


def workers_cpu_s(iterator: Any) -> dict[int, float]:
    """CPU seconds of an iterator's workers so far, by process."""
    found = {}
    for worker in getattr(iterator, "_workers", ()):
        try:
            with open(f"/proc/{worker.pid}/stat") as stream:
                fields = stream.read().rpartition(")")[2].split()
        except OSError:
            continue
        found[worker.pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found
