"""``hotloop what-if [INTERVENTION]... -- COMMAND``: what would each change give, measured."""

from __future__ import annotations

import argparse
import sys

from hotloop import language
from hotloop.cli import arguments
from hotloop.cli.output import say, terminal_width

_USAGE = """hotloop what-if [--budget 2m] [--width 3%] [--go-on] [--throw-away]
                       [--json] [INTERVENTION]... -- COMMAND..."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop what-if``."""
    parser.usage = _USAGE.replace("%", "%%")
    _options(parser)
    words = "free-data (the default), or remedies: num-workers=4, autocast-bf16, threads=1, ..."
    parser.add_argument("words", metavar="INTERVENTION", nargs=argparse.REMAINDER, help=words)


def _options(parser: argparse.ArgumentParser) -> None:
    arguments.add_out(parser)
    words = "from the start of the command; half of it is the blocks' in any case (default: 2m)"
    arguments.add_time(parser, "--budget", 120.0, words)
    parser.add_argument(
        "--width", metavar="W", type=_width, default=0.03, help="stop at this interval, +- (default: 3%%)"
    )
    arguments.add_switch(parser, "--go-on", "let the run go on to its end afterwards")
    arguments.add_throw_away(parser)
    arguments.add_json(parser, "what_if.json")


def main(options: argparse.Namespace) -> int:
    """0 where something was measured, 1 where the run ended first."""
    asked, command = _split(options)
    from hotloop.flow.what_if import what_if  # not at the top: --help and --version stay fast
    from hotloop.whatif import words

    measured = what_if(
        command,
        asked,
        budget_s=options.budget,
        width=options.width,
        go_on=options.go_on,
        throw_away=options.throw_away,
        out=options.out,
    )
    told = measured.json if options.json else language.plain(words.render(measured.result, terminal_width()))
    sys.stdout.write(told)
    print(f"what-if: {measured.file}", file=sys.stderr)
    if measured.outcome.interrupted:
        say("interrupted; the blocks up to then are measured")
        return 130
    if measured.outcome.exit_code:
        say(f"the command ended with exit code {measured.outcome.exit_code}")
    return 0 if any(row.ratio is not None for row in measured.result.rows) else 1


def _split(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """What stands before ``--`` (options may stand among the interventions), and the command after it."""
    edge = [*options.words, "--"].index("--")
    inner = argparse.ArgumentParser(prog="hotloop what-if", usage=_USAGE.replace("%", "%%"), add_help=False)
    _options(inner)
    inner.add_argument("asked", nargs="*")
    inner.parse_intermixed_args(options.words[:edge], options)
    command = arguments.command_of(options.words[edge + 1 :], _USAGE)
    return list(dict.fromkeys(options.asked or ["free-data"])), command


def _width(text: str) -> float:
    if not 0 < (width := arguments.part(text)) < 1:
        raise argparse.ArgumentTypeError(language.said(f"{text!r} is no width: write 3%"))
    return width
