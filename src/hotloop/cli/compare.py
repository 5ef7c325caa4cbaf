"""``hotloop compare A B...``: runs side by side; ``--fail-if-slower`` for continuous integration."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hotloop import language
from hotloop.cli import arguments
from hotloop.cli.output import progress, publish, terminal_width
from hotloop.errors import UsageError

if TYPE_CHECKING:
    from hotloop.compare.comparison import Comparison, Group

_LABELLED = re.compile(r"([\w.+-]+)=(.+)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop compare``."""
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="run folders, the first is what the others are compared with; LABEL=RUN puts launches of the "
        "same thing together",
    )
    words = (
        "exit with 1 where a run is slower than the first by more than this, 3%% for instance, beyond "
        "the noise"
    )
    arguments.add_limit(parser, words)
    words = "with --fail-if-slower: exit with 1 also where it cannot be told"
    arguments.add_switch(parser, "--strict", words)
    arguments.add_path(parser, "--html", "write the comparison as a page")
    arguments.add_json(parser, "the comparison as JSON")


def main(options: argparse.Namespace) -> int:
    """1 where ``--fail-if-slower`` is reached, else 0."""
    from hotloop.compare import table
    from hotloop.compare.comparison import compare, summary
    from hotloop.report import json

    limit: float | None = options.fail_if_slower
    if options.strict and limit is None:
        raise UsageError(
            "--strict says how to take a limit, and none is given", hint="--fail-if-slower 3% --strict"
        )
    groups = _groups(options.runs)
    comparisons = compare(groups)
    if options.html:
        from hotloop.report import comparison_html

        publish(options.html, comparison_html.render(groups, comparisons))
    if options.json:
        judged = {one.label: one.judged(limit) for one in comparisons} if limit is not None else None
        data = {
            "schema": 1,
            "runs": [summary(group) for group in groups],
            "comparisons": [one.to_json() for one in comparisons],
            "fail_if_slower": limit,
            "judged": judged,
        }
        sys.stdout.write(json.render(data))
    else:
        sys.stdout.write(language.plain(table.render(groups, comparisons, terminal_width())))
    return gate(comparisons, limit, strict=options.strict) if limit is not None else 0


def gate(comparisons: Sequence[Comparison], limit: float, *, strict: bool) -> int:
    """Say how each stands against the limit; 1 where one is slower or not whole, with ``strict`` might be."""
    code = 0
    for one in comparisons:
        judged = one.judged(limit)
        edges = one.speed.ci95
        told = f"{one.speed.ratio:.3f}x [{edges[0]:.3f}, {edges[1]:.3f}]" if edges else "no interval"
        unsure = "repeat the runs, or run longer"
        if one.broken:
            unsure = "a run is not whole"
        elif one.speed.doubt:
            unsure = "others used the machine, which one launch of a side cannot tell apart: repeat the runs"
        words = {
            "slower": f"slower by more than {limit:.1%}",
            "cannot tell": f"cannot tell whether it is slower by more than {limit:.1%}: {unsure}",
            "same": f"not slower by more than {limit:.1%}",
            "faster": "faster",
        }[judged]
        lines = language.lines(f"{one.label}: {words} ({told})", terminal_width())
        print(*lines, sep="\n", file=sys.stderr)
        code = max(code, int(judged == "slower" or one.broken or (strict and judged == "cannot tell")))
    return code


def _groups(words: Sequence[str]) -> list[Group]:
    from hotloop.compare.comparison import Group
    from hotloop.compare.run import measured
    from hotloop.flow.examine import examine, read

    named: dict[str, list[Path]] = {}
    for word in words:
        found = _LABELLED.fullmatch(word)
        label, path = (found[1], found[2]) if found and not Path(word).exists() else (word, word)
        named.setdefault(label, []).append(Path(path))
    if len(named) < 2:
        raise UsageError(
            "one run, or one label, is given: nothing to compare it with", hint="hotloop compare RUN RUN"
        )
    every = list(dict.fromkeys(path for paths in named.values() for path in paths))
    last = {path: path.name for path in every}  # tells the runs apart, or the whole path does
    short = last if all(last.values()) and len(set(last.values())) == len(last) else {}
    groups, done, total = [], 0, len(words)
    with progress("reading runs") as advance:
        for label, paths in named.items():
            runs = []
            for path in paths:
                examination = examine(read(path))
                runs.append(
                    measured(
                        examination.recording,
                        short.get(path, str(path)),
                        examination.ranks,
                        examination.findings,
                    )
                )
                done += 1
                advance(done / total, path.name)
            groups.append(Group(label=runs[0].label if label in words else label, runs=tuple(runs)))
    return groups
