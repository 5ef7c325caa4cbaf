"""``hotloop brief RUN [FINDING]``: what is needed to write the change, and to prove it."""

from __future__ import annotations

import argparse
import sys

from hotloop import language
from hotloop.cli import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop brief``."""
    arguments.add_run(parser)
    words = "id of a finding of the run, or its number in the report (default: the first)"
    parser.add_argument("finding", metavar="FINDING", nargs="?", default="1", help=words)
    arguments.add_json(parser, "the brief as JSON")


def main(options: argparse.Namespace) -> int:
    """Returns 0, or 1 where the run has no finding."""
    from hotloop.flow.brief import brief
    from hotloop.report import json
    from hotloop.report.html import brief as render

    found = brief(arguments.run_of(options.run), options.finding)
    sys.stdout.write(json.render(found) if options.json else language.plain(render(found)))
    return 0
