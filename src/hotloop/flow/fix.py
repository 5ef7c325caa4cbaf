"""``fix``: from a run to a patch of the source. Choose remedies, write them, prove them, publish."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hotloop.compare.losses import STEPS, SameLosses, same_losses
from hotloop.compare.run import Trace, run_of
from hotloop.diagnose.repeating import drawn
from hotloop.errors import UsageError
from hotloop.fix import check
from hotloop.fix import patch as patches
from hotloop.fix.check import Proof
from hotloop.fix.patch import Patch
from hotloop.fix.scene import Scene
from hotloop.flow.examine import Examination, examine, read
from hotloop.flow.observe import observe_quietly
from hotloop.launch.command import Outcome
from hotloop.launch.guard import Guard
from hotloop.model import Pipeline, Setup, gain
from hotloop.record.runfile import is_own
from hotloop.remedy import catalogue
from hotloop.remedy.catalogue import Applied
from hotloop.remedy.remedy import EFFECTS, Effect
from hotloop.tune import by_model

#: What a setting must be predicted to give, to be written: alone, or beside others.
_PAYS: Final = 1.05
#: Says on a terminal what takes long.
Status = Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """The patch that a run asks for, what was proven of it, and the patches that nobody asked for."""

    patch: Patch
    root: Path
    asked: bool
    proof: Proof | None
    drawn: bool  # samples draw random numbers
    offered: tuple[tuple[Applied, Patch], ...]
    written: bool
    predicted: tuple[str, ...] = ()
    found: int = 0  # findings that are no mere information
    unanswered: tuple[tuple[int, str], ...] = ()  # number and id of those that nothing above answers

    @property
    def missing(self) -> tuple[str, ...]:
        """Remedies that were asked for by name and that the patch leaves to a person."""
        return tuple(left.remedy for left in self.patch.left if not left.already) if self.asked else ()

    @property
    def effect(self) -> Effect:
        """What the patch may alter."""
        written = {change.remedy for change in self.patch.changes}
        known = [one.remedy for one in self.patch.applied if one.remedy.id in written]
        return max((one.effect_where(self.drawn) for one in known), key=EFFECTS.index, default="exact")

    @property
    def refused(self) -> bool:
        """Whether a proof says that the patch does not do what it should."""
        return self.proof is not None and self.proof.passed is False


def fix(
    run: Path,
    asked: Sequence[str],
    *,
    paths: Sequence[Path],
    allow: Effect,
    write: bool,
    timeout_s: float | None,
    status: Status,
    trust: bool = False,
) -> Fixed:
    """The patch of these remedies, or of what the findings ask for. ``timeout_s`` is of the proof; None: none
    is made. The command of a recording that is not this user's own is run where ``trust`` says so.
    """
    examination, scene = _examined(run)
    remedies = patches.with_values(map(catalogue.parse, asked), examination.findings)
    others: list[Applied] = []
    predicted: list[str] = []
    if not remedies:
        remedies, others = patches.from_findings(examination.findings, allow, scene)
        remedies, slower, predicted = _faster(remedies, examination, allow)
        others += slower
    patch = patches.make(scene, remedies, paths)
    offered = tuple((one, patches.make(scene, [one], paths)) for one in others)
    seen = examination.recording
    proof = None
    if timeout_s and patch.files:
        words = f"{run} names a command and was not recorded by you on this machine: --trust runs it"
        may = trust or is_own(seen.command, seen.cwd, seen.mark)
        proof = _proof(patch, timeout_s, status) if may else Proof(passed=None, words=words)
    told = {*(one.remedy.id for one in (*remedies, *others)), *(one.remedy for one in patch.left)}
    found = [(i, one) for i, one in enumerate(examination.findings, 1) if one.severity != "info"]
    fixed = Fixed(
        patch=patch,
        root=patches.root_of(patch),
        proof=proof,
        drawn=examination.evidence is not None and drawn(examination.evidence),
        asked=bool(asked),
        offered=offered,
        written=False,
        predicted=tuple(predicted),
        found=len(found),
        unanswered=tuple((i, one.id) for i, one in found if not asked and told.isdisjoint(one.remedies)),
    )
    if write and patch.files and not fixed.refused:
        patches.write(patch)
        fixed = replace(fixed, written=True)
    return fixed


def _examined(run: Path) -> tuple[Examination, Scene]:
    """The run, and its source and objects as the rewriters see them."""
    recording = read(run)
    if recording.patch is not None:
        raise UsageError(
            f"a patch was in force in {run}: its code is not what lies on disk",
            hint=f"write it first, git apply {run / 'patched' / 'patch.diff'}, and run again",
        )
    found = examine(recording)
    if found.process is None or found.lead is None:
        raise UsageError(f"{run} holds no training process", hint="run the training command first")
    return found, Scene.of(found.process, found.recording, found.lead, found.findings)


# -- the prediction --------------------------------------------------------------------------------------


def _faster(
    remedies: Sequence[Applied], examination: Examination, allow: Effect
) -> tuple[list[Applied], list[Applied], list[str]]:
    """Those to write, those that the model of loader and step predicts to be no faster, and the words for it.

    Workers that stay are added where the prediction needs them and ``allow`` lets them.
    """
    chosen = [
        one
        for one in remedies
        if by_model.setup_of((one,)) is not None and (one.value is not None or not one.remedy.parameter)
    ]
    evidence = examination.evidence if chosen else None
    pipeline = by_model.pipeline_of(evidence) if evidence is not None else None
    if pipeline is None:
        return list(remedies), [], []
    stay = Applied(remedy=catalogue.get("persistent-workers"), value=None)
    alone, words = _predicted(pipeline, chosen)
    if stay not in chosen and not pipeline.anew:
        together, more = _predicted(pipeline, [*chosen, stay])
        if together > _PAYS * max(1.0, alone):
            if EFFECTS.index(stay.remedy.written_effect) <= EFFECTS.index(allow):
                return [*remedies, stay], [], [more]
            words += f"; {more}: --allow {stay.remedy.written_effect} (other order from epoch 2 on)"
    if alone >= _PAYS:
        return list(remedies), [], [words]
    return [one for one in remedies if one not in chosen], chosen, [words]


def _predicted(pipeline: Pipeline, arm: Sequence[Applied]) -> tuple[float, str]:
    ratio, low, high = gain(pipeline, by_model.setup_of(tuple(arm)) or Setup())
    return ratio, f"{' '.join(map(str, arm))} {ratio:.2f}x ({low:.2f} - {high:.2f})"


# -- the proof -------------------------------------------------------------------------------------------


def _proof(patch: Patch, timeout_s: float, status: Status) -> Proof:
    """The patched files are run up to the change; what may alter results is trained beside the original.

    The runs' writes are thrown away; the patch lies in what is thrown away.
    """
    scene, begin = patch.scene, time.monotonic()
    if not scene.command:
        return Proof(passed=None, words="the recording has no command")
    altering = [one for one in patch.applied if one.remedy.rewrites or one.remedy.written_effect == "numeric"]
    try:
        with tempfile.TemporaryDirectory(prefix="hotloop-fix-") as scratch, contextlib.chdir(scene.started):
            launch = _Launch(patch, Path(scratch), STEPS if altering else 1, timeout_s)
            with status("running a patched copy up to the change"):
                proof = launch.proof()
            if altering and proof.passed is not False:
                with status("training a few steps with the patch and without: are the losses the same?"):
                    exact = all(one.remedy.written_effect == "exact" for one in altering)
                    proof = _with(proof, launch.compared(exact=exact))
    except UsageError as error:
        proof = Proof(passed=None, words=error.message)
    except OSError as error:
        proof = Proof(passed=None, words=f"{error.filename}: {error.strerror}")
    return replace(proof, seconds=time.monotonic() - begin)


_SAID: Final = {
    True: "losses with the patch and without: ",
    False: "with the patch losses are others: ",
    None: "cannot tell whether losses stay the same (hotloop verify --patch FILE -- COMMAND can): ",
}


def _with(proof: Proof, found: SameLosses) -> Proof:
    """A proof together with what its losses say."""
    words = [*([proof.words] if proof.passed else []), f"{_SAID[found.same]}{found.words}"]
    return Proof(passed=proof.passed if found.same is None else found.same, words="; ".join(words))


@dataclass
class _Launch:
    """Short runs of the command, with the patched files and without."""

    patch: Patch
    scratch: Path
    steps: int
    timeout_s: float

    def proof(self) -> Proof:
        """Run the patched files: do they show what the patch changed?"""
        outcome, words = self._run("candidate", patched=True)
        seen = read(self.scratch / "candidate")
        proof = check.shown(self.patch, seen.ranks)
        if other := check.other_python(self.patch.scene.process, seen):
            if proof and proof.passed:
                return replace(proof, words=f"{proof.words}; {other}")
            return Proof(passed=None, words=f"the patched copy failed: {other}")
        if proof is not None:
            return proof
        if not outcome.started:
            return Proof(passed=None, words="what the command writes cannot be kept apart from your files")
        if outcome.ended_for:
            return Proof(passed=None, words=f"the patched copy {outcome.ended_for}")
        if outcome.exit_code:
            return Proof(passed=False, words=f"the patched copy ended with {_ended(outcome, words)}")
        return Proof(passed=None, words="the patched copy ended before it got there")

    def compared(self, *, exact: bool) -> SameLosses:
        """The losses of the patched files beside those of the unmodified ones."""
        outcome, words = self._run("base")
        if outcome.exit_code and not outcome.ended_for:
            return SameLosses(same=None, words=f"the unmodified command ends with {_ended(outcome, words)}")

        def again(perturbed: bool) -> Trace | None:
            name = "perturbed" if perturbed else "again"
            self._run(name, perturbed=perturbed)
            return self._trace(name)

        return same_losses(self._trace("base"), self._trace("candidate"), again, exact=exact)

    def _run(self, name: str, *, patched: bool = False, perturbed: bool = False) -> tuple[Outcome, str]:
        new = {file: data for file, (_, data) in self.patch.files.items()}
        python = Path(str(self.patch.scene.process.first("process").get("executable") or sys.executable))
        path = f"{python.parent}:{os.environ.get('PATH', os.defpath)}"
        env = {"HOTLOOP_EVIDENCE": "1", "PATH": path} | ({"HOTLOOP_PERTURB": "1"} if perturbed else {})
        outcome, words = observe_quietly(
            list(self.patch.scene.command),
            self.scratch / name,
            steps=self.steps,
            env=env,
            throw_away=True,
            instead=new if patched else {},
            guard=Guard(timeout_s=self.timeout_s),
        )
        if outcome.interrupted:
            raise KeyboardInterrupt
        return outcome, words

    def _trace(self, name: str) -> Trace | None:
        try:
            return run_of(self.scratch / name).trace
        except UsageError:
            return None


def _ended(outcome: Outcome, words: str) -> str:
    return f"exit code {outcome.exit_code}{f': {words}' if words else ''}"
