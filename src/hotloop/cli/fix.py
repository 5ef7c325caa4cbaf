"""``hotloop fix RUN``: the change a run asks for, as a patch of the user's source and configuration."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hotloop.cli.apart import apart
from hotloop.errors import CheckFailed, UsageError
from hotloop.units import parse_duration

if TYPE_CHECKING:
    from hotloop.compare.rewritten import Held
    from hotloop.compare.trace import Trace
    from hotloop.remedy.catalogue import Applied
    from hotloop.remedy.source.check import Proof
    from hotloop.remedy.source.in_force import InForce
    from hotloop.remedy.source.patch import Patch
    from hotloop.remedy.source.plan import Left

_USAGE = "hotloop fix [--apply REMEDY]... [--allow EFFECT] [--no-check] [--write] [--json] RUN [PATH]..."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop fix``."""
    parser.usage = _USAGE
    parser.add_argument("run", metavar="RUN", type=Path, help="run folder, or one rank-N.sqlite")
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        type=Path,
        default=[],
        help="files or folders that may change (default: all)",
    )
    parser.add_argument(
        "--apply",
        metavar="REMEDY",
        action="append",
        default=[],
        help="write this remedy, num-workers=4 for instance, instead of what the findings ask for",
    )
    parser.add_argument(
        "--allow",
        choices=("exact", "numeric", "semantic"),
        default="exact",
        help="what the findings' remedies may alter (default: exact, nothing)",
    )
    parser.add_argument("--write", action="store_true", help="write the change into the files")
    parser.add_argument("--no-check", action="store_true", help="do not run a patched copy")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=120.0,
        help="how long the check may take (default 120)",
    )
    parser.add_argument("--json", action="store_true", help="the patch and what is left, as JSON")


def main(options: argparse.Namespace) -> int:
    """Returns 1 where the patched copy does not do what it should, else 0."""
    from hotloop import flow
    from hotloop.remedy import catalogue
    from hotloop.remedy.source import patch as patches
    from hotloop.remedy.source import publish
    from hotloop.remedy.source.scene import Scene
    from hotloop.report.ranks import lead

    for path in options.paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist")
    recording = flow.read(options.run)
    if recording.patch is not None:
        raise UsageError(
            f"a patch was in force in {options.run}: its code is not what lies on disk",
            hint=f"write it first, git apply {options.run / 'patched' / 'patch.diff'}, and run again",
        )
    examination = flow.examine(recording)
    steps = lead(examination.ranks)
    process = next((p for p in examination.recording.ranks if steps and p.pid == steps.pid), None)
    if process is None or steps is None:
        raise UsageError(f"{options.run} holds no training process", hint="run the training command first")
    asked = patches.with_values(map(catalogue.parse, options.apply), examination.findings)
    waiting: Sequence[Applied] = ()
    scene = Scene.of(process, examination.recording, steps, examination.findings)
    if not asked:
        asked, waiting = patches.from_findings(examination.findings, options.allow, scene)
    patch = patches.make(scene, asked, options.paths)
    offered = [_Offered(one, patches.make(scene, [one], options.paths)) for one in waiting]
    root = publish.root_of(patch)
    proof = _prove(patch, publish.tree_of(patch), examination.recording.start_unix_s, options)
    if options.write and patch.files and not (proof is not None and proof.passed is False):
        publish.write(patch)
    _show(patch, root, proof, offered, options)
    if proof is not None and proof.passed is False:
        raise CheckFailed(proof.words, hint="nothing is written; --no-check leaves the check out")
    return 0


def _prove(patch: Patch, root: Path, started_unix_s: float, options: argparse.Namespace) -> Proof | None:
    if options.no_check or not patch.files:
        return None
    from rich.console import Console

    from hotloop.remedy.source import check

    console = Console(stderr=True)
    with console.status("running a patched copy up to the change"):
        proof = check.prove(patch, root, started_unix_s=started_unix_s, timeout_s=options.timeout)
    rewritten = [one for one in patch.applied if one.remedy.rewrites]
    if not rewritten or proof.passed is False:
        return proof
    with console.status("training a few steps with the patch and without: are the losses the same?"):
        begin = time.monotonic()
        exact = all((one.remedy.source_effect or one.remedy.effect) == "exact" for one in rewritten)
        told = _trained(patch, exact=exact, timeout_s=options.timeout)
    return replace(
        proof,
        passed=proof.passed if told.same is None else told.same,
        words="; ".join([*([proof.words] if proof.passed else []), f"{_TOLD[told.same]}{told.words}"]),
        seconds=proof.seconds + time.monotonic() - begin,
    )


_TOLD: Final = {
    True: "losses with the patch and without: ",
    False: "with the patch losses are others: ",
    None: "whether losses stay is not told: ",
}


def _trained(patch: Patch, *, exact: bool, timeout_s: float) -> Held:
    """The losses of a few steps with the patch in force beside those without; nothing is written by them."""
    from hotloop.compare.rewritten import Held, held
    from hotloop.remedy.source import in_force, publish

    command = list(patch.scene.command)
    if Path.cwd() != patch.scene.started:
        return Held(same=None, words=f"the command ran in {patch.scene.started}")
    diff = patch.diff(publish.root_of(patch)).encode("utf-8", "surrogateescape")
    try:
        patched = in_force.of(diff, command, "the patch")
        with tempfile.TemporaryDirectory(prefix="hotloop-fix-") as scratch:
            base, failed = _trace(command, Path(scratch) / "base", None, timeout_s)
            if failed:
                return Held(same=None, words=f"the command as it is ends with {failed}")
            candidate, failed = _trace(command, Path(scratch) / "candidate", patched, timeout_s)
            if failed:
                return Held(same=False, words=f"there are none after {failed}")
            again = Path(scratch) / "again"
            return held(base, candidate, lambda: _trace(command, again, None, timeout_s)[0], exact=exact)
    except UsageError as error:
        return Held(same=None, words=error.message)


