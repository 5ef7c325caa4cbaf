"""``hotloop watch [RUN]``: follow a run that goes on, in the terminal or on a page; it only looks on."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotloop.cli import arguments
from hotloop.cli.output import say, shown
from hotloop.errors import UsageError

#: Seconds from one line of text to the next, and until a run is given up that nobody writes any more.
_EACH_S, _GONE_S = 5.0, 10.0

if TYPE_CHECKING:
    from hotloop.compare.expectation import Expectation
    from hotloop.compare.items import Item
    from hotloop.record.recording import Recording


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop watch``."""
    words = "run folder, or HOST:FOLDER over ssh (default: the newest in hotloop-runs)"
    parser.add_argument("run", metavar="RUN", nargs="?", help=words)
    words = "a checklist, as of hotloop verify: whether the run is within, on the screen and the page"
    parser.add_argument("--expect", metavar="FILE", type=Path, help=words)
    how = parser.add_mutually_exclusive_group()
    words = "serve a page on this machine instead, at this port; 0 for any that is free"
    how.add_argument(
        "--web", metavar="PORT", type=arguments.number("a port", least=0, most=65535), help=words
    )
    arguments.add_switch(how, "--jsonl", "write every state as a line of JSON on standard output")


def main(options: argparse.Namespace) -> int:
    """Returns 0 when the run is over, or the user leaves; 1 where lines end outside of what was expected."""
    from hotloop.monitor.source import states

    reporter: Callable[[Recording], dict[str, Any]] = report_of
    if options.expect:
        from hotloop.compare.expectation import read

        if options.run and not Path(options.run).exists():
            raise UsageError(f"--expect needs a run on this machine; there is no folder {options.run}")
        reporter = partial(report_of, asked=read(options.expect))
    source = states(options.run or arguments.run_of(None), reporter)
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


def report_of(recording: Recording, asked: Expectation | None = None) -> dict[str, Any]:
    """What ``hotloop report`` says of a recording, and under ``expected`` how it stands to what was asked."""
    from hotloop.compare.checklist import checklist, finite_loss
    from hotloop.compare.items import unmeasured
    from hotloop.compare.run import measured
    from hotloop.compare.speed import Speed
    from hotloop.flow.examine import build_report, examine

    examination = examine(recording)
    report = build_report(examination)
    if asked is not None and examination.lead is not None:
        run = measured(examination.recording, "the run", examination.ranks)
        items = checklist(asked, run, Speed(of="steps", words="there is no other run to compare with"))
        items += [finite_loss(run)] if "finite_loss" in asked.items else []
        if any(process.cuts for process in recording.ranks):  # what it says of all losses is not known
            newest = "only the newest steps are read while it runs"
            items = [unmeasured(one.name, newest) if _of_all(one) else one for one in items]
        if "checkpoint_loads" in asked.items:
            items.append(unmeasured("checkpoint_loads", "hotloop verify loads it"))
        order = ("failed", "passed", "not-measured")
        report["expected"] = [vars(item) for item in sorted(items, key=lambda one: order.index(one.status))]
    return report


def _of_all(item: Item) -> bool:
    """Whether an item stands for the losses of the whole run; one that is not finite is one anyway."""
    return item.name == "loss_converges" or (item.name == "finite_loss" and item.status == "passed")


def _print(source: Iterator[dict[str, Any]], whole: bool) -> int:
    from hotloop.monitor.screen import expectation, line

    before: dict[str, Any] | None = None
    moved_s, at_s, count, waits = time.monotonic(), 0.0, -1, False
    for state in source:
        now_s = time.monotonic()
        if state["state"] != "lost" or state["steps"]["count"] != count:
            moved_s, count = now_s, state["steps"]["count"]
        gone = now_s - moved_s > _GONE_S and (state["diagnosis"] or state["diagnosis_failed"] or not count)
        new = before is None or before["state"] != state["state"] or state["last"] or gone
        waits = state["state"] == "finished" and not state["last"] and not whole  # for the verdict
        if whole or (not waits and (new or now_s - at_s >= _EACH_S)):
            print(json.dumps(state) if whole else shown(line(state, before)), flush=True)
            before, at_s = state, now_s
        if gone:
            say("hotloop run writes no more: it was killed, or its machine is gone; what it wrote is kept")
            break
    if waits:  # for nothing
        print(shown(line(state, before)))
        before = state
    expected = (before["diagnosis"] or {}).get("expected", ()) if before and not whole else ()
    for one in expected:
        print(shown("".join(expectation(one))))
    return int(any(one["status"] == "failed" for one in expected))


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
