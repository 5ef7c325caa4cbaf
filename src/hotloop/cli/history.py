"""``hotloop history [FOLDER]``: runs over time, and where the speed changed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hotloop import language
from hotloop.cli import arguments
from hotloop.cli.output import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop history``."""
    words, usual = "a folder of run folders (default: hotloop-runs)", Path("hotloop-runs")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", type=Path, default=usual, help=words)
    words = (
        "exit with 1 where a command's newest run is slower than those before by more than this, 3%% "
        "for instance, beyond what they differ among themselves"
    )
    arguments.add_limit(parser, words)
    arguments.add_json(parser, "the runs")


def main(options: argparse.Namespace) -> int:
    """1 where ``--fail-if-slower`` is reached, else 0."""
    from hotloop.flow import history
    from hotloop.report import json

    entries = history.history(options.folder)
    if options.json:
        sys.stdout.write(json.render({"schema": 1, "runs": [one.to_json() for one in entries]}))
    else:
        sys.stdout.write(language.plain(history.render(entries)))
    if options.fail_if_slower is None:
        return 0
    found = history.slower(entries, options.fail_if_slower)
    for words in found:
        say(f"slower by more than {options.fail_if_slower:.1%}: {words}")
    return int(bool(found))
