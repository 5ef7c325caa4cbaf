"""``hotloop watch [RUN]``: follow a run that goes on, in the terminal or on a page; it only looks on."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hotloop.cli import arguments
from hotloop.cli.output import say, shown
from hotloop.errors import UsageError

#: Seconds from one line of text to the next, and until a run is given up that nobody writes any more.
_EACH_S, _GONE_S = 5.0, 10.0

if TYPE_CHECKING:
    from hotloop.record.recording import Recording


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop watch``."""
    words = "run folder, or HOST:FOLDER over ssh (default: the newest in hotloop-runs)"
    parser.add_argument("run", metavar="RUN", nargs="?", help=words)
    how = parser.add_mutually_exclusive_group()
    words = "serve a page on this machine instead, at this port; 0 for any that is free"
    how.add_argument(
        "--web", metavar="PORT", type=arguments.number("a port", least=0, most=65535), help=words
    )
    how.add_argument(
        "--jsonl", action="store_true", help="write every state as a line of JSON on standard output"
    )


def main(options: argparse.Namespace) -> int:
    """Returns 0 when the run is over, or the user leaves."""
    from hotloop.monitor.source import states

    source = states(options.run or arguments.run_of(None), report_of)
    if options.web is not None:
        return _serve(source, options.web)
    if options.jsonl or not sys.stdout.isatty():
        return _print(source, options.jsonl)
    if importlib.util.find_spec("textual") is None:
        raise UsageError(
            "the screen of hotloop watch needs Textual",
            hint="pip install 'hotloop[watch]', or look at it in a browser: hotloop watch --web 0",
        )
    from hotloop.monitor.app import Watch

    app = Watch(source)
    app.run()
    if app.error is not None:
        raise app.error
    return 0


def report_of(recording: Recording) -> dict[str, Any]:
    """What ``hotloop report`` says of a recording."""
    from hotloop.flow.examine import build_report, examine

    return build_report(examine(recording))


def _print(source: Iterator[dict[str, Any]], whole: bool) -> int:
    from hotloop.monitor.screen import line

    before: dict[str, Any] | None = None
    moved_s, at_s, count = time.monotonic(), 0.0, -1
    for state in source:
        now_s = time.monotonic()
        if state["state"] != "lost" or state["steps"]["count"] != count:
            moved_s, count = now_s, state["steps"]["count"]
        gone = now_s - moved_s > _GONE_S and (state["diagnosis"] or state["diagnosis_failed"] or not count)
        new = before is None or before["state"] != state["state"] or state["last"] or gone
        if whole or new or now_s - at_s >= _EACH_S:
            print(json.dumps(state) if whole else shown(line(state, before)), flush=True)
            before, at_s = state, now_s
        if gone:
            say("hotloop run writes no more: it was killed, or its machine is gone; what it wrote is kept")
            break
    return 0


def _serve(source: Iterator[dict[str, Any]], port: int) -> int:
    from hotloop.monitor.web import serve

    def tell(url: str) -> None:
        print(url, flush=True)
        say("Ctrl-C ends this page; the run goes on")

    try:
        serve(source, port, tell)
    except KeyboardInterrupt:
        return 0
    return 0
