"""``fix``: from a run to a patch of the source. Choose remedies, write them, prove them, publish."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hotloop.compare.run import run_of
from hotloop.compare.same_losses import STEPS, SameLosses, same_losses
from hotloop.compare.trace import Trace
from hotloop.errors import UsageError
from hotloop.fix import check, in_force, publish
from hotloop.fix import patch as patches
from hotloop.fix.check import Proof
from hotloop.fix.in_force import InForce
from hotloop.fix.patch import Patch
from hotloop.fix.scene import Scene
from hotloop.flow.examine import Examination, examine, read
from hotloop.flow.observe import observe_quietly
from hotloop.launch.guard import Guard
from hotloop.model import Pipeline, Setup, gain
from hotloop.remedy import catalogue
from hotloop.remedy.catalogue import Applied
from hotloop.remedy.remedy import EFFECTS, Effect
from hotloop.tune import by_model

#: How much more workers that stay must be predicted to give, to be written beside others.
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
    offered: tuple[tuple[Applied, Patch], ...]
    written: bool
    predicted: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """Remedies that were asked for by name and that the patch leaves to a person."""
        return tuple(left.remedy for left in self.patch.left if not left.already) if self.asked else ()

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
) -> Fixed:
    """The patch of these remedies, or of what the findings ask for. ``timeout_s`` is of the proof; None: none
    is made.
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
    fixed = Fixed(
        patch=patch,
        root=publish.root_of(patch),
        proof=_proof(patch, examination, timeout_s, status) if timeout_s and patch.files else None,
        asked=bool(asked),
        offered=tuple((one, patches.make(scene, [one], paths)) for one in others),
        written=False,
        predicted=tuple(predicted),
    )
    if write and patch.files and not fixed.refused:
        publish.write(patch)
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
            words += f"; {more}: --allow {stay.remedy.written_effect}"
    if alone >= 1.0:
        return list(remedies), [], [words]
    return [one for one in remedies if one not in chosen], chosen, [words]


def _predicted(pipeline: Pipeline, arm: Sequence[Applied]) -> tuple[float, str]:
    ratio, low, high = gain(pipeline, by_model.setup_of(tuple(arm)) or Setup())
    return ratio, f"{' '.join(map(str, arm))} {ratio:.2f}x ({low:.2f} - {high:.2f})"


# -- the proof -------------------------------------------------------------------------------------------


def _proof(patch: Patch, examination: Examination, timeout_s: float, status: Status) -> Proof:
    """A patched copy is run up to the change; what may alter results is trained beside the original."""
    with status("running a patched copy up to the change"):
        started = examination.recording.start_unix_s
        proof = check.prove(patch, publish.tree_of(patch), started_unix_s=started, timeout_s=timeout_s)
    altering = [one for one in patch.applied if one.remedy.rewrites or one.remedy.written_effect == "numeric"]
    if not altering or proof.passed is False:
        return proof
    with status("training a few steps with the patch and without: are the losses the same?"):
        begin = time.monotonic()
        found = _trained(
            patch, exact=all(one.remedy.written_effect == "exact" for one in altering), timeout_s=timeout_s
        )
    return replace(
        proof,
        passed=proof.passed if found.same is None else found.same,
        words="; ".join([*([proof.words] if proof.passed else []), f"{_SAID[found.same]}{found.words}"]),
        seconds=proof.seconds + time.monotonic() - begin,
    )


_SAID: Final = {
    True: "losses with the patch and without: ",
    False: "with the patch losses are others: ",
    None: "cannot tell whether losses stay the same (hotloop verify --patch FILE -- COMMAND can): ",
}


def _trained(patch: Patch, *, exact: bool, timeout_s: float) -> SameLosses:
    """The losses of a few steps with the patch beside those without; nothing is written by them."""
    command = list(patch.scene.command)
    if Path.cwd() != patch.scene.started:
        return SameLosses(same=None, words=f"the command ran in {patch.scene.started}")
    diff = patch.diff(publish.root_of(patch)).encode("utf-8", "surrogateescape")
    try:
        patched = in_force.of(diff, command, "the patch")
        with tempfile.TemporaryDirectory(prefix="hotloop-fix-") as scratch:
            folder = Path(scratch)
            base, failed = _trace(command, folder / "base", None, timeout_s)
            if failed:
                return SameLosses(same=None, words=f"the unmodified command ends with {failed}")
            candidate, failed = _trace(command, folder / "candidate", patched, timeout_s)
            if failed:
                return SameLosses(same=False, words=f"there are none after {failed}")
            again = lambda: _trace(command, folder / "again", None, timeout_s)[0]  # noqa: E731
            return same_losses(base, candidate, again, exact=exact)
    except UsageError as error:
        return SameLosses(same=None, words=error.message)


def _trace(
    command: Sequence[str], folder: Path, patch: InForce | None, timeout_s: float
) -> tuple[Trace | None, str]:
    """What a few steps computed, and how the command failed, "" where it did not."""
    outcome, words = observe_quietly(
        command,
        folder,
        steps=STEPS,
        env={"HOTLOOP_EVIDENCE": "1"},
        patch=patch,
        throw_away=True,
        guard=Guard(timeout_s=timeout_s),
    )
    if outcome.exit_code and not outcome.ended_for:
        return None, f"exit code {outcome.exit_code}: {words}"
    try:
        return run_of(folder).trace, ""
    except UsageError:
        return None, ""
