"""``hotloop verify BASE CANDIDATE``: the same results, how much faster, and a checklist."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from hotloop import language
from hotloop.cli import arguments
from hotloop.cli.output import terminal_width
from hotloop.errors import UsageError

_USAGE = """hotloop verify [--effect EFFECT] [--baseline RUN]... [--expect FILE]
                      [--json] BASE CANDIDATE
       hotloop verify [--apply REMEDY]... [--patch FILE] [--repeats N] ...
                      -- COMMAND..."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop verify``."""
    parser.usage = _USAGE
    words = "two folders of hotloop run --evidence, or with --apply or --patch a command after --"
    parser.add_argument("what", metavar="BASE CANDIDATE | -- COMMAND", nargs="*", help=words)
    parser.add_argument(
        "--effect",
        choices=("exact", "numeric", "semantic"),
        help="what the change may alter: nothing, the last digits, anything (default: what the applied "
        "remedies may, numeric without any)",
    )
    words = "another run of BASE's command, with another seed or --perturb; may be repeated"
    arguments.add_many(parser, "--baseline", "RUN", words, Path)
    arguments.add_path(parser, "--expect", "a checklist, TOML or YAML")
    words = "the candidate's text output, where the checklist names metrics"
    arguments.add_path(parser, "--log", words)
    parser.add_argument(
        "--python", metavar="PATH", default="", help="what loads checkpoints where runs name another Python"
    )
    arguments.add_json(parser, "verify.json")
    launch = parser.add_argument_group("with a command")
    arguments.add_change(launch)
    arguments.add_number(launch, "--repeats", "launches of each side", default=1)
    arguments.add_steps(launch)
    arguments.add_throw_away(launch)
    arguments.add_out(launch, "folder of the runs", "verify-NAME")


def main(options: argparse.Namespace) -> int:
    """0 where the candidate passed, 1 where it did not."""
    from hotloop.compare import expectation, words
    from hotloop.flow.verify import launch, verify
    from hotloop.remedy import catalogue
    from hotloop.remedy.remedy import EFFECTS
    from hotloop.report import json

    if options.apply or options.patch:
        named = [catalogue.parse(one).remedy.effect for one in options.apply]
        named += ["numeric"] if options.patch else []
        asked = expectation.read(options.expect).effect if options.expect else None
        pairs = launch(
            arguments.command_of(options.what, _USAGE),
            apply=options.apply,
            patch=options.patch,
            repeats=options.repeats,
            perturb=(options.effect or asked or max(named, key=EFFECTS.index)) == "numeric",
            out=options.out,
            steps=options.steps,
            throw_away=options.throw_away,
        )
    else:
        pairs = [_given(options)]
    verdict = verify(
        pairs,
        effect=options.effect,
        expect=options.expect,
        baselines=options.baseline,
        log=options.log,
        python=options.python,
        launched=bool(options.apply or options.patch),
    )
    plain = language.plain(words.render(verdict, terminal_width()))
    sys.stdout.write(json.render(verdict.to_json()) if options.json else plain)
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
