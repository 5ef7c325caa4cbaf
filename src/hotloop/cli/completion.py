"""``hotloop completion SHELL``: shtab makes bash, zsh or fish complete verbs, flags and their values."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any, Final

_HOW: Final = {
    "bash": 'Put into ~/.bashrc: eval "$(hotloop completion bash)"',
    "zsh": 'Put into ~/.zshrc, behind compinit: eval "$(hotloop completion zsh)"',
    "fish": "Write it once: hotloop completion fish > ~/.config/fish/completions/hotloop.fish",
}
#: Another way to install it, which shtab names.
_ITS_USAGE: Final = re.compile(r"^# Usage:\n(#.*\n)+", re.MULTILINE)
#: What stands for files in a usage.
_FILES: Final = re.compile("FILE|DIR|PATH|FOLDER|RUN|COMMAND|PYTHON|OUT")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop completion``."""
    parser.add_argument("shell", metavar="SHELL", choices=tuple(_HOW), help="bash, zsh or fish")


def main(options: argparse.Namespace) -> int:
    """Returns 0."""
    first, rest = render(options.shell).split("\n", 1)  # zsh wants its own line first
    rest = _ITS_USAGE.sub("", rest, count=1)
    sys.stdout.write(f"{first}\n# {_HOW[options.shell]}\n{rest}")
    return 0


def render(shell: str) -> str:
    """The script for a shell."""
    import shtab

    from hotloop.cli.main import parser_of
    from hotloop.findings import pages
    from hotloop.flow.export import KINDS
    from hotloop.remedy import catalogue

    remedies = [one.id for one in catalogue.remedies()]
    known = {"REMEDY": remedies, "PAGE": list(pages.titles()), "SPEC": [f"{kind}=" for kind in KINDS]}
    known |= {"WORD": remedies, "INTERVENTION": remedies}
    parser, _ = parser_of([])
    verbs: Any = next(one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    for name in verbs.choices:
        verb = verbs.choices[name] = parser_of([name])[1]
        for action in verb._actions:
            meant = str(action.metavar)
            action.choices = action.choices or known.get(meant)
            if not action.choices and _FILES.search(meant):
                vars(action)["complete"] = shtab.FILE
    return shtab.complete(parser, shell)
