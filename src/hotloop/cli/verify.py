"""``hotloop verify BASE CANDIDATE``: the same results, how much faster, and a checklist."""

from __future__ import annotations

import argparse
import shutil
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotloop.cli.apart import add_argument, apart, disk_guard
from hotloop.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from hotloop.compare.run import Run
    from hotloop.compare.verdict import Effect
    from hotloop.remedy.source.in_force import InForce

_USAGE = """hotloop verify [--effect EFFECT] [--baseline RUN]... [--expect FILE] [--json] BASE CANDIDATE
       hotloop verify [--apply REMEDY]... [--patch FILE] [--repeats N] ... -- COMMAND..."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop verify``."""
    parser.usage = _USAGE
    parser.add_argument(
        "what",
        metavar="BASE CANDIDATE | -- COMMAND",
        nargs="*",
        help="two folders of hotloop run --evidence, or with --apply or --patch a command after --",
    )
    parser.add_argument(
        "--effect",
        choices=("exact", "numeric", "semantic"),
        help="what the change may alter: nothing, the last digits, anything (default: what the applied "
        "remedies may, numeric without any)",
    )
    parser.add_argument(
        "--baseline",
        metavar="RUN",
        action="append",
        default=[],
        type=Path,
        help="another run of BASE's command with another seed; may be repeated",
    )
    parser.add_argument("--expect", metavar="FILE", type=Path, help="a checklist, TOML or YAML")
    parser.add_argument(
        "--log",
        metavar="FILE",
        type=Path,
        help="the candidate's text output, where the checklist names metrics",
    )
    parser.add_argument("--json", action="store_true", help="verify.json on standard output")
    launch = parser.add_argument_group("with a command")
    launch.add_argument(
        "--apply",
        metavar="REMEDY",
        action="append",
        default=[],
        help="what the candidate has: ID or ID=VALUE",
    )
    launch.add_argument(
        "--patch", metavar="FILE", type=Path, help="a unified diff that is in force in the candidate"
    )
    launch.add_argument("--repeats", metavar="N", type=_positive, default=1, help="launches of each side")
    launch.add_argument("--steps", metavar="N", type=_positive, help="end each run after N steady steps")
    add_argument(parser)
    launch.add_argument(
        "--out", metavar="DIR", type=Path, help="folder of the runs (default: hotloop-runs/...)"
    )


def main(options: argparse.Namespace) -> int:
    """0 where the candidate passed, 1 where it did not."""
    from hotloop.compare import expectation, words
    from hotloop.compare.run import run_of
    from hotloop.compare.verdict import judge
    from hotloop.record.publish import write_text_atomic
    from hotloop.report import json

    asked = expectation.read(options.expect) if options.expect else None
    pairs = _launched(options) if options.apply or options.patch else [_given(options)]
    runs = [(run_of(a), run_of(b)) for a, b in pairs]
    base, candidate = runs[0]
    verdict = judge(
        base,
        candidate,
        effect=options.effect or (asked.effect if asked else None) or _applied_effect(candidate),
        asked=asked,
        baselines=[run_of(path) for path in options.baseline],
        repeats=runs[1:],
        log=options.log,
    )
    rendered = json.render(verdict.to_json())
    folder = candidate.recording.folder
    if folder is not None:
        try:
            write_text_atomic(folder / "verify.json", rendered)
        except OSError as error:
            print(f"hotloop: {folder / 'verify.json'} not written: {error.strerror}", file=sys.stderr)
    sys.stdout.write(rendered if options.json else words.render(verdict))
    return 0 if verdict.passed else 1


def _given(options: argparse.Namespace) -> tuple[Path, Path]:
    for name in ("repeats", "steps", "out"):
        if getattr(options, name) not in (None, 1):
            raise UsageError(f"--{name} is for a command that is to be launched", hint=f"usage: {_USAGE}")
    if options.what and not Path(options.what[0]).exists() and shutil.which(options.what[0]):
        raise UsageError(
            "a command, and no change to verify", hint=f"name one: --apply REMEDY -- COMMAND; usage: {_USAGE}"
        )
    if len(options.what) != 2:
        raise UsageError(
            f"two runs are compared, a base and a candidate; given: {len(options.what)}",
            hint=f"with --apply or --patch a command is launched twice; usage: {_USAGE}",
        )
    return Path(options.what[0]), Path(options.what[1])


def _launched(options: argparse.Namespace) -> list[tuple[Path, Path]]:
    """Run the command as it is and with the remedies, taking turns: base, candidate, candidate, base, ..."""
    from hotloop import flow
    from hotloop.remedy import catalogue
    from hotloop.remedy.source import in_force

    command = options.what
    if not command:
        raise UsageError("no command to run", hint=f"write the training command after --: {_USAGE}")
    patch = in_force.read(options.patch, command) if options.patch else None
    change = _Change(env=catalogue.environment(map(catalogue.parse, options.apply)), patch=patch)
    if options.out is not None and options.out.is_dir() and any(options.out.iterdir()):
        raise UsageError(f"{options.out} is not empty", hint="give --out a new folder, or remove that one")
    whole = options.out or flow.new_run_folder(None, command)
    try:
        return _in_turns(whole, command, change, options)
    finally:
        for folder in (whole / "raw", whole):  # where nothing was started nothing is left
            with suppress(OSError):
                folder.rmdir()


def _in_turns(
    whole: Path, command: list[str], change: _Change, options: argparse.Namespace
) -> list[tuple[Path, Path]]:
    pairs = []
    for number in range(options.repeats):
        sides: list[tuple[str, _Change | None]] = [("base", None), ("candidate", change)]
        folders: dict[str, Path] = {}
        for name, side in sides if number % 2 == 0 else reversed(sides):
            label = name if options.repeats == 1 else f"{name}-{number + 1}"
            folders[name] = _launch(whole / label, command, side, options)
        pairs.append((folders["base"], folders["candidate"]))
    return pairs


@dataclass(frozen=True, kw_only=True)
class _Change:
    """What the candidate has: the environment of its remedies, a patch in force."""

    env: dict[str, str]
    patch: InForce | None


def _launch(folder: Path, command: list[str], change: _Change | None, options: argparse.Namespace) -> Path:
    from hotloop import flow

    print(f"hotloop: running {folder.name}", file=sys.stderr, flush=True)
    made = flow.new_run_folder(folder, command)
    with apart(command, made) if options.throw_away else nullcontext() as room:
        guard = disk_guard(room)
        done = flow.observe(
            command,
            made,
            steps=options.steps,
            env={**(change.env if change else {}), "HOTLOOP_EVIDENCE": "1"},
            patch=change.patch if change else None,
            stdout=sys.stderr,
            apart=room,
            guard=guard,
        )
    if guard is not None and guard.why:
        raise CheckFailed(f"the command was ended: it {guard.why}")
    if done.exit_code and change is None:
        raise UsageError(
            f"the command ended with exit code {done.exit_code} as it is: nothing to compare with",
            hint="its words are above; get it to run first",
        )
    return made


def _applied_effect(candidate: Run) -> Effect | None:
    """The widest class among the candidate's remedies, None without any.

    Nobody knows that of a patch: it is not held to bits.
    """
    from hotloop.remedy import catalogue
    from hotloop.remedy.remedy import EFFECTS

    known: dict[str, Any] = {remedy.id: remedy for remedy in catalogue.remedies()}
    found = [EFFECTS.index(known[n["id"]].effect) for n in candidate.applied if n["id"] in known]
    if candidate.recording.patch is not None:
        found.append(EFFECTS.index("numeric"))
    return EFFECTS[max(found)] if found else None


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)
