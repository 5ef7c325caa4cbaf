"""``hotloop doctor``: this machine in one line a part: what it is, whether it is fine, what to do."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from hotloop import language
from hotloop.cli import arguments
from hotloop.cli.output import say, takes_color, terminal_width
from hotloop.doctor.checks import Line
from hotloop.report.words import paint

_MARKS = {
    "ok": ("ok", "32"),
    "warn": ("!", "33"),
    "bad": ("!!", "31"),
    "fact": ("", ""),
    "unknown": ("?", "2"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop doctor``."""
    arguments.add_path(parser, "--data", "folder the training data is read from", "DIR", Path())
    parser.add_argument(
        "--python", metavar="PYTHON", default=sys.executable, help="the interpreter that trains"
    )
    arguments.add_switch(parser, "--quick", "facts only, nothing is measured")
    arguments.add_json(parser, "the lines as JSON")


def main(options: argparse.Namespace) -> int:
    """Returns 0, or 1 where something is wrong (``bad``); what could be better does not count."""
    from hotloop.doctor.examine import examine

    if not options.quick:
        say("measuring storage, copies and matrix products")
    lines = examine(options.data.resolve(), python=options.python, quick=options.quick)
    if options.json:
        document = {"schema": 1, "lines": [dataclasses.asdict(line) for line in lines]}
        print(json.dumps(document, indent=1, default=str))
    else:
        sys.stdout.write(language.plain(render(lines, width=terminal_width(), color=takes_color(sys.stdout))))
    return int(any(line.state == "bad" for line in lines))


def render(lines: Sequence[Line], *, width: int, color: bool) -> str:
    """One line a part under its topic, with the advice below it; plain text, colored on request."""
    out: list[str] = []
    topics = list(dict.fromkeys(line.topic for line in lines))
    for topic in topics:
        out += ([""] if out else []) + [topic]
        for line in (one for one in lines if one.topic == topic):
            mark, style = _MARKS[line.state]
            text = language.lines(f"{line.name}: {line.value}", width - 5, indent="  ")
            out.append(f"  {paint(f'{mark:<2}', style, color)} {text[0]}")
            out += [f"     {more}" for more in text[1:]] + language.lines(line.advice, width, " " * 7)
    worst = [line for line in lines if line.state in ("warn", "bad")]
    bad = sum(line.state == "bad" for line in worst)
    said = f"{len(worst)} of {len(lines)} could be better" + (f", {bad} of them wrong" if bad else "")
    out += ["", said + "." if worst else "Nothing is off."]
    return "\n".join(out) + "\n"
