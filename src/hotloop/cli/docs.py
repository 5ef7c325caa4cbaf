"""``hotloop docs [PAGE]``: the guides, the pages of findings and the reference, without a network."""

from __future__ import annotations

import argparse
import difflib
import re
import sys

from hotloop import language
from hotloop.cli import arguments
from hotloop.cli.output import takes_color, terminal_width
from hotloop.errors import UsageError

#: Takes a page apart: prose, code, prose, ...
_FENCED = re.compile(r"^```\w*\n(.*?)^```$\n?", re.M | re.S)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop docs``."""
    words = "tune, input/slow-sample or reference/cli for instance (default: list the pages)"
    parser.add_argument("page", metavar="PAGE", nargs="?", default="", help=words)
    arguments.add_json(parser, "the names and titles of the pages as JSON")


def main(options: argparse.Namespace) -> int:
    """Returns 0, or 2 where no page has the name."""
    from hotloop.findings import pages
    from hotloop.report import json

    titles = pages.titles()
    if options.page:
        other = language.chosen() and pages.page(f"{options.page}.{language.chosen()}")
        text = other or pages.page(options.page)
        if not text:
            near = difflib.get_close_matches(options.page, titles, n=1)
            hint = f"did you mean {near[0]}?" if near else "hotloop docs lists the pages"
            raise UsageError(f"no page named {options.page!r}", hint=hint)
        _show(text)
        return 0
    if options.json:
        sys.stdout.write(json.render({"pages": [{"name": n, "title": t} for n, t in titles.items()]}))
        return 0
    width = max(map(len, titles))
    sys.stdout.write("".join(f"{name:<{width}}  {title}\n" for name, title in titles.items()))
    return 0


def _show(text: str) -> None:
    """Markdown laid out; what stands between fences is there to be copied, and its lines stay whole."""
    from rich.console import Capture, Console
    from rich.markdown import Markdown
    from rich.padding import Padding
    from rich.text import Text

    colored, terminal = takes_color(sys.stdout), sys.stdout.isatty()
    console = Console(width=terminal_width(), no_color=not colored, highlight=False)
    laid = console.pager(styles=colored) if terminal else console.capture()
    with laid:
        for number, part in enumerate(_FENCED.split(text)):
            if number % 2:
                for line in part.rstrip("\n").split("\n"):
                    console.print(Text(f"    {line}", "cyan"), soft_wrap=True)
            elif part.strip():
                console.print(Padding(Markdown(part, hyperlinks=terminal), (number > 0, 0, 1, 0)))
    if isinstance(laid, Capture):
        sys.stdout.write("".join(f"{line.rstrip()}\n" for line in laid.get().splitlines()))
