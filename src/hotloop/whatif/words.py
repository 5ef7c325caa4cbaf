"""A what-if run in words: lines of progress, and a table for the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from hotloop import language
from hotloop.units import duration, share
from hotloop.whatif.estimate import EPOCH_START, Row, WhatIf
from hotloop.whatif.live.blocks import Board

#: An interval whose edges are further apart than this does not even tell that there is no gain.
_TELLING = 1.5
#: Seconds between two lines of progress.
_EVERY_S = 5.0

_LIMITS = {
    "input": "the input: alone, with the cores to itself, it needs {loader} for a step's batches",
    "device": "the step itself: {step} with batches for free",
    "transfer": "copies to the device, inside a step of {step} with batches for free",
    "cores": "the cores: a step and its batch are {cores} of CPU work on the cores this run may use",
}


def progress(board: Board, budget_s: float) -> Callable[[], None]:
    """What is to be called now and then: says after each cycle of blocks how far they are.

    In lines on a terminal too: the command's own output goes there.
    """
    said_s, cycle = time.monotonic(), 0
    _say(f"measuring for up to {duration(budget_s)}, from the first training steps on")

    def tick() -> None:
        nonlocal said_s, cycle
        if time.monotonic() - said_s < _EVERY_S or (last := board.last()).get("cycle", 0) <= cycle:
            return
        said_s, cycle = time.monotonic(), last["cycle"]
        pairs = ", ".join(f"{name} {number}" for name, number in last["pairs"].items())
        _say(f"{duration(last['spent_s'])} of {duration(budget_s)}, pairs of blocks: {pairs}")

    return tick


def _say(words: str) -> None:
    print(f"hotloop: {language.said(words)}", file=sys.stderr, flush=True)


def render(result: WhatIf, width: int = 80) -> str:
    """The table, the ceiling, and what was not measured."""
    lines = [
        f"baseline {duration(result.baseline_s)} per step "
        f"({result.baseline_blocks} blocks of {result.block_steps} steps); "
        f"{duration(result.startup_s)} to the first block",
        "",
        f"{'intervention':<24}{'speed':>9}{'95 % interval':>18}{'pairs':>8}",
    ]
    measured = [row for row in result.rows if row.ratio is not None]
    lines += [_line(row) for row in sorted(measured, key=lambda row: -(row.ratio or 0))]
    accounted = [row for row in measured if row.method == "accounted"]
    if accounted:
        lines += ["", "* its own time left out of what was recorded, not run without it"]
    lines += [""]
    for row in result.rows:
        if row.ratio is None:
            lines += _wrapped(f"not measured: {row.intervention}: {row.words}", width)
        elif row.words:
            lines += _wrapped(f"{row.intervention}: {row.words}", width)
    lines += _ceiling(result, width)
    if result.doubt:
        lines += _wrapped(f"This is not sure: {result.doubt}.", width)
    if result.not_exact:
        lines += _wrapped(
            f"free-data: {result.not_exact}: order was kept, but losses are not those of an undisturbed run",
            width,
        )
    return "\n".join(lines).rstrip() + "\n"


def _line(row: Row) -> str:
    ratio, edges = row.ratio or 0.0, row.ci95
    speed = f"{ratio:.2f}x"
    if row.in_noise and row.method == "blocks":
        speed = "none" if edges is not None and edges[1] / edges[0] < _TELLING else "unclear"
    between = f"{edges[0]:.2f} - {edges[1]:.2f}" if edges else "-"
    pairs = "*" if row.method == "accounted" else str(row.blocks)
    return f"{row.intervention:<24}{speed:>9}{between:>18}{pairs:>8}"


def _ceiling(result: WhatIf, width: int) -> list[str]:
    if result.ceiling is None or result.ceiling_s is None or result.step_alone_s is None:
        return []
    words = _LIMITS[result.ceiling].format(
        loader=duration(result.loader_alone_s or 0.0),
        step=duration(result.step_alone_s),
        cores=duration(result.cores_s or 0.0),
    )
    best = (result.baseline_s + result.epoch_start_s) / result.ceiling_s
    told = ("free-data", EPOCH_START)
    shown = any(row.intervention in told and (row.ci95 is None or not row.in_noise) for row in result.rows)
    lines = _wrapped(f"ceiling ({result.ceiling}): {words}", width)
    if best > 1.02 and shown:
        lines += _wrapped(f"with this loader and this step at best {best:.2f}x of now", width)
    contention = result.contention_s
    if contention is not None and contention > 0.03 * result.step_alone_s:
        lines += _wrapped(
            f"contention: while batches are made, the rest of a step takes {duration(contention)} longer "
            f"({share(contention / result.step_alone_s)})",
            width,
        )
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    return language.lines(text, width, indent="  ")
