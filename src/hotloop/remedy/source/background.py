"""Batches that the loop makes itself, made by ``hotloop.feed.Background`` where they are the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import libcst as cst

from hotloop.remedy.source import layout
from hotloop.remedy.source.code import Code, last_name
from hotloop.remedy.source.feeds import imported
from hotloop.remedy.source.making import Making
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Cannot

_NAMES: Final = ("next_batch", "batch_ahead", "next_batch_ahead")
#: Contexts within which a thread does the same.
_ALIKE: Final = ("no_grad", "record_function", "profile")
_GAINS: Final = "a thread makes the batches: it gains where that waits, or works in numpy, torch or files"
_WRITE: Final = "make batches in a Dataset behind a DataLoader with workers"


def background_batches(plan: Plan, value: Any) -> None:
    """``next_batch = Background(lambda: get_batch("train"))`` before the loop, ``next_batch()`` in it."""
    code, outer, call, looped = _asked(plan)
    for other in plan.scene.codes("CUDAGraph"):
        raise Cannot("a CUDA graph is captured: no other thread may copy meanwhile", str(other.path))
    making = Making(plan, code, outer, call, looped=looped)
    for one in making.calls:
        for around in _withs(code, one, outer):
            words = "the batch is made within a context that holds for this thread alone"
            raise Cannot(words, str(code.path), code.line(around), write=_WRITE)
    making.require_unchanged()
    alone = making.require_alone()
    name = next((one for one in _NAMES if one not in {name.value for name in code.names()}), "")
    if not name:
        raise Cannot("no name is left for it", str(code.path), code.line(call))
    words = code.source(call)
    if looped:
        given = f"{words}.__next__{', alone=True' if alone else ''}, again=False"
        new = f"{imported(plan, code, 'Background')}({given})"
        plan.replace(code, call, new, f"{words} → {new}")
        plan.remark(_GAINS)
        return
    given = words[:-2] if not call.args and isinstance(call.func, cst.Name) else f"lambda: {words}"
    given += ", alone=True" if alone else ""
    given += "" if making.again else ", again=False"
    part = imported(plan, code, "Background")
    layout.before(plan, code, outer, [f"{name} = {part}({given})"])
    for one in making.calls:
        plan.replace(code, one, f"{name}()", f"{words} → {name}()")
    plan.remark(_GAINS)


def _asked(plan: Plan) -> tuple[Code, cst.For | cst.While, cst.Call, bool]:
    """The file, the outermost loop and the call in it that makes the batches; or the loop that goes over what
    a call makes, and True.
    """
    place = plan.scene.loop
    if place is None:
        raise Cannot("the training loop is not known")
    code = plan.scene.code(place.file)
    loops: list[cst.For | cst.While] = [*code.nodes(cst.For), *code.nodes(cst.While)]
    loops = [one for one in loops if code.line(one) == place.line]
    if len(loops) != 1:
        raise Cannot("the training loop is no plain loop", str(code.path), place.line)
    over = _over(loops[0])
    if over is not None and Making(plan, code, loops[0], over, looped=True).functions:
        return code, loops[0], over, True
    found = {code.source(call): call for call in _calls(plan, code, loops[0])}
    if len(found) != 1:
        words = "several calls of the loop may make" if found else "no call of the loop's own makes"
        raise Cannot(f"{words} the batches", str(code.path), place.line, write=_WRITE)
    outer = loops[0]
    around = code.parents.get(outer)
    while around is not None and not isinstance(around, cst.FunctionDef | cst.ClassDef):
        outer = around if isinstance(around, cst.For | cst.While) else outer
        around = code.parents.get(around)
    return code, outer, found.popitem()[1], False


def _over(loop: cst.For | cst.While) -> cst.Call | None:
    """The call whose result the loop goes over, below what counts or shows progress."""
    node = loop.iter if isinstance(loop, cst.For) else None
    while isinstance(node, cst.Call) and last_name(node.func) in ("enumerate", "tqdm") and node.args:
        node = node.args[0].value
    return node if isinstance(node, cst.Call) else None


def _calls(plan: Plan, code: Code, loop: cst.For | cst.While) -> Iterator[cst.Call]:
    """``x, y = make(...)`` and ``x, y = next(batches)`` in the loop by which the finding's line runs."""
    where = plan.scene.where.get(plan.remedy)
    for assign in code.nodes(cst.Assign, loop):
        call = assign.value
        if not isinstance(call, cst.Call) or code.function_of(assign) is not code.function_of(loop):
            continue
        making = Making(plan, code, loop, call)
        if not making.functions:
            continue
        here = where is not None and where.file == str(code.path)
        direct = here and code.line(assign) <= where.line <= code.end(assign)[0]  # type: ignore[union-attr]
        if where is None or direct or making.runs(where):
            yield call


def _withs(code: Code, call: cst.Call, outer: cst.CSTNode) -> Iterator[cst.With]:
    """The contexts around a call in the loop that hold for one thread."""
    around = code.above(call, cst.With)
    while around is not None and code.holds(outer, around):
        items = (item.item for item in around.items)
        if any(not (isinstance(one, cst.Call) and last_name(one.func) in _ALIKE) for one in items):
            yield around
        around = code.above(around, cst.With)
