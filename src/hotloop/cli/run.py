"""``hotloop run -- COMMAND``: observe, diagnose, report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, TextIO

from hotloop.cli.apart import add_argument, thrown_away
from hotloop.cli.streams import silence, takes_color
from hotloop.errors import HotloopError, UsageError

_USAGE = (
    "hotloop run [--out DIR] [--steps N] [--apply REMEDY]... [--patch FILE] [--evidence] [--throw-away] "
    "[--profile] [--memory-every N] [--json] -- COMMAND..."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop run``."""
    parser.usage = _USAGE
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="run folder (default: hotloop-runs/TIME-NAME)"
    )
    parser.add_argument(
        "--steps", metavar="N", type=_positive, help="end the run cleanly after N steady steps"
    )
    parser.add_argument(
        "--apply",
        metavar="REMEDY",
        action="append",
        default=[],
        help="put a remedy in force without an edit: ID or ID=VALUE; may be repeated",
    )
    parser.add_argument(
        "--patch",
        metavar="FILE",
        type=Path,
        help="put a unified diff in force in every Python process, no file being written",
    )
    parser.add_argument(
        "--evidence", action="store_true", help="record what is computed, for hotloop verify to compare"
    )
    add_argument(parser)
    parser.add_argument(
        "--profile", action="store_true", help="add a short torch.profiler window for kernel truth"
    )
    parser.add_argument(
        "--memory-every", metavar="N", type=_positive, help="print a memory line every N steps"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="report.json on standard output; the command's output moves to standard error",
    )
    parser.add_argument(
        "command", metavar="COMMAND", nargs=argparse.REMAINDER, help="the training command, after --"
    )


def main(options: argparse.Namespace) -> int:
    """Returns the command's own exit code."""
    command = list(options.command)
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        raise UsageError("no command to run", hint=f"write the training command after --: {_USAGE}")
    from hotloop import flow  # not at the top: --help and --version stay fast
    from hotloop.remedy import catalogue
    from hotloop.remedy.source import in_force

    patch = in_force.read(options.patch, command) if options.patch else None
    env = catalogue.environment(map(catalogue.parse, options.apply))
    if options.evidence:
        env["HOTLOOP_EVIDENCE"] = "1"
    folder = flow.new_run_folder(options.out, command)
    with thrown_away(options.throw_away, command, folder) as aside:
        outcome = flow.observe(
            command,
            folder,
            steps=options.steps,
            profile=options.profile,
            memory_every=options.memory_every,
            env=env,
            patch=patch,
            stdout=sys.stderr if options.json else None,
            **aside,
        )
    try:
        examination = flow.examine(flow.read(folder))
        try:
            report = flow.publish(examination, folder)
        except OSError as error:  # a full disk: what was found is still worth reading
            print(f"hotloop: the report could not be written to {folder}: {error.strerror}", file=sys.stderr)
            report = flow.build_report(examination)
    except Exception as error:
        # The command ran and its exit code is what the caller waits for: say what failed and keep both.
        _say_report_failed(error, folder)
        return outcome.exit_code
    _print(report, options.json)
    for one in report["applied"]:
        print(f"applied {one['id']}: {one['status']}", file=sys.stderr)
    for words in outcome.warnings:
        if words not in examination.recording.warnings:  # the folder could not take it up
            print(f"hotloop: {words}", file=sys.stderr)
    return outcome.exit_code


def _print(report: dict[str, Any], as_json: bool) -> None:
    """Never raises where nobody can read it: the exit code is the command's."""
    from hotloop.report import json, terminal

    if as_json:
        _put(sys.stdout, json.render(report))
    _put(sys.stderr, "\n" + terminal.render(report, width=terminal_width(), color=takes_color(sys.stderr)))


def _put(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        silence(stream)
        print(f"hotloop: the report could not be printed: {error.strerror}", file=sys.stderr)


def terminal_width() -> int:
    """Columns of the terminal, 80 where there is none, at most 100."""
    import shutil

    return max(60, min(100, shutil.get_terminal_size((80, 24)).columns)) if sys.stderr.isatty() else 80


def _say_report_failed(error: Exception, folder: Path) -> None:
    words = error.message if isinstance(error, HotloopError) else f"{type(error).__name__}: {error}"
    print(f"hotloop: the command ended, but its report could not be made: {words}", file=sys.stderr)
    if folder.exists():  # the script may have removed it
        print(
            f"hint: the recording is kept in {folder}; 'hotloop report {folder}' tries again", file=sys.stderr
        )
    if not isinstance(error, HotloopError):
        import traceback

        log = folder / "hotloop.log"
        try:
            with log.open("a") as stream:
                traceback.print_exception(error, file=stream)
            print(f"hint: the details are in {log}", file=sys.stderr)
        except OSError:
            traceback.print_exception(error)


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number of steps")
    return value
