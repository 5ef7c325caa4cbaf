"""``hotloop merge NODE_RUN... --out DIR``: the runs of a job's nodes as one run with one report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hotloop.cli.output import say, takes_color, terminal_width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop merge``."""
    parser.add_argument(
        "runs", metavar="NODE_RUN", nargs="+", type=Path, help="run folders of one job, one a node or a task"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="the folder of the merged run")


def main(options: argparse.Namespace) -> int:
    """Returns 0 where they are one run now."""
    from hotloop.flow.examine import examine, publish, read
    from hotloop.flow.merge import merge
    from hotloop.report import terminal

    for line in merge(options.runs, options.out):
        say(line)
    report = publish(examine(read(options.out)), options.out)
    sys.stdout.write(terminal.render(report, width=terminal_width(), color=takes_color(sys.stdout)))
    return 0
