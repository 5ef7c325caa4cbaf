"""Statements put under ``if step % N == 0``: calls of a logger or the collector, what serves a viewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import libcst as cst
import numpy as np

from hotloop.findings import Place
from hotloop.record import rows as row
from hotloop.remedy.source import layout
from hotloop.remedy.source.callers import only_caller
from hotloop.remedy.source.code import Code, argument, last_name
from hotloop.remedy.source.conditions import counter, counts_in, ifs_around, remainders, statement_at
from hotloop.remedy.source.drawing import ACTS, with_its_making
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Cannot, Site

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
_VIEWER_STEPS: Final = 50
#: Calls that run in fewer of the steps, or less often beside the costliest one, are left as they are.
_AS_OFTEN: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class _Put:
    """Neighbours in one block, to be put under one ``if``."""

    nodes: list[cst.CSTNode]
    step: str


def logging(plan: Plan, value: Any) -> None:
    """``if step % N == 0:`` around what logs numbers as often as the line of the finding."""
    _logged(plan, int(value), _NUMBERS, *_calls(plan, _NUMBERS))


def images(plan: Plan, value: Any) -> None:
    """The same around what logs pictures, with the making of a figure."""
    _logged(plan, int(value), _PICTURES, *_calls(plan, _PICTURES))


def prints(plan: Plan, value: Any) -> None:
    """The same around the ``print`` that the finding names, and those that come with every step beside it."""
    _logged(plan, int(value), _PRINTS, *_printing(plan))


def viewer(plan: Plan, value: Any) -> None:
    """``if step % 50 == 0:`` around the statement of the loop that serves the viewer."""
    place = plan.scene.where.get(plan.remedy)
    if place is None:
        raise Cannot("no finding of this run says where")
    code, node, loop = _in_the_loop(plan, place)
    statement, _ = _alone(code, node, loop)
    first, last = code.line(statement), code.end(statement)[0]
    if any(f.file == str(code.path) and first <= f.line <= last for f in plan.scene.updating):
        raise Cannot("the same statement trains", str(code.path), first)
    _may_be_put(code, statement, loop)
    found = counter(code, loop)
    if found is None:
        raise _no_step(code, statement, _VIEWER_STEPS)
    layout.wrap(plan, code, [statement], f"if {found.value} % {_VIEWER_STEPS} == 0:")


def collecting(plan: Plan, value: Any) -> None:
    """``if step % N == 0:`` around the ``gc.collect()`` that the finding names."""
    place = plan.scene.where.get(plan.remedy)
    if place is None:
        raise Cannot("no finding of this run says where")
    code = plan.scene.code(place.file)
    calls = [call for call in code.nodes(cst.Call) if code.line(call) == place.line]
    calls = [call for call in calls if last_name(call.func) == "collect"]
    if len(calls) != 1:
        raise Cannot("no call of the collector stands there", place.file, place.line)
    if calls[0].args and code.source(calls[0].args[0].value) != "2":
        raise Cannot("it looks at young objects only, which is quick", place.file, place.line)
    loop = _training_loop(plan, code, calls[0])
    statement, _ = _alone(code, calls[0], loop)
    if "gc.disable()" in code.text.text:
        words = "gc.disable() stands here too: nothing else frees its garbage"
        write = f"where there is room for the garbage of {value} steps: if step % {value} == 0: gc.collect()"
        raise Cannot(words, place.file, place.line, write=write)
    _may_be_put(code, statement, loop)
    found = counter(code, loop) if loop is not None else None
    if found is None:
        raise _no_step(code, statement, int(value))
    layout.wrap(plan, code, [statement], f"if {found.value} % {value} == 0:")


def _in_the_loop(plan: Plan, place: Place) -> tuple[Code, cst.CSTNode, cst.CSTNode]:
    """The statement of the training loop from which a line was reached, and the loop."""
    lines = [(place.file, place.line)]
    for frames in plan.scene.through(place)[:1]:
        above = [(frame.file, frame.line) for frame in frames]
        lines += reversed(above[: above.index(lines[0])])
    for file, line in lines:
        code = plan.scene.code(file)
        node = statement_at(code, line)
        loop = _training_loop(plan, code, node) if node is not None else None
        if node is not None and loop is not None:
            return code, node, loop
    raise Cannot("it stands in no loop that trains", place.file, place.line)


# -- calls of a logger ---------------------------------------------------------------------------------------


def _logged(plan: Plan, value: int, kinds: Mapping[str, int], code: Code, calls: list[cst.Call]) -> None:
    puts: dict[cst.CSTNode, str] = {}
    for number, call in enumerate(calls):
        try:
            for node, step in _put(plan, code, call, value, kinds):
                puts.setdefault(node, step)
        except Cannot as cannot:
            if number == 0:
                raise
            plan.remark(f"{plan.remedy}: {code.path.name}:{code.line(call)} stays as it is: {cannot.why}")
    found = _neighbours(code, _outermost(code, puts))
    place = plan.scene.where.get(plan.remedy)
    lines = [range(code.line(put.nodes[0]), code.end(put.nodes[-1])[0] + 1) for put in found]
    if place is not None and not any(place.line in one for one in lines):
        raise Cannot("what is logged beside it does not belong to it", place.file, place.line)
    for put in found:
        layout.wrap(plan, code, put.nodes, f"if {put.step} % {value} == 0:")


def _calls(plan: Plan, kinds: Mapping[str, int]) -> tuple[Code, list[cst.Call]]:
    """The call the finding names, or the most frequent one of the function it names; and those of the same
    loop that ran as often.
    """
    place = plan.scene.where.get(plan.remedy)
    seen = _sites(plan)
    named: list[tuple[Site, int, Code, cst.Call]] = []
    beside: list[tuple[Site, int, Code, cst.Call]] = []
    for site, count in seen:
        frame = site.frames[-1]
        there = place is None or (frame.file, frame.line) == (place.file, place.line)
        if not there and place is not None and (frame.file, frame.func) != (place.file, place.function):
            continue
        code = plan.scene.code(frame.file)
        call = code.call_at(frame.line, frame.col, site.end)
        if call is not None and last_name(call.func) in kinds:
            (named if there else beside).append((site, count, code, call))
    if not named and not beside:
        file, line = (place.file, place.line) if place is not None else ("", 0)
        raise Cannot("no call of a logger stands there that the run saw", file, line)
    site, count, code, first = (named or beside)[0]
    found = [first]
    loop = _training_loop(plan, code, first)
    num_steps = int(np.count_nonzero(plan.scene.process.rows["kind"] == row.BACKWARD)) or count
    for other, times in seen:
        frame = other.frames[-1]
        if times >= _AS_OFTEN * min(count, num_steps) and frame.function == site.frames[-1].function:
            call = code.call_at(frame.line, frame.col, other.end)
            if call is None or call in found or last_name(call.func) not in kinds:
                continue
            if _training_loop(plan, code, call) is loop:
                found.append(call)
    return code, found


def _printing(plan: Plan) -> tuple[Code, list[cst.Call]]:
    """The ``print`` of the finding, and those under no ``if`` in the same loop of the same function."""
    place = plan.scene.where.get(plan.remedy)
    if place is None:
        raise Cannot("no finding of this run says where")
    code = plan.scene.code(place.file)
    found = [call for call in code.nodes(cst.Call) if _is_print(code, call)]
    named = [call for call in found if code.line(call) <= place.line <= code.end(call)[0]]
    if not named:
        raise Cannot("no print stands there", place.file, place.line)
    loop = _training_loop(plan, code, named[0])
    if loop is None:
        return code, named[:1]
    beside = [call for call in found if _training_loop(plan, code, call) is loop and call not in named]
    return code, [*named, *(call for call in beside if not any(True for _ in ifs_around(code, call, loop)))]


def _is_print(code: Code, call: cst.Call) -> bool:
    own = isinstance(call.func, cst.Name) and call.func.value == "print" and not code.global_names("print")
    return own and argument(call, "file") is None


def _sites(plan: Plan) -> list[tuple[Site, int]]:
    """Where something was logged and how often, the most frequent first."""
    rows = plan.scene.process.rows
    numbers, counts = np.unique(rows["site"][rows["kind"] == row.LOG], return_counts=True)
    pairs = sorted(zip(numbers, counts, strict=True), key=lambda pair: -int(pair[1]))
    found = ((plan.scene.site(int(number)), int(count)) for number, count in pairs)
    return [(site, count) for site, count in found if site is not None]


def _put(
    plan: Plan, code: Code, call: cst.Call, value: int, kinds: Mapping[str, int]
) -> list[tuple[cst.CSTNode, str]]:
    """What is to be put under the ``if`` for a call, and the step it asks. Raises Cannot."""
    loop = _training_loop(plan, code, call)
    statement, block = _alone(code, call, loop)
    for inner in code.nodes(cst.Call, call):
        if inner is not call and last_name(inner.func) in ACTS:
            words = f"{code.source(inner)} is done among its arguments"
            raise Cannot(words, str(code.path), code.line(inner))
    if loop is None:
        _called_from_one_place(plan, code, call)  # others would log less often too
    step = _step(code, call, loop, kinds[last_name(call.func)])
    if step is None:
        raise _no_step(code, statement, value)
    nodes = [statement]
    if kinds is _PICTURES and block is not None:
        nodes = with_its_making(code, call, statement, block)
    for node in nodes:
        _may_be_put(code, node, loop)
    return [(node, step) for node in nodes]


def _called_from_one_place(plan: Plan, code: Code, node: cst.CSTNode) -> None:
    """Raises Cannot where a function around a call, or one on the way to it, has several callers."""
    seen: set[cst.CSTNode] = set()
    function = code.function_of(node)
    while function is not None and function not in seen and _training_loop(plan, code, node) is None:
        seen.add(function)
        caller = only_caller(plan.scene, code, function)
        if caller is None:
            return
        code, node = caller
        function = code.function_of(node)


def _step(code: Code, call: cst.Call, loop: cst.CSTNode | None, position: int) -> str | None:
    """What counts the steps: given to the call itself, else the loop's own counter."""
    given = argument(call, "global_step") or argument(call, "step", position if position >= 0 else None)
    if given is not None and counts_in(code, given, loop):
        return code.source(given)
    found = counter(code, loop) if loop is not None else None
    return found.value if found is not None else None


