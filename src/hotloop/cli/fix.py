"""``hotloop fix RUN``: the change a run asks for, as a patch of the user's source and configuration."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotloop import language
from hotloop.cli import arguments
from hotloop.cli.output import folded, shown, status, terminal_width
from hotloop.errors import CheckFailed, UsageError
from hotloop.report import words

if TYPE_CHECKING:
    from hotloop.fix.edits import Left
    from hotloop.fix.scene import Scene
    from hotloop.flow.fix import Fixed
    from hotloop.remedy.catalogue import Applied


_USAGE = """hotloop fix [--apply REMEDY]... [--allow EFFECT] [--no-check]
                   [--timeout SECONDS] [--trust] [--write] [--json]
                   [RUN [PATH]...]"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop fix``."""
    parser.usage = _USAGE
    arguments.add_run(parser)
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        type=Path,
        default=[],
        help="files or folders that may change (default: all)",
    )
    words = "write this remedy, num-workers=4 for instance, instead of what the findings ask for"
    arguments.add_many(parser, "--apply", "REMEDY", words)
    arguments.add_allow(parser, "what the findings' remedies may alter")
    arguments.add_switch(parser, "--write", "write the change into the files")
    arguments.add_switch(parser, "--no-check", "do not run a patched copy")
    arguments.add_switch(parser, "--trust", "run the command of a run that somebody else recorded")
    words = "how long the check may take (default 120)"
    arguments.add_time(parser, "--timeout", 120.0, words, "SECONDS")
    arguments.add_json(parser, "the patch and what is left as JSON")


def main(options: argparse.Namespace) -> int:
    """Returns 1 where a remedy asked for is not written, ``--write`` writes nothing of what is left, all is
    refused for a file that changed since the run, or the patched copy does not do what it should.
    """
    for path in options.paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist")
    from hotloop.flow.fix import fix

    run = arguments.run_of(options.run)
    fixed = fix(
        run,
        options.apply,
        paths=options.paths,
        allow=options.allow,
        write=options.write,
        timeout_s=None if options.no_check else options.timeout,
        trust=options.trust,
        status=status,
    )
    # What does not do what it should is no diff to pipe into git.
    diff = fixed.patch.diff(fixed.root) if not fixed.refused else ""
    if options.json:
        sys.stdout.write(json.dumps(_json(fixed, diff), indent=2) + "\n")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(diff.encode("utf-8", "surrogateescape"))
        sys.stdout.flush()
        sys.stderr.write(language.plain(_words(fixed, run)))
    if fixed.proof is not None and fixed.refused:
        raise CheckFailed(fixed.proof.words, hint="nothing is written; --no-check leaves the check out")
    left = [one.why for one in fixed.patch.left if not one.already]
    nothing = not fixed.patch.files and any("changed since the run" in why for why in left)
    return 1 if fixed.missing or nothing or (options.write and not fixed.written and left) else 0


def _words(fixed: Fixed, run: Path) -> str:
    patch, root, proof = fixed.patch, fixed.root, fixed.proof
    lines: list[str] = []
    for change in patch.changes:
        lines.append(f"{change.remedy}: {words.path(change.file, str(root))}:{change.line}: {change.text}")
    lines += [f"predicted: {words}" for words in fixed.predicted]
    lines += [f"effect: {fixed.effect}"] if patch.files else []
    lines += [f"note: {words}" for words in (*patch.remarks, *patch.alters)]
    for left in patch.left:
        lines += _left(left, root)
    if writable := [one for one, other in fixed.offered if other.files]:
        lines.append("not asked for: " + ", ".join(_spelled(one, fixed) for one in writable))
        lines.append("    --apply REMEDY writes one of them")
    for one, other in fixed.offered:
        for left in other.left:
            lines += _left(left, root, f", {one.remedy.effect_where(fixed.drawn)}" if not left.why else "")
    by_hand = [left.write for other in (patch, *(one for _, one in fixed.offered)) for left in other.left]
    if not patch.files and (writable or any(by_hand)):
        lines.append("no patch: nothing is written unasked" if writable else "no patch: write it by hand")
    elif not patch.files and not patch.left and not fixed.offered:
        lines += ["nothing to change"] if not fixed.found else []
    for number, name in fixed.unanswered:
        brief = shlex.join(["hotloop", "brief", str(run), str(number)])
        lines += [f"{name}: no patch is known; this hands it over to a person or an agent", f"    {brief}"]
    if proof is not None:
        mark = {True: "checked", False: "check failed", None: "not checked"}[proof.passed]
        lines.append(f"{mark}: {proof.words} ({proof.seconds:.1f} s)")
    if fixed.written:
        lines.append(
            f"written: {', '.join(words.path(str(path), str(root)) for path in sorted(patch.files))}"
        )
        lines += ["measure it:", *_compared(run, patch.scene, fixed.effect)]
    elif patch.files and not fixed.refused:
        apply = ["git", "apply"] if Path.cwd() == root else ["git", "-C", str(root), "apply"]
        lines += ["not written: add --write, or pipe this into", f"    {shlex.join(apply)}"]
    return "".join(f"{shown(line) if line.startswith('    ') else folded(line)}\n" for line in lines)


def _compared(run: Path, scene: Scene, effect: str) -> list[str]:
    """The commands that show what a written change gives."""
    folder = run.parent if run.suffix == ".sqlite" else run
    base, fixed = shlex.quote(str(folder)), shlex.quote(f"{folder}-fixed")
    traced, command = bool(scene.process.notes.get("evidence")), words.as_long(scene.process, scene.command)
    return [
        f"    hotloop run{' --evidence' * traced} --out {fixed} {command}",
        *([f"    hotloop verify --effect {effect} {base} {fixed}"] if traced else []),
        f"    hotloop compare {base} {fixed}",
    ]


def _left(left: Left, root: Path, effect: str = "") -> list[str]:
    """What is left to a person: where, why, and what to write."""
    where = f"{words.path(left.file, str(root))}{f':{left.line}' if left.line else ''}: " if left.file else ""
    why = language.said(left.why)
    what = f"not written. {where}{why}" if why else f"by hand{effect}. {where}".rstrip(": ")
    write = language.lines(left.write, terminal_width(), "    ") if "\n" not in left.write else []
    return [f"{left.remedy}: {what}".rstrip("."), "\n".join(write) or f"    {left.write}"]


def _spelled(one: Applied, fixed: Fixed) -> str:
    effect = one.remedy.effect_where(fixed.drawn)
    return f"{one} ({'needs hotloop at run time' if one.remedy.depends else effect})"


def _json(fixed: Fixed, diff: str) -> dict[str, Any]:
    patch = fixed.patch
    return {
        "schema": 1,
        "remedies": [str(one) for one in patch.applied],
        "files": [str(path) for path in sorted(patch.files)],
        "changes": [vars(change) for change in patch.changes],
        "left": [vars(left) for left in patch.left],
        "notes": [*patch.remarks, *patch.alters],
        "predicted": list(fixed.predicted),
        "effect": fixed.effect,
        "not_asked_for": [str(one) for one, _ in fixed.offered],
        "no_patch": [name for _, name in fixed.unanswered],
        "check": vars(fixed.proof) if fixed.proof is not None else None,
        "written": fixed.written,
        "patch": diff.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
    }
