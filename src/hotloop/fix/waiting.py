"""Where the training loop waits for numbers of the device, and whether it may run ahead of it instead."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from hotloop.fix.conditions import ifs_around, remainders, zeros
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Cannot, Site
from hotloop.record import rows as row
from hotloop.source.code import Code
from hotloop.source.nodes import LOOPS, Loop, last_name

#: What must know a number now: the scaler asks whether gradients are finite.
_NECESSARY: Final = frozenset(["step", "update", "unscale_"])
#: A place that waits in fewer of the steps than this is not named.
_AS_OFTEN: Final = 0.5
_TO_HOST: Final = 2
_NUMBERS: Final = row.SYNC_FLOAT | row.SYNC_WHOLE


def loop_of(plan: Plan) -> tuple[Code, Loop]:
    """The loop that drives training. Raises Cannot."""
    place = plan.scene.loop
    if place is None:
        raise Cannot("the training loop is not known")
    code = plan.scene.code(place.file)
    found = [one for one in code.nodes(LOOPS) if code.line(one) == place.line]
    if len(found) != 1:
        raise Cannot("the training loop is no plain loop", place.file, place.line)
    return code, found[0]


def waiting(plan: Plan, code: Code, loop: Loop) -> tuple[list[tuple[ast.Call, int]], list[str]]:
    """The calls of the loop itself that read numbers in each step, by their order in the file, with the flags
    that say of which kind; what else waits as often.
    """
    rows = plan.scene.process.rows
    rows = rows[rows["kind"] == row.SYNC]
    calls: dict[ast.Call, set[int]] = {}
    others: dict[str, int] = {}
    devices: set[int] = set()
    most = 0
    for number, times in zip(*np.unique(rows["site"], return_counts=True), strict=True):
        site = plan.scene.site(int(number))
        if site is None:
            continue
        frame, call = site.frames[-1], _call(plan, site)
        inside = call is not None and frame.file == str(code.path) and code.holds(loop, call)
        if call is None or not inside or code.function_of(call) is not code.function_of(loop):
            lines = range(code.line(loop) + 1, code.end(loop)[0] + 1)
            reached = any(one.file == str(code.path) and one.line in lines for one in site.frames)
            if reached and (call is None or last_name(call.func) not in _NECESSARY):
                others[f"{Path(frame.file).name}:{frame.line}"] = int(times)
        elif not is_rare(code, call, loop):
            seen = rows[rows["site"] == number]
            most = max(most, int(times))
            numbers = seen[(seen["flags"] & _NUMBERS) != 0]
            calls.setdefault(call, set()).update(map(int, np.unique(seen["flags"] & _NUMBERS)))
            devices.update(map(int, np.unique(numbers["extra"])))
    if len(devices) > 1:
        raise Cannot.at("numbers of several devices are read in it", code, loop)
    often = [words for words, times in others.items() if times >= _AS_OFTEN * most]
    found = [(call, next(iter(flags)) if len(flags) == 1 else 0) for call, flags in calls.items()]
    return sorted(found, key=lambda one: code.span(one[0])), often


def _call(plan: Plan, site: Site) -> ast.Call | None:
    try:
        return plan.scene.call(site)[1]
    except Cannot:
        return None


def is_rare(code: Code, node: ast.AST, loop: Loop) -> bool:
    """Whether a node stands under ``if step % N == ...`` of the loop."""
    for branch, inside in ifs_around(code, node, loop):
        tests = code.nodes(ast.Compare, branch.test)
        compared = [one for one in tests if all(isinstance(op, ast.Eq) for op in one.ops)]
        if inside and (zeros(branch.test) or any(remainders(code, one) for one in compared)):
            return True
    return False


# -- what a host that runs ahead may break -------------------------------------------------------------------


def require_may_run_ahead(plan: Plan, code: Code, loop: Loop) -> None:
    """Raises Cannot where the waiting is what keeps something right, or sums would not be those of Python."""
    if plan.scene.device != "cuda":
        raise Cannot.at("the run saw no CUDA device: not every other one adds in float64", code, loop)
    rows = plan.scene.process.rows
    to_host = (rows["kind"] == row.TRANSFER) & (rows["obj"] == _TO_HOST)
    late = plan.scene.sites(rows[to_host & ((rows["flags"] & row.TRANSFER_NON_BLOCKING) != 0)])
    if late:
        frame = late[0].frames[-1]
        words = "what is copied to the host without waiting has arrived because the loop waits"
        raise Cannot(words, frame.file, frame.line)
    for other, call, words in _own_order(plan):
        raise Cannot.at(words, other, call)


def _own_order(plan: Plan) -> Iterator[tuple[Code, ast.AST, str]]:
    """Streams and pinned buffers of the user's own: what is safe there may rest on the loop's waiting."""
    for code in plan.scene.codes("cuda."):
        for call in (*code.calls("Stream"), *code.calls("stream")):
            yield code, call, "the script has streams of its own: what waits may be what orders them"
    for code in plan.scene.codes("non_blocking"):
        for call in code.calls("pin_memory"):
            yield code, call, "a pinned buffer of the script's own is free again because the loop waits"