def _alone(
    code: Code, node: cst.CSTNode, loop: cst.CSTNode | None
) -> tuple[cst.CSTNode, Sequence[cst.CSTNode] | None]:
    """The statement that is nothing but a call, and its block; or the ``for`` or ``if`` that has it on its
    own line. Raises Cannot.
    """
    file, line = str(code.path), code.line(node)
    statement = (
        node if isinstance(node, cst.SimpleStatementLine) else code.above(node, cst.SimpleStatementLine)
    )
    suite = code.above(node, cst.SimpleStatementSuite)
    if statement is None and suite is not None and len(suite.body) == 1:
        owner = code.parents[suite]
        whole = isinstance(owner, cst.For | cst.If) and owner is not loop and owner.orelse is None
        whole = whole and bool(_block(code, owner))
        if whole and _is_call(suite.body[0], node):
            return owner, None
    if not isinstance(statement, cst.SimpleStatementLine):
        raise Cannot("it is no statement of its own", file, line)
    if len(statement.body) != 1 or not _is_call(statement.body[0], node):
        raise Cannot("what it returns is used, or other things stand in the statement", file, line)
    return statement, _block(code, statement)


def _block(code: Code, node: cst.CSTNode) -> Sequence[cst.CSTNode]:
    """The statements that one stands among; none for an ``elif``."""
    above = code.parents[node]
    return above.body if isinstance(above, cst.IndentedBlock | cst.Module) else ()


