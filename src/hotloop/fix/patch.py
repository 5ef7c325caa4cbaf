"""One patch from a run: which remedies with which values, every changed file, and what is left to say; and
writing it into the user's files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from hotloop.errors import UsageError
from hotloop.findings import Finding
from hotloop.fix.edits import Change, Expected, Left
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Cannot, Scene
from hotloop.launch.machine import usable_cores
from hotloop.measure.settings import plain_number
from hotloop.record.publish import write_bytes_atomic
from hotloop.record.recording import Note
from hotloop.remedy import catalogue
from hotloop.remedy.catalogue import Applied
from hotloop.remedy.remedy import EFFECTS, Effect, Remedy
from hotloop.source.text import Text, diff

#: Remedies of one finding that belong together; others of one finding are alternatives.
_TOGETHER: Final = frozenset(["pin-memory", "non-blocking", "less-frequent-evaluation"])
#: What others build on comes first; a model is compiled as it is to run.
_ORDER: Final = {"num-workers": 0, "no-workers": 0, "compile": 2, "cuda-graphs": 2}


@dataclass(frozen=True, kw_only=True)
class Patch:
    """What to write into which files, and what is left to a person."""

    scene: Scene
    applied: tuple[Applied, ...]
    files: dict[Path, tuple[Text, bytes]]
    changes: tuple[Change, ...]
    left: tuple[Left, ...]
    remarks: tuple[str, ...]
    expected: tuple[Expected, ...]

    @property
    def alters(self) -> tuple[str, ...]:
        """What the remedies that were written may change."""
        written = {change.remedy for change in self.changes}
        return tuple(
            f"{one.remedy.id}: {one.remedy.alters}"
            for one in self.applied
            if one.remedy.id in written and one.remedy.alters
        )

    def diff(self, root: Path) -> str:
        """A unified diff that ``git apply`` takes in ``root``."""
        parts = []
        for path, (text, new) in sorted(self.files.items()):
            name = os.path.relpath(path, root).replace(os.sep, "/")
            parts.append(diff(name, text.encoded(text.text), new))
        return "".join(parts)


def make(scene: Scene, applied: Sequence[Applied], paths: Sequence[Path] = ()) -> Patch:
    """The patch that writes these remedies; ``paths`` limits what it may change."""
    plan = Plan(scene)
    ordered = sorted(applied, key=lambda one: _ORDER.get(one.remedy.id, 1))
    for one in ordered:
        configured = _configured(scene, one.remedy).get("value")
        words = one.remedy.said(one.value if one.value is not None else configured)
        if not one.remedy.source:
            plan.remedy = one.remedy.id
            place = scene.where.get(one.remedy.id)  # the finding that it answers
            plan.leave(Cannot("", place.file, place.line) if place else Cannot(""), words)
            continue
        module, _, name = one.remedy.source.partition(":")
        rewrite = getattr(import_module(module), name)

        def limited(plan: Plan, value: Any, rewrite: Any = rewrite) -> None:
            rewrite(plan, value)
            for path in plan.results():
                if paths and not any(path.is_relative_to(limit.absolute()) for limit in paths):
                    raise Cannot("it lies outside the paths given", str(path))

        plan.attempt(one.remedy.id, words, limited, one.value)
    return Patch(
        scene=scene,
        applied=tuple(ordered),
        files=plan.results(),
        changes=tuple(plan.changes),
        left=tuple(plan.left),
        remarks=tuple(dict.fromkeys(plan.remarks)),
        expected=tuple(plan.expected),
    )


def _configured(scene: Scene, remedy: Remedy) -> Note:
    """What was written down for a remedy's setting and never came into effect; empty for nothing."""
    notes = (scene.configured(key) for key in remedy.config_keys)
    return next((note for note in notes if note), {})


def _goes_along(scene: Scene, remedy: Remedy, asked: Any) -> bool:
    """Whether a configured value changes the one in effect, if not as far, the way a finding asks."""
    note = _configured(scene, remedy)
    effect = next((one.in_effect for one in scene.settings if one.name == note.get("meaning")), None)
    said, now, wanted = map(plain_number, (note.get("value"), effect, asked))
    if said is None or now is None or wanted is None:
        return bool(note)
    return (said - now) * (wanted - now) > 0


