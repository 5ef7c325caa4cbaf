"""Numbers that the loop reads from the device in every step, left there until something needs them.

Two shapes are written. ``total += loss.item()`` goes on as a tensor of 64 bits, which adds as Python adds;
what reads it asks for the number. ``losses.append(loss.item())`` appends tensors, and behind the loop the
list is made one of numbers. What is needed in the step itself is left to words, with its place.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from hotloop.fix import blocks
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Cannot
from hotloop.fix.waiting import is_rare, loop_of, require_may_run_ahead, waiting
from hotloop.record import rows as row
from hotloop.source.code import Code
from hotloop.source.nodes import LOOPS, Loop, last_name
from hotloop.source.scopes import Binding
from hotloop.source.tokens import atom, plain

Kind = Literal["float", "int"]

_READS: Final = frozenset(["item", "tolist", "cpu", "detach"])
_COUNTS: Final = re.compile(
    r"\d+|len\([\w.]+\)|[\w.]+\.(size\(0\)|shape\[0\]|numel\(\))|\w*(batch_size|bs|n|count)"
)
_SHOWS: Final = re.compile(r"set_postfix|set_description|add_scalar|log|print|update")
_BY_HAND: Final = "give it the number every N steps: if step % N == 0:"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Read:
    """An expression that gives one number of a tensor on the device."""

    node: ast.expr
    tensor: str
    kind: Kind


@dataclass(kw_only=True)
class _Change:
    """The edits of one name: other text for nodes, and what goes behind the loop."""

    texts: list[tuple[ast.expr, str]] = field(default_factory=list)
    whole: list[tuple[ast.AugAssign, str]] = field(default_factory=list)
    behind: str = ""


def defer_item(plan: Plan, value: Any) -> None:
    """``total += loss.detach().double()`` for ``total += loss.item()``; where it is read ``float(total)``."""
    code, loop = loop_of(plan)
    require_may_run_ahead(plan, code, loop)
    calls, elsewhere = waiting(plan, code, loop)
    place = plan.scene.where.get(plan.remedy)
    writer = _Writer(plan, code, loop, calls)
    changes: list[_Change] = []
    refused: list[Cannot] = []
    written_there = place is None
    for call, _ in calls:
        there = place is not None and code.line(call) <= place.line <= code.end(call)[0]
        try:
            changes.append(writer.deferred(call))
            written_there = written_there or there
        except Cannot as cannot:
            refused.insert(0 if there else len(refused), cannot)
    if not changes or not written_there:
        none = Cannot(
            "no number that the training loop reads in each step was seen there",
            *((place.file, place.line) if place is not None else (str(code.path), code.line(loop))),
        )
        raise refused[0] if refused else none
    for text, node in dict.fromkeys((new, node) for one in changes for node, new in (*one.texts, *one.whole)):
        plan.replace(code, node, text, f"{' '.join(code.source(node).split())} → {text}")
    for line in dict.fromkeys(one.behind for one in changes if one.behind):
        blocks.behind(plan, code, loop, [line])
        plan.remark(
            f"{plan.remedy}: each entry of the list takes 512 bytes of the device until the loop ends"
        )
    for why in refused:
        plan.remark(f"{plan.remedy}: {code.path.name}:{why.line} still waits: {why.why}")
    for words in elsewhere:
        plan.remark(f"{plan.remedy}: {words} still waits: it is no reading of one number in the loop itself")


# -- one number ----------------------------------------------------------------------------------------------


class _Writer:
    """Finds the edits that put off the numbers of one loop."""

    def __init__(self, plan: Plan, code: Code, loop: Loop, calls: list[tuple[ast.Call, int]]) -> None:
        self._plan, self._code, self._loop = plan, code, loop
        self._function = code.function_of(loop)
        self._kinds: dict[ast.expr, int] = {self._whole(call): flags for call, flags in calls}

    def deferred(self, call: ast.Call) -> _Change:
        """The edits that put off one number. Raises Cannot."""
        read = self._read(self._whole(call))
        statement = self._code.statement_of(call)
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            return self._sum(statement.target)
        given = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(given, ast.Call) and last_name(given.func) == "append" and given.args == [read.node]:
            assert isinstance(given.func, ast.Attribute)
            if isinstance(given.func.value, ast.Name):
                return self._list(given.func.value, read)
        raise self._needed(read.node, statement)

    def _whole(self, call: ast.Call) -> ast.expr:
        """The whole expression around a call that waited: ``float(loss.cpu())`` around ``loss.cpu()``."""
        node: ast.expr = call
        while True:
            above = self._code.parents[node]
            if isinstance(above, ast.Attribute) and above.attr in _READS:
                outer = self._code.parents[above]
            else:
                outer = above
            named = isinstance(outer, ast.Call) and (outer.func is above or outer.args == [node])
            converts = isinstance(outer, ast.Call) and self._code.builtin(outer.func) in ("float", "int")
            if not isinstance(outer, ast.Call) or not named or (outer is above and not converts):
                return node
            node = outer

    def _read(self, node: ast.expr) -> _Read:
        """What an expression reads. Raises Cannot where it is no single number for sure."""
        words = " ".join(self._code.source(node).split())
        known: dict[int, Kind] = {row.SYNC_FLOAT: "float", row.SYNC_WHOLE: "int"}
        kind = known.get(self._kinds.get(node, 0))
        if kind is None:
            words = "what it reads is no single number of a plain tensor, or the run is too old"
            raise Cannot.at(words, self._code, node)
        inner, converted = node, ""
        while isinstance(inner, ast.Call):
            name = self._code.builtin(inner.func)
            if name in ("float", "int") and len(inner.args) == 1:
                inner, converted = inner.args[0], name
            elif isinstance(inner.func, ast.Attribute) and inner.func.attr in _READS and not inner.args:
                inner = inner.func.value
            else:
                break
        if converted == "int" and kind == "float":
            raise Cannot.at("a broken number is made a whole one", self._code, node)
        if not converted and not words.endswith((".item()", ".tolist()")):
            raise Cannot.at(f"{words} is not read as one number", self._code, node)
        kind = "float" if converted == "float" else kind
        text = self._code.source(inner)
        text = f"({text})" if "\n" in text or not plain(inner) else text
        return _Read(node=node, tensor=text, kind=kind)

    def _needed(self, node: ast.expr, statement: ast.stmt | None) -> Cannot:
        """Why a number cannot wait where it is read."""
        code, words = self._code, " ".join(self._code.source(node).split())
        if isinstance(statement, ast.AugAssign):
            target = code.source(statement.target)
            return Cannot.at(f"{target} may be read by others while the loop goes on", code, node)
        call = code.above(node, ast.Call)
        if call is None:
            return Cannot.at(f"{words} is read in every step", code, node)
        write = _BY_HAND if _SHOWS.match(last_name(call.func)) else ""
        return Cannot.at(
            f"{code.source(call.func)}() is given {words} in every step", code, node, write=write
        )

    def _own(self, name: ast.Name) -> list[Binding]:
        """All bindings of a name, in the loop's own function. Raises Cannot."""
        found = self._code.bindings(name, name.id)
        home = self._function or self._code.module
        if any(isinstance(one.node, ast.arg) or one.scope.node is not home for one in found):
            raise Cannot.at(f"{name.id} is no name of the loop's own", self._code, name)
        return found

    # -- a sum -------------------------------------------------------------------------------------------

    def _sum(self, name: ast.Name) -> _Change:
        """``total += loss.item() * n``: the tensor in each sum, the number in each read. Raises Cannot."""
        code, change = self._code, _Change()
        kinds: set[Kind] = set()
        last: list[ast.AugAssign] = []  # ``total /= len(loader)`` behind the loop
        for one in self._own(name):
            statement = code.statement_of(one.node)
            if isinstance(statement, ast.AugAssign) and self._is_behind(statement):
                last.append(statement)
            elif isinstance(statement, ast.AugAssign):
                node, text, kind = self._added(statement)
                change.texts.append((node, text))
                kinds.add(kind)
            elif not isinstance(one.value, ast.Constant) or type(one.value.value) not in (int, float):
                raise Cannot.at(f"{name.id} is also bound here", code, one.node)
            elif code.holds(self._loop, one.node) and not is_rare(code, one.node, self._loop):
                raise Cannot.at(f"{name.id} is begun anew in every step", code, one.node)
            elif type(one.value.value) is float:
                kinds.add("float")
        if len(kinds) != 1:
            raise Cannot.at(f"whole and broken numbers are added to {name.id}", code, name)
        kind = kinds.pop()
        for each in last:
            symbol = code.text.text[code.span(each.target)[1] : code.span(each.value)[0]].partition("=")[0]
            value = atom(each.value, code.source(each.value))
            change.whole.append((each, f"{name.id} = {kind}({name.id}) {symbol.strip()} {value}"))
        for read in code.references(self._own(name)[0]):
            if isinstance(code.parents[read], ast.AugAssign) and isinstance(read.ctx, ast.Store):
                continue
            before = [one for one in last if code.span(one)[1] <= code.span(read)[0]]
            if any(code.holds(code.parents[one], read) for one in before):
                continue  # it is a number again
            if code.function_of(read) is not self._function or code.above(read, ast.Lambda) is not None:
                raise Cannot.at(f"{name.id} is read in another function", code, read)
            ends = isinstance(code.statement_of(read), ast.Return | ast.Raise)
            in_step = any(code.holds(one, read) for one in self._loop.body)
            if in_step and not ends and not is_rare(code, read, self._loop):
                raise Cannot.at(f"{name.id} is read in every step", code, read)
            above = code.parents[read]
            if isinstance(above, ast.FormattedValue) and "=" in code.source(above).partition(":")[0]:
                raise Cannot.at(f"{name.id} is shown with its name", code, read)
            if not (isinstance(above, ast.Call) and code.builtin(above.func) == kind):
                change.texts.append((read, f"{kind}({name.id})"))
        return change

    def _is_behind(self, statement: ast.stmt) -> bool:
        """Whether a statement stands behind the loop, in its block or one around it."""
        code = self._code
        behind = code.span(statement)[0] >= code.span(self._loop)[1]
        return behind and code.holds(code.parents[statement], self._loop)

    def _added(self, statement: ast.AugAssign) -> tuple[ast.expr, str, Kind]:
        """The read of a sum, the tensor in its place, and the kind of number. Raises Cannot."""
        code, node = self._code, statement.value
        if not code.holds(self._loop, statement) or not isinstance(statement.op, ast.Add | ast.Sub):
            raise Cannot.at(f"{code.source(statement.target)} is also bound here", code, statement)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            sides = (node.left, node.right)
            reads = [one for one in sides if one in self._kinds]
            numbers = [one for one in sides if one not in self._kinds]
            if len(reads) != 1 or not _COUNTS.fullmatch(code.source(numbers[0])):
                raise Cannot.at("the arithmetic would round otherwise, or has no plain number", code, node)
            node = reads[0]
        if node not in self._kinds:
            raise Cannot.at("the arithmetic would round otherwise, or has no plain number", code, node)
        read = self._read(node)
        return node, self._kept(read), read.kind

    @staticmethod
    def _kept(read: _Read) -> str:
        """The tensor in the place of its number, of 64 bits."""
        if read.kind == "int":
            return read.tensor if read.tensor.endswith(".sum()") else f"{read.tensor}.long()"
        return f"{read.tensor}.detach().double()"

    # -- a list ------------------------------------------------------------------------------------------

    def _list(self, name: ast.Name, read: _Read) -> _Change:
        """``losses.append(loss.item())``: tensors in the loop, numbers behind it. Raises Cannot."""
        code, loop = self._code, self._loop
        for one in self._own(name):
            empty = isinstance(one.value, ast.List) and not one.value.elts
            if not empty or code.holds(loop, one.node):
                raise Cannot.at(f"{name.id} is also bound here", code, one.node)
        if loop.orelse or any(isinstance(one, ast.Try) for one in code.ancestors(loop)):
            raise Cannot.at("an error, or the loop's else, would find tensors in it", code, name)
        if isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant):
            raise Cannot.at("the loop has no end of its own", code, name)
        start, end = code.span(loop)
        around = [one for one in code.ancestors(loop) if isinstance(one, LOOPS)]
        for other in code.references(self._own(name)[0]):
            if code.function_of(other) is not self._function:
                raise Cannot.at(f"{name.id} is read in another function", code, other)
            above = code.parents[other]
            call = code.parents[above]
            appends = getattr(above, "attr", "") == "append" and isinstance(call, ast.Call)
            if code.holds(loop, other) and not appends:
                raise Cannot.at(f"{name.id} is read in the loop", code, other)
            before = code.span(other)[0] < start and not any(code.holds(one, other) for one in around)
            handled = any(isinstance(one, ast.ExceptHandler) for one in code.ancestors(other))
            if before or (handled and code.span(other)[0] >= end):
                raise Cannot.at(f"{name.id} may be read by others while the loop goes on", code, other)
        text = f"{read.tensor}.clone()" if read.kind == "int" else f"{read.tensor}.detach().clone()"
        behind = f"{name.id}[:] = map({read.kind}, {name.id})"
        return _Change(texts=[(read.node, text)], behind=behind)
