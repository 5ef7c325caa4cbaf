"""Calls of a logger, and prints, put under ``if step % N == 0``."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from hotloop.fix import blocks
from hotloop.fix.conditions import counter, counts_in, ifs_around, remainders
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Cannot, Site
from hotloop.record import rows as row
from hotloop.source.code import Code
from hotloop.source.effects import ACTS
from hotloop.source.flow import loops_around
from hotloop.source.nodes import argument, last_name

#: Methods of loggers, and at which position they are given the step (-1: they are not).
_NUMBERS: Final = {
    "add_scalar": 2, "add_scalars": 2, "add_histogram": 2, "add_histogram_raw": 8, "add_text": 2, "log": 1,
    "log_metric": 2, "log_metrics": 1, "track": 2, "info": -1, "debug": -1, "flush": -1,
}  # fmt: skip
_PICTURES: Final = {
    "add_image": 2, "add_images": 2, "add_image_with_boxes": 3, "add_figure": 2, "add_video": 2,
    "savefig": -1, "log_figure": -1,
}  # fmt: skip
_PRINTS: Final = {"print": -1}
#: Pictures of a figure, which pyplot keeps until it is closed.
_FIGURES: Final = frozenset(["add_figure", "savefig", "log_figure"])
#: Calls that run in fewer of the steps, or less often beside the costliest one, are left as they are.
_AS_OFTEN: Final = 0.5
_WRITE_FIGURE: Final = "put the making of the figure and its logging under one `if step % N == 0:`"


@dataclass(frozen=True, kw_only=True)
class _Put:
    """Neighbours in one block, to be put under one ``if``."""

    nodes: list[ast.stmt]
    step: str


def logging(plan: Plan, value: Any) -> None:
    """``if step % N == 0:`` around what logs numbers as often as the line of the finding."""
    _put_all(plan, int(value), _NUMBERS, *_calls(plan, _NUMBERS))


def images(plan: Plan, value: Any) -> None:
    """The same around what logs pictures, with the making of a figure."""
    _put_all(plan, int(value), _PICTURES, *_calls(plan, _PICTURES))


def prints(plan: Plan, value: Any) -> None:
    """The same around the ``print`` that the finding names, and those that come with every step beside it."""
    _put_all(plan, int(value), _PRINTS, *_printing(plan))


def _put_all(plan: Plan, value: int, kinds: Mapping[str, int], code: Code, calls: list[ast.Call]) -> None:
    found: list[_Put] = []
    for number, call in enumerate(calls):
        try:
            found.append(_put(plan, code, call, value, kinds))
        except Cannot as cannot:
            if number == 0:
                raise
            plan.remark(f"{plan.remedy}: {code.path.name}:{code.line(call)} stays as it is: {cannot.why}")
    for put in _neighbours(code, found):
        blocks.wrap(plan, code, put.nodes, f"if {put.step} % {value} == 0:")


def _neighbours(code: Code, puts: list[_Put]) -> list[_Put]:
    """Statements that follow each other with one step, together."""
    found: list[_Put] = []
    for put in sorted(puts, key=lambda one: code.span(one.nodes[0])[0]):
        block = code.block_of(put.nodes[0])
        before = block[: block.index(put.nodes[0])][-1:]
        if found and before == found[-1].nodes[-1:] and put.step == found[-1].step:
            found[-1].nodes.extend(put.nodes)
        else:
            found.append(put)
    return found


# -- which calls ---------------------------------------------------------------------------------------------


def _calls(plan: Plan, kinds: Mapping[str, int]) -> tuple[Code, list[ast.Call]]:
    """The call the finding names, or the most frequent one of the function it names; and those of the same
    loop that ran as often.
    """
    place, seen = plan.scene.where.get(plan.remedy), []
    for site, count in _sites(plan):
        frame = site.frames[-1]
        code = plan.scene.code(frame.file)
        call = code.call_at(frame.line, frame.col, site.end)
        there = place is None or (frame.file, frame.func) == (place.file, place.function)
        named = place is not None and (frame.file, frame.line) == (place.file, place.line)
        if call is not None and last_name(call.func) in kinds:
            seen.append((named, there, count, frame.function, code, call))
    asked = [one for one in seen if one[0]] or [one for one in seen if one[1]]
    if not asked:
        file, line = (place.file, place.line) if place is not None else ("", 0)
        raise Cannot("no call of a logger stands there that the run saw", file, line)
    _, _, count, function, code, first = asked[0]
    found, loop = [first], _training_loop(plan, code, first)
    num_steps = int(np.count_nonzero(plan.scene.process.rows["kind"] == row.BACKWARD)) or count
    for _, _, times, other, _, call in seen:
        often = times >= _AS_OFTEN * min(count, num_steps) and other == function
        if often and call not in found and _training_loop(plan, code, call) is loop:
            found.append(call)
    return code, found


def _sites(plan: Plan) -> list[tuple[Site, int]]:
    """Where something was logged and how often, the most frequent first."""
    rows = plan.scene.process.rows
    numbers, counts = np.unique(rows["site"][rows["kind"] == row.LOG], return_counts=True)
    pairs = sorted(zip(numbers, counts, strict=True), key=lambda pair: -int(pair[1]))
    found = ((plan.scene.site(int(number)), int(count)) for number, count in pairs)
    return [(site, count) for site, count in found if site is not None]


def _printing(plan: Plan) -> tuple[Code, list[ast.Call]]:
    """The ``print`` of the finding, and those under no ``if`` in the same loop of the same function."""
    place = plan.scene.where.get(plan.remedy)
    if place is None:
        raise Cannot("no finding of this run says where")
    code = plan.scene.code(place.file)
    found = [call for call in code.calls("print") if code.builtin(call.func)]
    found = [call for call in found if argument(call, "file") is None]
    named = [call for call in found if code.line(call) <= place.line <= code.end(call)[0]]
    if not named:
        raise Cannot("no print stands there", place.file, place.line)
    loop = _training_loop(plan, code, named[0])
    beside = [call for call in found if loop is not None and _training_loop(plan, code, call) is loop]
    plain = [call for call in beside if not any(True for _ in ifs_around(code, call, loop))]
    return code, list(dict.fromkeys([named[0], *plain]))


def _training_loop(plan: Plan, code: Code, node: ast.AST) -> ast.AST | None:
    """The loop over steps around a node, in the same function: the one the run says, else the innermost
    that holds a backward or an update.
    """
    lines = [frame.line for frame in plan.scene.updating if frame.file == str(code.path)]
    said, around = plan.scene.loop, loops_around(code, node)
    for loop in around:
        if said is not None and (said.file, said.line) == (str(code.path), code.line(loop)):
            return loop
    trains = [one for one in around if any(code.line(one) < at <= code.end(one)[0] for at in lines)]
    return trains[0] if trains else None


# -- one call ------------------------------------------------------------------------------------------------


def _put(plan: Plan, code: Code, call: ast.Call, value: int, kinds: Mapping[str, int]) -> _Put:
    """What is to be put under the ``if`` for a call, and the step it asks. Raises Cannot."""
    loop, statement, file = _training_loop(plan, code, call), code.statement_of(call), str(code.path)
    if not isinstance(statement, ast.Expr) or statement.value is not call:
        raise Cannot("what it returns is used, or other things stand in the statement", file, code.line(call))
    for inner in code.nodes(ast.Call, call):
        if inner is not call and last_name(inner.func) in ACTS | {"next"}:
            raise Cannot(f"{code.source(inner)} is done among its arguments", file, code.line(inner))
    if loop is None:
        plan.scene.callers(file, code.line(call))  # others would log less often too
    step = _step(code, call, loop, kinds[last_name(call.func)])
    if step is None:
        text = " ".join(code.source(statement).split())
        raise Cannot(
            "neither a step nor a counter of the loop is at hand", file, code.line(statement),
            write=f"count the steps, and write if step % {value} == 0: {text}",
        )  # fmt: skip
    if last_name(call.func) in _FIGURES:
        words = "the figure is made beside it: unless it is closed, pyplot keeps it"
        raise Cannot(words, file, code.line(call), write=_WRITE_FIGURE)
    if any(remainders(code, branch.test) for branch, _ in ifs_around(code, statement, loop)):
        raise Cannot.at("it stands under `if ... % N` already", code, statement, write="raise that N")
    blocks.require_movable(code, statement)
    return _Put(nodes=[statement], step=step)


def _step(code: Code, call: ast.Call, loop: ast.AST | None, position: int) -> str | None:
    """What counts the steps: given to the call itself, else the loop's own counter."""
    given = argument(call, "global_step") or argument(call, "step", position if position >= 0 else None)
    if given is not None and counts_in(code, given, loop):
        return code.source(given)
    found = counter(code, loop)
    return found.id if found is not None else None
