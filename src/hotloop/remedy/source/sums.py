"""Sums that go on as tensors of 64 bits: ``total += loss.item()``, and every place that reads the total."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from hotloop.remedy.source.in_loop import InLoop
from hotloop.remedy.source.kept import Kept
from hotloop.remedy.source.scalars import Arithmetic, Kind, literal_number

_ADDS: Final = (cst.AddAssign, cst.SubtractAssign, cst.MultiplyAssign)
_OPERATOR: Final = re.compile(r"[ \t]*(\*\*|//|<<|>>|[-+*/%@&|^])=[ \t]*")
_BARE: Final = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.Integer, cst.Float)
_SAME_SHOWN: Final = re.compile(r"[efgEFG%]$")


def as_sum(view: InLoop, values: Arithmetic, name: str) -> Kept:
    """A number to begin with, added to in the loop and read as a number. Raises Cannot."""
    return _Sum(view, values, name).kept


class _Sum:
    def __init__(self, view: InLoop, values: Arithmetic, name: str) -> None:
        self.kept = Kept()
        self._view, self._values, self._name = view, values, name
        self._added: dict[cst.CSTNode, cst.BaseExpression] = {}
        starts, others = self._sorted()
        self._put_off(starts)
        self._from_outside(others)
        for bound in others:
            self._changed(bound)
        whole_start = self.kept.kind == "float" and "int" in starts
        for node in view.accesses(name):
            if not any(view.code.holds(statement, node) for statement in self._added):
                read(view, self.kept, name, node)
                if whole_start and self.kept.texts[-1:] == [(node, f"float({name})")]:
                    self._begun(node)

    def _sorted(self) -> tuple[set[Kind], list[cst.CSTNode]]:
        """The kinds it begins with, and bindings that neither begin it nor add to it in the loop."""
        view, starts, others = self._view, set[Kind](), []
        for bound in view.bindings(self._name):
            statement, value = view.small(bound), view.given(bound)
            kind = None if view.grows(bound) else literal_number(value)
            if kind is not None:
                starts.add(kind)
            elif view.steps(bound) and self._adds(statement):
                self._added[statement] = value
            else:
                others.append(bound)
        if not starts:
            words = f"{self._name} does not begin as a plain number"
            raise view.cannot(words, view.bindings(self._name)[0])
        return starts, others

    def _adds(self, statement: cst.CSTNode) -> bool:
        if isinstance(statement, cst.AugAssign):
            return isinstance(statement.operator, _ADDS) and self._view.rare(statement) is None
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            names = {one.value for one in self._view.code.nodes(cst.Name, statement.value)}
            return self._name in names and self._values.reads_in(statement.value)
        return False

    def _put_off(self, starts: set[Kind]) -> None:
        view, values, kept = self._view, self._values, self.kept
        kinds = {kind for value in self._added.values() for kind in values.kinds(value, self._name)}
        kept.kind = "float" if "float" in kinds | starts else "int"
        for statement, value in self._added.items():
            if kept.kind == "int" and not values.whole(value):
                raise view.cannot(f"{self._name} may not stay a whole number", statement)
            if kept.kind == "float" and "int" in kinds & starts:
                words = f"{self._name} begins whole, and whole and broken numbers are added to it"
                raise view.cannot(words, statement)
            kept.texts += values.written(value, kept.kind)
            kept.along |= values.held_in(value)

    # -- what else binds it ------------------------------------------------------------------------------

    def _from_outside(self, others: list[cst.CSTNode]) -> None:
        """Raises Cannot where what is bound beside the sum may come into it and be no plain number."""
        view = self._view
        anew, end = self._begins_beside(), view.code.span(view.outer_loop() or view.loop)[1]
        for bound in others:
            if (anew and not view.steps(bound)) or view.code.span(bound)[0] >= end:
                continue
            if not self._plain(view.given(bound)):
                words = f"what {self._name} is set to here is not known to be a plain number"
                raise view.cannot(words, bound)

    def _plain(self, value: cst.BaseExpression) -> bool:
        if isinstance(value, cst.Name) and value.value == self._name:
            return True
        if isinstance(value, cst.BinaryOperation):
            return self._plain(value.left) and self._plain(value.right)
        return self._values.number(value) is not None

    def _begins_beside(self) -> bool:
        """Whether the loop always begins with a plain start: one that stands before it in its block."""
        view, code = self._view, self._view.code
        block, begin = code.parents[view.loop], code.span(view.loop)[0]
        earlier = [one for one in view.bindings(self._name) if code.span(one)[0] < begin]
        last = earlier[-1] if earlier else None
        statement = code.statement_of(last) if last is not None else None
        if last is None or statement is None or code.parents.get(statement) is not block:
            return False
        return not view.grows(last) and literal_number(view.given(last)) is not None

    def _changed(self, bound: cst.CSTNode) -> None:
        """``total /= n`` where ``total`` may be a tensor: ``total = float(total) / n``."""
        view, code = self._view, self._view.code
        statement, inside = view.small(bound), code.holds(view.loop, bound)
        if inside and view.rare(bound) is None:
            raise view.cannot(f"{self._name} is changed in every step", bound)
        if not isinstance(statement, cst.AugAssign) or (not inside and not view.may_be_kept(bound)):
            return
        found = _OPERATOR.match(code.text.text, code.span(bound)[1])
        if found is None:
            raise view.cannot(f"{self._name} is changed in a way that cannot be followed", bound)
        value, number = statement.value, f"{self.kept.kind}({self._name})"
        bare = isinstance(value, _BARE) or bool(value.lpar)
        old = " ".join(code.source(statement).split())
        says = f"{old} → {self._name} = {number} {found[1]} {' '.join(code.source(value).split())}"
        new = f" = {number} {found[1]} {'' if bare else '('}"
        self.kept.spans.append((*found.span(), new, says))
        if not bare:
            self.kept.spans.append((code.span(value)[1], code.span(value)[1], ")", ""))

    # -- a whole 0 ---------------------------------------------------------------------------------------

    def _begun(self, node: cst.CSTNode) -> None:
        """Raises Cannot where a whole 0 could be read that would come out as 0.0."""
        view, code, name = self._view, self._view.code, self._name
        if _same_of_zero(code.parents[node]):
            return
        at = code.span(node)[0]
        again = [
            code.span(one)[0]
            for one in view.bindings(name)
            if view.steps(one) and view.small(one) not in self._added
        ]
        if view.steps(node):
            every = [code.span(one)[1] for one in self._added if self._in_each_step(one)]
            if any(end <= at and not any(end <= one < at for one in again) for end in every):
                return
        elif at > code.span(view.loop)[1] and not again:
            self.kept.remarks.append(f"after a loop without a step {name} is read as 0.0, not 0")
            return
        words = f"{name} begins as a whole number, and may be read before it is added to: begin with 0.0"
        raise view.cannot(words, node)

    def _in_each_step(self, statement: cst.CSTNode) -> bool:
        """Whether a statement of the loop stands under nothing but ``with``."""
        above: cst.CSTNode | None = self._view.code.parents[statement]
        while isinstance(above, cst.SimpleStatementLine | cst.IndentedBlock | cst.With):
            if above is self._view.loop.body:
                return True
            above = self._view.code.parents.get(above)
        return False


def read(view: InLoop, kept: Kept, name: str, node: cst.CSTNode) -> None:
    """Write ``float(total)`` where a name that may be a tensor is read. Raises Cannot."""
    code, loop = view.code, view.loop
    if view.steps(node):
        view.may_wait(name, node)
    elif isinstance(loop, cst.While) and code.holds(loop.test, node):
        raise view.cannot(f"{name} is read in every step", node)
    elif not (loop.orelse is not None and code.holds(loop.orelse, node)) and not view.may_be_kept(node):
        return
    above, shown, later = (
        code.parents[node],
        code.above(node, cst.FormattedStringExpression),
        code.above(node, cst.Lambda),
    )
    if isinstance(above, cst.Del) or (shown is not None and shown.equal is not None):
        raise view.cannot(f"{name} is read in a way that would show", node)
    if later is not None and code.holds(view.small(node), later):
        raise view.cannot(f"{name} may be read later", node)
    if not _is_asked(view, above):
        kept.texts.append((node, f"{kept.kind}({name})"))


def _is_asked(view: InLoop, above: cst.CSTNode) -> bool:
    """Whether the number is asked for there already: ``float(total)``."""
    call = view.code.parents[above] if isinstance(above, cst.Arg) else None
    if not isinstance(call, cst.Call) or len(call.args) != 1 or not isinstance(call.func, cst.Name):
        return False
    return call.func.value in ("float", "int")


def _same_of_zero(above: cst.CSTNode) -> bool:
    """Whether 0 and 0.0 come to the same there: divided, or shown with a format of broken numbers."""
    if isinstance(above, cst.BinaryOperation) and isinstance(above.operator, cst.Divide):
        return True
    spec = above.format_spec if isinstance(above, cst.FormattedStringExpression) else None
    last = spec[-1] if spec else None
    return isinstance(last, cst.FormattedStringText) and bool(_SAME_SHOWN.search(last.value))