def _is_call(statement: cst.CSTNode, node: cst.CSTNode) -> bool:
    if not isinstance(statement, cst.Expr) or not isinstance(statement.value, cst.Call):
        return False
    return statement.value is node or not isinstance(node, cst.Call)


def _may_be_put(code: Code, node: cst.CSTNode, loop: cst.CSTNode | None) -> None:
    """Raises Cannot where a statement is done each Nth time already, or cannot be indented."""
    file, line = str(code.path), code.line(node)
    if any(remainders(code, branch.test) for branch, _ in ifs_around(code, node, loop)):
        raise Cannot("it stands under `if ... % N` already", file, line, write="raise that N")
    if any(True for _ in code.nodes(cst.NamedExpr, node)):
        raise Cannot("it gives a name a value", file, line)
    for kind in (cst.SimpleString, cst.FormattedString):
        if any("\n" in code.source(text) for text in code.nodes(kind, node)):
            raise Cannot("a text of several lines stands in it", file, line)


def _no_step(code: Code, node: cst.CSTNode, value: int) -> Cannot:
    text = " ".join(code.source(node).split())
    return Cannot(
        "neither a step nor a counter of the loop is at hand",
        str(code.path),
        code.line(node),
        write=f"count the steps, and write if step % {value} == 0: {text}",
    )