def _trace(
    command: Sequence[str], folder: Path, patch: InForce | None, timeout_s: float
) -> tuple[Trace | None, str]:
    """What a few steps computed, and how the command failed, "" where it did not."""
    from hotloop import flow
    from hotloop.compare.rewritten import STEPS
    from hotloop.compare.run import run_of
    from hotloop.launch.guard import Guard
    from hotloop.launch.output import last_words

    where = flow.new_run_folder(folder, command)
    guard = Guard(timeout_s=timeout_s)
    with apart(command, folder, way_out="--no-check") as room, (where / "output.log").open("w") as log:
        guard.disk = room.scratch
        outcome = flow.observe(
            command,
            where,
            steps=STEPS,
            env={"HOTLOOP_EVIDENCE": "1"},
            patch=patch,
            stdout=log,
            stderr=log,
            apart=room,
            guard=guard,
        )
    if outcome.exit_code and not guard.why:
        words = last_words((where / "output.log").read_text(errors="replace"))
        return None, f"exit code {outcome.exit_code}: {words}"
    try:
        return run_of(where).trace, ""
    except UsageError:
        return None, ""


@dataclass(frozen=True)
class _Offered:
    """A remedy that nobody asked for yet, and the patch it would make."""

    remedy: Applied
    patch: Patch


def _show(
    patch: Patch, root: Path, proof: Proof | None, waiting: Sequence[_Offered], options: argparse.Namespace
) -> None:
    diff = patch.diff(root)
    if options.json:
        sys.stdout.write(json.dumps(_json(patch, diff, proof, waiting, options.write), indent=2) + "\n")
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(diff.encode("utf-8", "surrogateescape"))
    sys.stdout.flush()
    sys.stderr.write(_words(patch, root, proof, waiting, options.write))


def _words(patch: Patch, root: Path, proof: Proof | None, waiting: Sequence[_Offered], written: bool) -> str:
    lines: list[str] = []
    for change in patch.changes:
        lines.append(f"{change.remedy}: {_near(change.file, root)}:{change.line}: {change.text}")
    lines += [f"note: {words}" for words in (*patch.remarks, *patch.alters)]
    for left in patch.left:
        lines += _left(left, root)
    if writable := [one.remedy for one in waiting if one.patch.files]:
        lines.append("not asked for: " + ", ".join(_spelled(one) for one in writable))
        lines.append("    --apply REMEDY writes one of them")
    for one in waiting:
        for left in one.patch.left:
            lines += _left(left, root, f", {one.remedy.remedy.effect}" if not left.why else "")
    if not patch.files and not patch.left and not waiting:
        lines.append("nothing to change")
    if proof is not None:
        mark = {True: "checked", False: "check failed", None: "not checked"}[proof.passed]
        lines.append(f"{mark}: {proof.words} ({proof.seconds:.1f} s)")
    if patch.files:
        did = written and not (proof is not None and proof.passed is False)
        if did:
            lines.append(f"written: {', '.join(_near(str(path), root) for path in sorted(patch.files))}")
        else:
            lines += ["not written: add --write, or pipe this into", f"    {_git_apply(root)}"]
    return "".join(f"{_folded(line)}\n" for line in lines)


def _left(left: Left, root: Path, effect: str = "") -> list[str]:
    """What is left to a person: where, why, and what to write."""
    where = f"{_near(left.file, root)}{f':{left.line}' if left.line else ''}: " if left.file else ""
    what = f"not written. {where}{left.why}" if left.why else f"by hand{effect}. {where}".rstrip(": ")
    return [f"{left.remedy}: {what}".rstrip("."), f"    {left.write}"]


def _folded(line: str) -> str:
    """At most 80 columns; what is to be copied stays whole."""
    if line.startswith("    "):
        return line
    return textwrap.fill(line, 80, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _git_apply(root: Path) -> str:
    here = Path.cwd()
    return "git apply" if here == root else shlex.join(["git", "-C", str(root), "apply"])


def _spelled(one: Applied) -> str:
    effect = one.remedy.source_effect or one.remedy.effect
    return f"{one} ({'needs hotloop at run time' if one.remedy.depends else effect})"


def _near(file: str, root: Path) -> str:
    try:
        return str(Path(file).relative_to(root))
    except ValueError:
        return file


def _json(
    patch: Patch, diff: str, proof: Proof | None, waiting: Sequence[_Offered], written: bool
) -> dict[str, Any]:
    return {
        "schema": 1,
        "remedies": [str(one) for one in patch.applied],
        "files": [str(path) for path in sorted(patch.files)],
        "changes": [vars(change) for change in patch.changes],
        "left": [vars(left) for left in patch.left],
        "notes": [*patch.remarks, *patch.alters],
        "not_asked_for": [str(one.remedy) for one in waiting],
        "check": vars(proof) if proof is not None else None,
        "written": written and bool(patch.files) and not (proof is not None and proof.passed is False),
        "patch": diff.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
    }


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 120, 90s or 10m") from None