def from_findings(
    findings: Iterable[Finding], allowed: Effect, scene: Scene
) -> tuple[list[Applied], list[Applied]]:
    """The remedies the findings ask for, in their order: those to write, and those that wait to be asked for.

    Of the alternatives for one finding the first that can be written and is allowed is taken. Where a value
    was configured and ignored, it is that value. Of what is information, no fault, only what alters nothing
    is taken, and only what can be written: a busy machine must not leave its mark in the source.
    """
    known = {remedy.id: remedy for remedy in catalogue.remedies()}
    taken: dict[str, Applied] = {}
    waiting: dict[str, Applied] = {}
    for finding in findings:
        limit = EFFECTS.index("exact" if finding.severity == "info" else allowed)
        chosen = False
        for name in finding.remedies:
            remedy = known[name]
            built = scene.asked_of(name)
            stream = built is not None and bool(built.settings.get("iterable"))
            if (stream and remedy.indexed) or (finding.severity == "info" and not remedy.source):
                continue
            value = _value(remedy, finding)
            if _goes_along(scene, remedy, value):
                value = None  # what was configured
            one = Applied(remedy=remedy, value=value)
            excluded = any(catalogue.exclude_each_other(name, other) for other in taken)
            may = EFFECTS.index(remedy.written_effect) <= limit and not remedy.depends
            if name in taken:
                chosen = True
            elif may and (not chosen or name in _TOGETHER) and not excluded:
                taken[name] = one
                chosen = chosen or bool(remedy.source)
            else:
                waiting.setdefault(name, one)
    return list(taken.values()), [one for name, one in waiting.items() if name not in taken]


def with_values(applied: Iterable[Applied], findings: Iterable[Finding]) -> list[Applied]:
    """Remedies asked for by name, with the value a finding knows where none was given.

    Raises UsageError for one that is asked for twice, and for two that exclude each other.
    """
    known = list(findings)
    found: list[Applied] = []
    for one in applied:
        for other in found:
            if other.remedy.id == one.remedy.id:
                raise UsageError(f"{one.remedy.id} is asked for twice", hint="give it once")
            if catalogue.exclude_each_other(one.remedy.id, other.remedy.id):
                raise UsageError(f"{other.remedy.id} and {one.remedy.id} exclude each other", hint="give one")
        value = one.value
        if value is None:
            about = [f for f in known if one.remedy.id in f.remedies]
            value = next((v for v in (_value(one.remedy, f) for f in about) if v is not None), None)
        found.append(Applied(remedy=one.remedy, value=value if value is not None else _usual(one.remedy)))
    return found


def _value(remedy: Remedy, finding: Finding) -> Any:
    parameter = remedy.parameter
    if parameter is None:
        return None
    value = finding.data.get(parameter.finding_key) if parameter.finding_key else None
    if finding.id == "config/ignored-value" and remedy.id == "num-workers":
        return None  # what was configured
    return value if value is not None else parameter.default or _usual(remedy)


def _usual(remedy: Remedy) -> Any:
    """What a remedy does without a value: as its live form."""
    if remedy.id == "num-workers":
        return max(1, int(usable_cores()) - 1)
    return remedy.parameter.default if remedy.parameter else None


# -- writing it, all of it or none, and never over what changed meanwhile ------------------------------------


def write(patch: Patch) -> None:
    """Apply the patch. Raises UsageError, with every file as it was."""
    for path, (text, _) in patch.files.items():
        _check(path, text.encoded(text.text))
    try:
        for path, (_, new) in sorted(patch.files.items()):
            _replace(path, new)
    except BaseException as error:  # an interrupt too
        for done, (text, new) in patch.files.items():
            if done.read_bytes() == new:
                _replace(done, text.encoded(text.text))
        if not isinstance(error, OSError):
            raise
        raise UsageError(f"{path} cannot be written: {error.strerror}; nothing is changed") from error


def _replace(path: Path, data: bytes) -> None:
    real = path.resolve()  # a link stays a link
    mode = real.stat().st_mode
    write_bytes_atomic(real, data)
    real.chmod(mode & 0o7777)


def _check(path: Path, before: bytes) -> None:
    try:
        now = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; nothing is changed") from error
    if now != before:
        raise UsageError(f"{path} changed meanwhile; nothing is changed", hint="run hotloop fix again")
    if not os.access(path, os.W_OK) or not os.access(path.resolve().parent, os.W_OK):
        raise UsageError(
            f"{path} cannot be written; nothing is changed",
            hint="make it writable, or take the diff: hotloop fix RUN > fix.patch",
        )


def root_of(patch: Patch) -> Path:
    """The folder a patch is applied in: the git work tree that holds all files, where git takes the paths of
    a patch from, else the run's folder where it does, else the one around all.
    """
    cwd = patch.scene.cwd
    whole = Path(os.path.commonpath([path.parent for path in patch.files] or [cwd]))
    around = (whole, *whole.parents)
    return next((one for one in around if (one / ".git").exists()), cwd if cwd in around else whole)
