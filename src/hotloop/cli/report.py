"""``hotloop report RUN``: render a recording again, on any machine, without torch."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hotloop.cli import arguments
from hotloop.cli.output import publish, takes_color, terminal_width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop report``."""
    arguments.add_run(parser)
    arguments.add_path(parser, "--html", "write the HTML report")
    arguments.add_path(parser, "--perfetto", "write a trace for ui.perfetto.dev (.json or .json.gz)")
    words = "write report.json to FILE, or to standard output"
    parser.add_argument("--json", metavar="FILE", nargs="?", const="-", help=words)


def main(options: argparse.Namespace) -> int:
    """Returns 0 where the recording could be read."""
    from hotloop.flow.examine import build_report, examine, read
    from hotloop.report import html, json, perfetto, terminal

    run, to = options.run, options.json
    if run is None and to not in (None, "-"):  # --json RUN
        run, to = Path(to), "-"
    examination = examine(read(arguments.run_of(run)))
    report = build_report(examination)
    if options.html:
        publish(options.html, html.render(report))
    if options.perfetto:
        packed = options.perfetto.suffix == ".gz"
        trace = perfetto.render(examination.recording, examination.ranks, packed=packed)
        publish(options.perfetto, trace, "; open it at ui.perfetto.dev")
    if to == "-":
        sys.stdout.write(json.render(report))
    elif to:
        publish(Path(to), json.render(report))
    if not (options.html or options.perfetto or to):
        sys.stdout.write(terminal.render(report, width=terminal_width(), color=takes_color(sys.stdout)))
    return 0
