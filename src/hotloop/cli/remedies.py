"""``hotloop remedies [WORD]``: every change hotloop knows, what it may alter, and what asks for it."""

from __future__ import annotations

import argparse
import json
import sys

from hotloop.cli import arguments
from hotloop.cli.output import terminal_width
from hotloop.language import lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop remedies``."""
    parser.add_argument(
        "word", metavar="WORD", nargs="?", default="", help="only those whose name or finding holds it"
    )
    arguments.add_json(parser, "the list as JSON")


def main(options: argparse.Namespace) -> int:
    """Returns 0, or 2 where no remedy holds the word."""
    from hotloop.remedy import catalogue

    every = catalogue.remedies()
    found = [one for one in every if any(options.word in text for text in (one.id, *one.answers))]
    if not found:
        raise catalogue.unknown("remedy", options.word, [one.id for one in every])
    if options.json:
        entries = [
            {
                "id": one.id,
                "summary": one.summary,
                "effect": one.effect,
                "alters": one.alters,
                "parameter": one.parameter.name if one.parameter else None,
                "forms": one.forms,
                "findings": list(one.answers),
            }
            for one in found
        ]
        sys.stdout.write(json.dumps(entries, indent=1) + "\n")
        return 0
    width = terminal_width()
    for one in found:
        value = f"={one.parameter.name.upper()}" if one.parameter else ""
        effect = one.effect + (f" ({one.source_effect} in the source)" if one.source_effect else "")
        asked = f"for {', '.join(one.answers)}" if one.answers else ""
        told = lines(f"{effect}, {' and '.join(one.forms)}", width, f"{one.id}{value}  ", "    ")
        told += [*lines(one.summary, width, "    "), *lines(asked, width, "    ")]
        sys.stdout.write("".join(f"{line}\n" for line in told))
    return 0
