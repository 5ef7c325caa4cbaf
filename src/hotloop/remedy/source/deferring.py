"""Numbers that the loop reads from the device in every step, kept there until something needs them.

A sum goes on as a tensor of 64 bits, which adds as Python adds; what reads it asks for the number. A list of
losses keeps tensors, and is made a list of numbers behind the loop. Nothing else is touched: what is needed
in the step itself is said with its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import libcst as cst
import numpy as np

from hotloop.findings import Place
from hotloop.record import rows as row
from hotloop.remedy.source.code import Code, last_name
from hotloop.remedy.source.conditions import statement_at
from hotloop.remedy.source.in_loop import InLoop, Loop, each_nth
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.postponed import Postponed
from hotloop.remedy.source.scalars import Read, reading
from hotloop.remedy.source.scene import Cannot, Site

#: What must know a number now: the scaler asks whether gradients are finite.
_NECESSARY: Final = frozenset(["step", "update", "unscale_"])
_CLOCKS: Final = frozenset(["time.time", "time.perf_counter", "time.monotonic", "time.process_time"])
_NUMBERS: Final = row.SYNC_FLOAT | row.SYNC_WHOLE
_TO_HOST: Final = 2
_FACTORY: Final = re.compile(r"torch\.\w+$")
#: A place that waits in fewer of the steps than this is not told of.
_AS_OFTEN: Final = 0.5


def defer_item(plan: Plan, value: Any) -> None:
    """``total += loss.detach().double()`` for ``total += loss.item()``; where it is read ``float(total)``."""
    code, loop = _loop(plan)
    _may_run_ahead(plan, code, loop)
    reads, elsewhere = _waiting(plan, code, loop)
    place = plan.scene.where.get(plan.remedy)
    named = [r for r in reads if place is not None and code.line(r.node) <= place.line <= code.end(r.node)[0]]
    if place is not None and (place.file != str(code.path) or not named):
        raise Cannot(_why_not_there(code, loop, place), place.file, place.line)
    if not reads:
        raise Cannot(
            "no number that the training loop reads in each step was seen", str(code.path), code.line(loop)
        )
    postponed = Postponed(InLoop(code, loop), reads, plan.scene.config)
    stays = {id(read): why for read in reads if (why := postponed.why_not(read)) is not None}
    first = next((stays[id(read)] for read in named if id(read) in stays), None)
    if first is None and len(stays) == len(reads):
        first = stays[id(reads[0])]
    if first is not None:
        raise first
    postponed.write(plan)
    for read in reads:
        if id(read) in stays:
            why = stays[id(read)]
            plan.remark(f"{plan.remedy}: {code.path.name}:{code.line(read.node)} still waits: {why.why}")
    for words in elsewhere:
        plan.remark(f"{plan.remedy}: {words} still waits: it is no reading of one number in the loop itself")
    for call in code.nodes(cst.Call, loop):
        if code.qualified(call.func) in _CLOCKS:
            where = f"{code.path.name}:{code.line(call)}"
            plan.remark(f"{plan.remedy}: the clock at {where} may be read before the device is done")
            break


def _loop(plan: Plan) -> tuple[Code, Loop]:
    place = plan.scene.loop
    if place is None:
        raise Cannot("the training loop is not known")
    code = plan.scene.code(place.file)
    found: list[Loop] = [
        *(one for one in code.nodes(cst.For) if code.line(one) == place.line),
        *(one for one in code.nodes(cst.While) if code.line(one) == place.line),
    ]
    if len(found) != 1 or not isinstance(found[0].body, cst.IndentedBlock):
        raise Cannot("the training loop is no plain loop", place.file, place.line)
    return code, found[0]


def _waiting(plan: Plan, code: Code, loop: cst.CSTNode) -> tuple[list[Read], list[str]]:
    """The numbers the loop itself reads as it goes, by their order in the file; what else waits as often."""
    rows = plan.scene.process.rows
    rows = rows[rows["kind"] == row.SYNC]
    calls: dict[int, cst.Call] = {}
    flags: dict[int, set[int]] = {}
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
            if _in_the_loop(code, loop, site) and (call is None or last_name(call.func) not in _NECESSARY):
                others[f"{Path(frame.file).name}:{frame.line}"] = int(times)
        elif not each_nth(code, call, loop):
            seen = rows[rows["site"] == number]
            most = max(most, int(times))
            calls[id(call)] = call
            flags.setdefault(id(call), set()).update(map(int, np.unique(seen["flags"] & _NUMBERS)))
            numbers = seen[(seen["flags"] & _NUMBERS) != 0]
            devices.update(map(int, np.unique(numbers["extra"])))
    if len(devices) > 1:
        raise Cannot("numbers of several devices are read in it", str(code.path), code.line(loop))
    found: dict[int, Read] = {}
    for key, call in calls.items():
        kinds = flags[key]
        read = reading(code, call, next(iter(kinds)) if len(kinds) == 1 else 0)
        found.setdefault(id(read.node), read)
    often = [words for words, times in others.items() if times >= _AS_OFTEN * most]
    return sorted(found.values(), key=lambda read: code.span(read.node)[0]), often


def _why_not_there(code: Code, loop: cst.CSTNode, place: Place) -> str:
    """What the line of the finding is, where it is no reading to put off."""
    node = statement_at(code, place.line) if place.file == str(code.path) else None
    if node is None or not code.holds(loop, node) or code.function_of(node) is not code.function_of(loop):
        return "it is not read in the training loop itself"
    if each_nth(code, node, loop) is not None:
        return "it stands under `if ... % N == ...` already: raise that N"
    return "what waits there is no reading of one number"


def _call(plan: Plan, site: Site) -> cst.Call | None:
    frame = site.frames[-1]
    try:
        return plan.scene.code(frame.file).call_at(frame.line, frame.col, site.end)
    except Cannot:
        return None


def _in_the_loop(code: Code, loop: cst.CSTNode, site: Site) -> bool:
    first, last = code.line(loop), code.end(loop)[0]
    return any(f.file == str(code.path) and first < f.line <= last for f in site.frames)


# -- what a host that runs ahead may break -------------------------------------------------------------------


def _may_run_ahead(plan: Plan, code: Code, loop: cst.CSTNode) -> None:
    """Raises Cannot where the waiting is what keeps something right, or sums would not be those of Python."""
    file, line = str(code.path), code.line(loop)
    if plan.scene.device != "cuda":
        raise Cannot("the run saw no CUDA device: not every other one adds in float64", file, line)
    rows = plan.scene.process.rows
    to_host = (rows["kind"] == row.TRANSFER) & (rows["obj"] == _TO_HOST)
    late = plan.scene.sites(rows[to_host & ((rows["flags"] & row.TRANSFER_NON_BLOCKING) != 0)])
    if late:
        frame = late[0].frames[-1]
        words = "what is copied to the host without waiting has arrived because the loop waits"
        raise Cannot(words, frame.file, frame.line)
    for other, call, words in _own_order(plan):
        raise Cannot(words, str(other.path), other.line(call))
    function = code.function_of(loop)
    for call in code.nodes(cst.Call, function):
        name = last_name(call.func)
        looks = isinstance(call.func, cst.Name) and name in ("locals", "vars", "globals", "eval", "exec")
        if looks and code.function_of(call) is function:
            raise Cannot(f"{name}() may read any name", file, code.line(call))
        if name == "inference_mode" and code.holds(loop, call):
            raise Cannot("a sum of inference mode cannot go on outside of it", file, code.line(call))
    for name in ("float", "int", "map"):
        if code.assignments(loop, name):
            raise Cannot(f"{name} is a name of the script's own", file, line)
    for decorator in function.decorators if function is not None else ():
        if any(word in code.source(decorator) for word in ("compile", "script", "jit")):
            raise Cannot("the function of the loop is compiled", file, code.line(decorator))
    if function is not None:
        for call in code.nodes(cst.Call):
            given = [last_name(arg.value) for arg in call.args]
            if last_name(call.func) in ("compile", "script", "trace") and function.name.value in given:
                raise Cannot("the function of the loop is compiled", file, code.line(call))


def _own_order(plan: Plan) -> Iterator[tuple[Code, cst.CSTNode, str]]:
    """Streams and pinned buffers of the user's own: what is safe there may rest on the loop's waiting."""
    for code in plan.scene.codes("cuda."):
        for call in code.nodes(cst.Call):
            if code.source(call.func).endswith(("cuda.Stream", "cuda.stream")):
                yield code, call, "the script has streams of its own: what waits may be what orders them"
    for code in plan.scene.codes("pin_memory"):
        if "non_blocking" not in code.text.text:
            continue
        for call in code.nodes(cst.Call):
            pins = any(arg.keyword is not None and arg.keyword.value == "pin_memory" for arg in call.args)
            made = pins and _FACTORY.match(code.qualified(call.func)) is not None
            if last_name(call.func) == "pin_memory" or made:
                words = "a pinned buffer of the script's own is free again because the loop waits"
                yield code, call, words
