"""``hotloop export RUN --to SPEC``: a run's steps in the tools that a team has."""

from __future__ import annotations

import argparse

from hotloop.cli import arguments
from hotloop.cli.output import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop export``."""
    arguments.add_run(parser)
    parser.add_argument(
        "--to",
        metavar="SPEC",
        action="append",
        required=True,
        help="jsonl=FILE (- is standard output), parquet=FILE, tensorboard=DIR, prometheus=FILE, otel=URL or "
        "otel=console, wandb=PROJECT, mlflow=URI; may be repeated",
    )


def main(options: argparse.Namespace) -> int:
    """Returns 0 where every one took it."""
    from hotloop.flow.examine import examine, read
    from hotloop.flow.export import export, parse

    for spec in options.to:
        parse(spec)
    examination = examine(read(arguments.run_of(options.run)))
    for spec in options.to:
        count = export(examination, spec)
        say(f"{spec}: {count:,} point{'' if count == 1 else 's'}")
    return 0
