"""``hotloop memory``: where host and device memory goes, what fits, and why it ran out."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from hotloop import language
from hotloop.cli import arguments
from hotloop.cli.output import say, terminal_width
from hotloop.errors import UsageError

if TYPE_CHECKING:
    from hotloop.footprint.budgets import Dataset

_USAGE = """hotloop memory [--json] RUN
       hotloop memory RUN --num-samples N [--num-workers N] [--num-ranks N] ...
       hotloop memory [--every N] [--steps N] [--out DIR] [--json] -- COMMAND...
       hotloop memory --stage NAME=DTYPE[SHAPE]+... --num-samples N [--json] ..."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop memory``."""
    parser.usage = _USAGE
    words = "a run folder, or a training command after --"
    parser.add_argument("what", metavar="RUN | -- COMMAND", nargs="*", help=words)
    arguments.add_json(parser, "the account as JSON")
    run = parser.add_argument_group("with a command")
    arguments.add_number(run, "--every", "print a memory line every N steps")
    arguments.add_steps(run)
    arguments.add_out(run)
    shapes = parser.add_argument_group("without a run, or a run's stages with other numbers")
    words = "a sample after one stage, in order; 2*uint8[720,1280,3] is two of the same"
    arguments.add_many(shapes, "--stage", "NAME=DTYPE[SHAPE]+...", words)
    arguments.add_number(shapes, "--num-samples")
    arguments.add_number(shapes, "--num-workers", "per rank", arguments.whole)
    arguments.add_number(shapes, "--num-ranks", "on one machine")
    arguments.add_number(shapes, "--batch-size")
    arguments.add_number(shapes, "--prefetch-factor")
    shapes.add_argument(
        "--memory", metavar="SIZE", help='of the machine: "256GB", "64GiB" (default: what this one may use)'
    )


def main(options: argparse.Namespace) -> int:
    """Returns 0 for an account, the command's own exit code where one was run."""
    from hotloop.footprint.budgets import Dataset, parse_stage

    if options.stage and options.what:
        raise UsageError("--stage is for an account without a run", hint=f"usage: {_USAGE}")
    if options.stage or not options.what:
        stages = tuple(map(parse_stage, options.stage))
        return _of_dataset(Dataset(stages=stages, **{"num_samples": 0, **_numbers(options)}), options)
    run, numbers = Path(options.what[0]), _numbers(options)
    if run.is_dir() or run.suffix == ".sqlite":
        if len(options.what) > 1:
            raise UsageError(f"{len(options.what)} runs given", hint="one run has one account")
        return _of_run(run, options, numbers)
    if len(options.what) == 1 and not shutil.which(options.what[0]):
        raise UsageError(
            f"there is no run folder {options.what[0]}", hint=f"a command follows two dashes: {_USAGE}"
        )
    if numbers:
        raise UsageError(
            f"{', '.join(numbers)} given with a command", hint="give them with its run folder, afterwards"
        )
    return _run(options)


def _numbers(options: argparse.Namespace) -> dict[str, Any]:
    """What was said of a dataset on the command line."""
    names = ("num_samples", "num_workers", "num_ranks", "batch_size", "prefetch_factor")
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _of_run(run: Path, options: argparse.Namespace, numbers: dict[str, Any]) -> int:
    """The account of a run; with other ``numbers`` its dataset as it would be then."""
    from hotloop.flow.examine import build_report, examine, read
    from hotloop.footprint.account import dataset

    seen = examine(read(run))
    if not numbers:
        _write_run(build_report(seen), options, sys.stdout)
        return 0
    found = dataset(seen.recording, seen.lead)
    if found is None or not found.stages:
        raise UsageError(
            f"{run} shows no dataset's stages", hint="record it with 'hotloop memory -- COMMAND'"
        )
    return _of_dataset(dataclasses.replace(found, **numbers), options)


def _run(options: argparse.Namespace) -> int:
    from hotloop.flow.examine import examine, publish, read
    from hotloop.flow.observe import new_run_folder, observe

    folder = new_run_folder(options.out, options.what)
    outcome = observe(
        options.what,
        folder,
        steps=options.steps,
        memory=True,
        memory_every=options.every,
        stdout=sys.stderr if options.json else None,
    )
    examination = examine(read(folder))
    report = publish(examination, folder)
    # Standard output is the command's own, unless JSON was asked for: then that has moved.
    _write_run(report, options, sys.stdout if options.json else sys.stderr)
    say(f"the run is in {folder}; 'hotloop memory {folder}' shows this again")
    return outcome.exit_code


def _write_run(report: dict[str, Any], options: argparse.Namespace, to: TextIO) -> None:
    from hotloop.report.footprint import render

    findings = [finding for finding in report["findings"] if finding["id"].startswith("memory/")]
    document = {"schema": 1, "command": report["command"], **report["memory"], "findings": findings}
    _write(document, render(report, width=terminal_width()), options, to)


def _of_dataset(dataset: Dataset, options: argparse.Namespace) -> int:
    """What a dataset takes and what fits; a cache is not advised on the names of a run's stages alone."""
    from hotloop.feed.budget import total_memory_bytes
    from hotloop.footprint.budgets import document
    from hotloop.report.footprint import render_dataset

    made = document(dataset, int(arguments.size(options.memory) or total_memory_bytes()))
    if options.what:
        made["advice"] = []
    _write(made, render_dataset(made, width=terminal_width()), options, sys.stdout)
    return 0


def _write(document: dict[str, Any], text: str, options: argparse.Namespace, to: TextIO) -> None:
    to.write(json.dumps(document, indent=1) + "\n" if options.json else language.plain(text))
