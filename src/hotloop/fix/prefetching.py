"""The training loop put behind ``hotloop.feed.DevicePrefetcher``, where all of a batch goes to the device.

What the loop does with a batch is not read: where it needs one on the host the trained copy fails.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from hotloop.fix.calls import sites_of
from hotloop.fix.feeds import imported
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Cannot
from hotloop.fix.waiting import loop_of
from hotloop.record import rows as row
from hotloop.source.code import Code
from hotloop.source.nodes import argument, last_name, root_of, targets_of, text_of

#: What hands on one item of its first argument for each of its own.
_AROUND: Final = frozenset(["enumerate", "tqdm"])
#: What a name may not stand for: taken on between loops, or shown as it goes.
_PASSES: Final = frozenset(["iter", "zip", "islice", "chain", "cycle", "map", "filter", *_AROUND])


def device_prefetch(plan: Plan, value: Any) -> None:
    """``for batch in DevicePrefetcher(loader, device)``; the ``.to(device)`` behind it then costs nothing."""
    code, loop = loop_of(plan)
    place = str(code.path), code.line(loop)
    if not isinstance(loop, ast.For):
        raise Cannot("the training loop is no plain for loop", *place)
    head = range(loop.lineno, code.line(loop.body[0]))
    fetched = [site.frames[-1] for site in sites_of(plan, row.FETCH)]
    if not any(frame.file == str(code.path) and frame.line in head for frame in fetched):
        raise Cannot("the training loop does not ask the loader itself", *place)
    given, device = _over(code, loop), _one_device(plan, code, loop)
    words = code.source(given)
    if f"{words}.state_dict" in code.text.text:
        raise Cannot("the loader's state would be that of batches read ahead", *place)
    new = f"{imported(plan, code, 'DevicePrefetcher')}({words}, {device})"
    plan.replace(code, given, new, f"{words} → {new}")
    built = plan.scene.loaders
    if built and not plan.settings.get("pin_memory", built[0].settings.get("pin_memory")):
        plan.remark("only batches that are pinned are copied while a step computes: add pin-memory")
    if built and not plan.settings.get("num_workers", built[0].settings.get("num_workers")):
        plan.remark(
            "without workers the next batches are made before the step: what dataset and loop draw from one "
            "generator comes in another order"
        )


def _over(code: Code, loop: ast.For) -> ast.expr:
    """What a loop goes over, below what counts or shows progress. Raises Cannot."""
    node = loop.iter
    while isinstance(node, ast.Call) and node.args and last_name(node.func) in _AROUND:
        node = node.args[0]
    if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(root_of(node), ast.Name):
        words = f"the loop goes over {code.source(node)}, not over a name"
        raise Cannot(words, str(code.path), code.line(loop))
    for one in code.bindings(node, node.id) if isinstance(node, ast.Name) else ():
        if isinstance(one.value, ast.Call) and last_name(one.value.func) in _PASSES:
            raise Cannot(f"{one.name} is no loader, but goes over one", str(code.path), code.line(one.node))
    return node


def _one_device(plan: Plan, code: Code, loop: ast.For) -> str:
    """The device that the calls in the loop copy batches to, as they spell it. Raises Cannot."""
    rows = plan.scene.process.rows
    found: dict[str, ast.Call] = {}
    for site in plan.scene.sites(rows[(rows["kind"] == row.TRANSFER) & (rows["obj"] == 1)]):
        frame = site.frames[-1]
        call = code.call_at(frame.line, frame.col, site.end) if frame.file == str(code.path) else None
        if call is not None and code.holds(loop, call) and _device(code, call):
            found[_device(code, call)] = call
    if len(found) != 1:
        words = "the loop copies to several devices, or spells one in several ways"
        none = "no .to() or .cuda() in the training loop copied a batch to a device"
        raise Cannot(words if found else none, str(code.path), code.line(loop))
    words, call = next(iter(found.items()))
    node = argument(call, "device", 0)
    if node is None or text_of(node) is not None:
        return words
    set_here = [last_name(one) for inner in code.under(loop) for one in targets_of(inner)]
    if not isinstance(node, ast.Name | ast.Attribute) or last_name(node) in set_here:
        why = f"the device is {words}, no name that is there before the loop"
        raise Cannot(why, str(code.path), code.line(call))
    return words


def _device(code: Code, call: ast.Call) -> str:
    """The device that ``.to()`` or ``.cuda()`` copies to; "" for any other call."""
    node = argument(call, "device", 0)
    if node is None:
        return '"cuda"' if last_name(call.func) == "cuda" else ""
    return code.source(node) if last_name(call.func) in ("to", "cuda") else ""
