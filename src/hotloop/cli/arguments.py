"""Arguments that several verbs have, and the values they take."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from hotloop.cli.output import say
from hotloop.errors import UsageError
from hotloop.language import said
from hotloop.units import parse_duration

_PYTHON = re.compile(r"python[\d.]*")


def number(
    what: str = "a whole number from 1 on", *, least: float = 1, most: float = float("inf"), kind: type = int
) -> Callable[[str], float]:
    """What reads a number within limits, and says ``what`` was expected."""

    def read(text: str) -> float:
        try:
            value: float = kind(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(said(f"{text!r} is not {what}"))
        return value

    return read


positive = number()
whole = number("a whole number from 0 on", least=0)
cores = number("a number of cores", least=1e-9, most=1e5, kind=float)


def seconds(text: str) -> float:
    """``90s``, ``10m``, ``12ms``."""
    try:
        return parse_duration(text)
    except ValueError:
        raise argparse.ArgumentTypeError(said(f"{text!r} is no duration: write 90s, 10m or 12ms")) from None


def part(text: str) -> float:
    """``3%`` or ``0.03``."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < (10 if text.endswith("%") else 1):
        raise argparse.ArgumentTypeError(said(f"{text!r} is not a part: write 3%, or 0.03"))
    return value


def size(text: str | None, whole_bytes: float | None = None, of: str = "--memory") -> float | None:
    """The bytes of ``64GiB``, ``256GB`` or ``50%``, a part of this machine's memory or of ``whole_bytes``."""
    if text is None:
        return None
    from hotloop.feed.budget import named_bytes, total_memory_bytes

    total = total_memory_bytes if whole_bytes is None else lambda: int(whole_bytes)
    try:
        return float(named_bytes(text, total))
    except ValueError as error:
        raise UsageError(f"{of}: {error}", hint="write 64GiB, 64GB or 50%") from None


def add_command(parser: argparse.ArgumentParser, usage: str) -> None:
    """The command that stands after ``--``."""
    parser.usage = usage.replace("%", "%%")
    parser.add_argument(
        "command", metavar="COMMAND", nargs=argparse.REMAINDER, help="the training command, after --"
    )


def command_of(words: Sequence[str], usage: str) -> list[str]:
    """The command among the words of the command line. UsageError: there is none, or no script."""
    command = list(words[1:] if words[:1] == ["--"] else words)
    if not command:
        verb = " ".join(usage.split()[:2])
        raise UsageError(
            "no command to run", hint=f"write the training command after --: {verb} -- python train.py"
        )
    if len(command) > 1 and _PYTHON.fullmatch(Path(command[0]).name) and command[1].endswith(".py"):
        script = Path(command[1])
        if not script.exists():
            near = difflib.get_close_matches(script.name, [one.name for one in script.parent.glob("*.py")], 1)
            here = f"the command starts in {Path.cwd()}"
            raise UsageError(
                f"there is no file {script}",
                hint=f"did you mean {script.with_name(near[0])}?" if near else here,
            )
    return command


def add_run(parser: argparse._ActionsContainer) -> None:
    """The run that a verb is about."""
    words = "run folder, or one rank-N.sqlite (default: the newest in hotloop-runs)"
    parser.add_argument("run", metavar="RUN", nargs="?", type=Path, help=words)


def run_of(given: Path | None) -> Path:
    """The run that was given, else the newest here, which is named on standard error. Raises UsageError."""
    if given is not None:
        return given
    there = Path("hotloop-runs")
    going_on = (one.parent for one in there.glob("*/trials/*/raw"))  # what a tuning runs now
    known = [one for one in (*there.glob("*"), *going_on) if (one / "run.json").is_file()]
    if not known:
        raise UsageError(
            "no run is given, and hotloop-runs has none", hint="record one: hotloop run -- python train.py"
        )
    newest = max(known, key=lambda one: (one / "run.json").stat().st_mtime)
    say(f"the newest run, {newest}")
    return newest


def add_out(parser: argparse._ActionsContainer, words: str = "run folder", name: str = "NAME") -> None:
    """``--out DIR``."""
    add_path(parser, "--out", f"{words} (default: hotloop-runs/TIME-{name})", "DIR")


def add_json(parser: argparse._ActionsContainer, words: str) -> None:
    """``--json``."""
    add_switch(parser, "--json", f"{words} on standard output")


def add_steps(parser: argparse._ActionsContainer) -> None:
    """``--steps N``."""
    words = "end the run cleanly after N steps; 5 before them are warm-up and do not count"
    add_number(parser, "--steps", words)


def add_throw_away(parser: argparse._ActionsContainer) -> None:
    """``--throw-away``."""
    add_switch(parser, "--throw-away", "drop what the command writes (Linux); reads are real")


def add_switch(parser: argparse._ActionsContainer, name: str, words: str) -> None:
    """An option without a value."""
    parser.add_argument(name, action="store_true", help=words)


def add_number(
    parser: argparse._ActionsContainer,
    name: str,
    words: str | None = None,
    kind: Callable[[str], float] = positive,
    default: float | None = None,
) -> None:
    """An option that takes a number."""
    parser.add_argument(name, metavar="N", type=kind, default=default, help=words)


def add_path(
    parser: argparse._ActionsContainer,
    name: str,
    words: str,
    metavar: str = "FILE",
    default: Path | None = None,
) -> None:
    """An option that takes a file or a folder."""
    parser.add_argument(name, metavar=metavar, type=Path, default=default, help=words)


def add_allow(parser: argparse._ActionsContainer, words: str) -> None:
    """``--allow EFFECT``."""
    effects = ("exact", "numeric", "semantic")
    parser.add_argument(
        "--allow", choices=effects, default=effects[0], help=f"{words} (default: exact, nothing)"
    )


def add_limit(parser: argparse._ActionsContainer, words: str) -> None:
    """``--fail-if-slower LIMIT``."""
    parser.add_argument("--fail-if-slower", metavar="LIMIT", type=part, help=words)


def add_many(
    parser: argparse._ActionsContainer, name: str, metavar: str, words: str, kind: type = str
) -> None:
    """An option that may be given several times."""
    parser.add_argument(name, metavar=metavar, action="append", default=[], type=kind, help=words)


def add_time(
    parser: argparse._ActionsContainer, name: str, default: float | None, words: str, metavar: str = "TIME"
) -> None:
    """An option that takes a duration."""
    parser.add_argument(name, metavar=metavar, type=seconds, default=default, help=words)


def add_change(parser: argparse._ActionsContainer) -> None:
    """``--apply REMEDY`` and ``--patch FILE``."""
    words = "enable a remedy without an edit: ID or ID=VALUE; may be repeated"
    add_many(parser, "--apply", "REMEDY", words)
    words = "run with a unified diff applied, in every Python process; no file is written"
    add_path(parser, "--patch", words)