def _training_loop(plan: Plan, code: Code, node: cst.CSTNode) -> cst.CSTNode | None:
    """The loop over steps around a node, in the same function: the one the run says, else the innermost
    that holds a backward or an update.
    """
    lines = [frame.line for frame in plan.scene.updating if frame.file == str(code.path)]
    said = plan.scene.loop
    found: list[cst.CSTNode] = []
    inner, outer = node, code.parents.get(node)
    while outer is not None and not isinstance(outer, cst.FunctionDef | cst.ClassDef):
        if isinstance(outer, cst.For | cst.While) and inner is outer.body:
            first, last = code.line(outer), code.end(outer)[0]
            if said is not None and (said.file, said.line) == (str(code.path), first):
                return outer
            if any(first < line <= last for line in lines):
                found.append(outer)
        inner, outer = outer, code.parents.get(outer)
    return found[0] if found else None


# -- what goes under one if ----------------------------------------------------------------------------------


def _outermost(code: Code, puts: Mapping[cst.CSTNode, str]) -> dict[cst.CSTNode, str]:
    """A loop that does nothing but log is put under the ``if`` as a whole."""
    found = dict(puts)
    while True:
        for node, step in found.items():
            above = code.parents[node]
            owner = code.parents.get(above)
            body = _block(code, node)
            whole = bool(body) and all(found.get(one) == step for one in body)
            bare = isinstance(owner, cst.If | cst.For) and owner.body is above and owner.orelse is None
            if whole and bare and owner is not None and _leads_to_a_loop(code, owner, found, step):
                for one in body:
                    del found[one]
                found[owner] = step
                break
        else:
            return found


def _leads_to_a_loop(code: Code, node: cst.CSTNode, found: Mapping[cst.CSTNode, str], step: str) -> bool:
    """Whether a node is a loop of its own over things to log, or all that stands in one."""
    if isinstance(node, cst.For):
        names = [one.value for one in code.nodes(cst.Name, node.target)]
        trains = any(last_name(call.func) == "step" for call in code.nodes(cst.Call, node))
        return step.partition(".")[0] not in names and not trains
    body = _block(code, node)
    owner = code.parents.get(code.parents[node]) if body else None
    others = [one for one in body if one is not node]
    if not isinstance(owner, cst.For) or owner.orelse is not None:
        return False
    return all(found.get(one) == step for one in others) and _leads_to_a_loop(code, owner, found, step)


def _neighbours(code: Code, puts: Mapping[cst.CSTNode, str]) -> list[_Put]:
    """Statements that follow each other with one step, together."""
    found: list[_Put] = []
    for node in sorted(puts, key=lambda one: code.span(one)[0]):
        block = _block(code, node)
        last = found[-1] if found else None
        near = last is not None and last.step == puts[node] and last.nodes[-1] in block
        if last is not None and near and block.index(node) == block.index(last.nodes[-1]) + 1:
            last.nodes.append(node)
            continue
        found.append(_Put(nodes=[node], step=puts[node]))
    return found
