"""The source form of arms: written as a patch, or in force as one where a remedy has no live form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from hotloop.errors import UsageError
from hotloop.findings import Finding, Place
from hotloop.fix import in_force
from hotloop.fix import patch as patches
from hotloop.fix.in_force import InForce
from hotloop.fix.scene import Scene
from hotloop.tune.trial import Arm, Examined, edited

#: What a patch changes of one loader.
OF_LOADERS: Final = frozenset(
    ["num-workers", "no-workers", "prefetch-factor", "persistent-workers", "cache-samples", "ring-loader"]
)


@dataclass(frozen=True, kw_only=True)
class Written:
    """The patch: its text, where it applies, and what is left to a person."""

    diff: str
    root: str
    left: tuple[str, ...]
    remarks: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Patches:
    """Patches made from the unmodified run, for the command it ran. ``cut``: it was ended before its end."""

    seen: Examined
    command: Sequence[str]
    cut: bool = False
    _known: dict[tuple[str, ...], InForce | str] = field(default_factory=dict)
    _heard: dict[str, Place] = field(default_factory=dict)  # by remedy: where findings of later runs stand

    def hear(self, findings: Sequence[Finding], arm: Arm) -> None:
        """Take places that only a later run names, under an arm without a patch: its lines are the files'."""
        if edited(arm):
            return
        asked = {name: found.where for found in reversed(findings) if found.where for name in found.remedies}
        if asked.keys() <= self._heard.keys():
            return
        self._heard = {**asked, **self._heard}
        self._known = {key: made for key, made in self._known.items() if not isinstance(made, str)}

    def write(self, arm: Arm) -> Written:
        """The source form of a whole arm."""
        made = patches.make(self._told, arm)
        root = patches.root_of(made) if made.files else Path.cwd()
        left = [f"{one.remedy}: {one.why or 'by hand'}: {one.write}" for one in made.left]
        return Written(diff=made.diff(root), root=str(root), left=tuple(left), remarks=tuple(made.remarks))

    def in_force(self, arm: Arm) -> InForce | None:
        """The patch of what in an arm has no live form; None where all of it has. Raises UsageError."""
        found = self._of(edited(arm))
        if isinstance(found, str):
            raise UsageError(found)
        return found

    def cannot(self, arm: Arm) -> str:
        """Why there is no such patch; "" where there is, or none is needed."""
        found = self._of(edited(arm))
        return found if isinstance(found, str) else ""

    def _of(self, arm: Arm) -> InForce | str | None:
        key = tuple(map(str, arm))
        if arm and key not in self._known:
            self._known[key] = self._made(arm)
        return self._known.get(key)

    def _made(self, arm: Arm) -> InForce | str:
        made = patches.make(self._told, arm)
        if made.left or not made.files:
            left = made.left[0] if made.left else None
            if left is None or not left.why:
                return "no change of the source would do it"
            near = f"{Path(left.file).name}{f':{left.line}' if left.line else ''}: " if left.file else ""
            return near + left.why
        diff = made.diff(patches.root_of(made)).encode("utf-8", "surrogateescape")
        try:
            return in_force.of(diff, self.command, "the patch")
        except UsageError as error:
            return error.message

    @property
    def _told(self) -> Scene:
        scene = self._scene
        new = {name: place for name, place in self._heard.items() if name not in scene.where}
        return replace(scene, where={**scene.where, **new})

    @cached_property
    def _scene(self) -> Scene:
        evidence = self.seen.evidence
        assert evidence is not None
        scene = Scene.of(evidence.process, evidence.recording, evidence.steps, self.seen.findings)
        return replace(scene, times={}) if self.cut else scene  # how often it is done in all is not known
