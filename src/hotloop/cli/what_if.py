"""``hotloop what-if [INTERVENTION]... -- COMMAND``: what would each change give, measured."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotloop.cli.apart import add_argument, thrown_away
from hotloop.errors import CheckFailed, UsageError
from hotloop.units import parse_duration

if TYPE_CHECKING:
    from hotloop.flow import Examination
    from hotloop.remedy.catalogue import Applied
    from hotloop.remedy.remedy import Remedy

_USAGE = (
    "hotloop what-if [--budget 2m] [--width 3%] [--go-on] [--throw-away] [--json] [INTERVENTION]... "
    "-- COMMAND..."
)
_FREE_DATA, _TOGETHER = "free-data", "together"
#: Seconds between two lines of progress.
_EVERY_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop what-if``."""
    parser.usage = _USAGE.replace("%", "%%")
    _options(parser)
    parser.add_argument(
        "words",
        metavar="INTERVENTION",
        nargs=argparse.REMAINDER,
        help="free-data (the default), or remedies: num-workers=4, autocast-bf16, threads=1, ...",
    )


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="DIR", type=Path, help="run folder (default: hotloop-runs/...)")
    parser.add_argument(
        "--budget",
        metavar="TIME",
        type=_duration,
        default=120.0,
        help="from the start of the command; half of it is the blocks' in any case (default: 2m)",
    )
    parser.add_argument(
        "--width", metavar="W", type=_width, default=0.03, help="stop at this interval, +- (default: 3%%)"
    )
    parser.add_argument("--go-on", action="store_true", help="let the run go on to its end afterwards")
    add_argument(parser)
    parser.add_argument("--json", action="store_true", help="what_if.json on standard output")


def main(options: argparse.Namespace) -> int:
    """0 where something was measured, 1 where the run ended first."""
    asked, command = _split(options)
    from hotloop import flow  # not at the top: --help and --version stay fast
    from hotloop.record.publish import write_text_atomic
    from hotloop.report import json as report_json
    from hotloop.report.ranks import lead
    from hotloop.report.values import plain
    from hotloop.whatif import words
    from hotloop.whatif.estimate import TOLD, estimate

    # What is accounted for is told from every recording, asked for or not.
    wanted = [_intervention(name) for name in asked if name not in TOLD] or [_intervention(_FREE_DATA)]
    plan = [*(entry for entry, _ in wanted), *_together([one for _, one in wanted if one is not None])]
    folder = flow.new_run_folder(options.out, command)
    board = folder / "what-if.blocks"
    entry = {"interventions": plan, "board": str(board), "budget_s": options.budget, "width": options.width}
    entry["begun_s"] = time.monotonic()
    if not options.throw_away:
        _announce([remedy for _, remedy in wanted if remedy is not None])
    with thrown_away(options.throw_away, command, folder) as aside:
        outcome = flow.observe(
            command,
            folder,
            env={"HOTLOOP_WHAT_IF": json.dumps({**entry, "go_on": options.go_on})},
            watch_tick=_Progress(board, options.budget).tick,
            stdout=sys.stderr,
            **aside,
        )
    for leftover in (board, Path(f"{board}.lead")):
        leftover.unlink(missing_ok=True)
    examination = flow.examine(flow.read(folder))
    flow.publish(examination, folder)
    result = estimate(examination.recording, lead(list(examination.ranks)), examination.findings)
    if result is None:
        raise _nothing(examination, outcome.exit_code, folder)
    rendered = report_json.render(plain(result.to_json()))
    write_text_atomic(folder / "what_if.json", rendered)
    if options.json:
        sys.stdout.write(rendered)
    else:
        sys.stdout.write(words.render(result))
    print(f"what-if: {folder / 'what_if.json'}", file=sys.stderr)
    if outcome.exit_code:
        print(f"hotloop: the command ended with exit code {outcome.exit_code}", file=sys.stderr)
    return 0 if any(row.ratio is not None for row in result.rows) else 1


def _nothing(examination: Examination, exit_code: int, folder: Path) -> CheckFailed:
    """Why nothing was measured, and what to do."""
    from hotloop.whatif.estimate import interventions

    told = [f"{n['name']}: {n['status']}" for n in interventions(examination.recording) if n["status"]]
    why, hint = "; ".join(told), ""
    if not why and exit_code:
        why, hint = "the command failed", "its words are above; "
    elif not why and not any(steps.num_steps for steps in examination.ranks):
        why = "no training step was seen"
    elif not why and not _shows_steps(examination):
        why = "no optimizer of torch makes the updates: while the command runs no step is seen"
        hint = "compare two runs (hotloop run, and run --apply); "
    elif not why:
        why = "the command or the budget ended before two blocks of the baseline were done"
        hint = "let it run longer, or give a larger --budget; "
    return CheckFailed(
        f"nothing was measured: {why} (exit code {exit_code})", hint=f"{hint}the recording is in {folder}"
    )


def _shows_steps(examination: Examination) -> bool:
    """Whether anything ends a step while the command runs: updates by hand, or by an optimizer that is none
    of torch's, show only in the recording.
    """
    return any(rank.notes.get("optimizer") for rank in examination.recording.ranks)


def _split(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """What stands before ``--`` (options may stand among the interventions), and the command after it."""
    if "--" not in options.words:
        raise UsageError("no command to run", hint=f"write the training command after --: {_USAGE}")
    edge = options.words.index("--")
    inner = argparse.ArgumentParser(prog="hotloop what-if", usage=_USAGE.replace("%", "%%"), add_help=False)
    _options(inner)
    inner.add_argument("asked", nargs="*")
    inner.parse_intermixed_args(options.words[:edge], options)
    command = options.words[edge + 1 :]
    if not command:
        raise UsageError("no command to run", hint=f"write the training command after --: {_USAGE}")
    return list(dict.fromkeys(options.asked or [_FREE_DATA])), command


def _intervention(name: str) -> tuple[dict[str, Any], Applied | None]:
    """The plan's entry. Raises UsageError for what cannot be switched within a run."""
    if name == _FREE_DATA:
        return {"name": name}, None
    from hotloop.remedy import catalogue
    from hotloop.whatif.estimate import TOLD

    known = {remedy.id: remedy for remedy in catalogue.remedies()}
    wanted = name.partition("=")[0].strip().replace("_", "-").lower()
    if wanted not in known:
        switched = [one for one, remedy in known.items() if _is_switchable(remedy)]
        raise catalogue.unknown("intervention", wanted, [_FREE_DATA, *sorted(TOLD), *switched])
    one = catalogue.parse(name)
    catalogue.require_live(one)
    if not _is_switchable(one.remedy):
        raise UsageError(
            f"{one} cannot be switched on and off within a run",
            hint=f"compare two runs: hotloop run --apply {one} -- COMMAND, and one without",
        )
    return {"name": str(one), "remedy": [one.remedy.id, one.value, one.remedy.live]}, one


def _is_switchable(remedy: Remedy) -> bool:
    """Whether a remedy can be switched on and off within a run."""
    module, _, form = remedy.live.partition(":")
    return bool(module) and bool(getattr(importlib.import_module(module), form).switchable)


def _together(candidates: Sequence[Applied]) -> list[dict[str, Any]]:
    """All that change no meaning at once, the first of each kind, where there are at least two."""
    kinds: dict[str, str] = {}
    for one in candidates:
        if one.remedy.effect != "semantic":
            kinds.setdefault(one.remedy.id.replace("no-workers", "num-workers"), str(one))
    return [{"name": _TOGETHER, "together": list(kinds.values())}] if len(kinds) > 1 else []


def _announce(remedies: Sequence[Applied]) -> None:
    """What the interventions do to the run's own results, in the catalogue's words."""
    changing = [f"  {one}: {one.remedy.alters}" for one in remedies if one.remedy.effect != "exact"]
    if changing:
        print(
            "hotloop: what this run writes (checkpoints, logs) is of a run that was measured; --throw-away "
            "drops that. In the blocks of",
            *changing,
            sep="\n",
            file=sys.stderr,
        )


class _Progress:
    """A line now and then on a terminal: how much of the budget is spent, and what is known."""

    def __init__(self, board: Path, budget_s: float) -> None:
        self._board, self._budget_s = board, budget_s
        self._said_s = time.monotonic()

    def tick(self) -> None:
        """Called once or twice a second."""
        if not sys.stderr.isatty() or time.monotonic() - self._said_s < _EVERY_S:
            return
        self._said_s = time.monotonic()
        try:
            last = json.loads(self._board.read_text().rpartition("\n{")[2].join(("{", "")))
        except (OSError, ValueError):
            return
        known = ", ".join(last.get("known", ()))
        print(
            f"hotloop: block {last['block']}, {last.get('spent_s', 0.0):.0f} s of {self._budget_s:.0f} s"
            + (f"; known so far: {known}" if known else ""),
            file=sys.stderr,
        )


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write 90s, 10m or 1h") from None


def _width(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no width: write 3%")
    return value
