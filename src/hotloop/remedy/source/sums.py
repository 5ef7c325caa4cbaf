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
        self._anew = self._begins_beside()
        kinds = {id(bound): self._kind_of(bound) for bound in others}
        self._odd = [bound for bound in others if kinds[id(bound)] not in ("int", self.kept.kind)]
        self._may_be_whole = self.kept.kind == "float" and "int" in starts | set(kinds.values())
        self._from_outside()
        for bound in others:
            self._changed(bound)
        for node in view.accesses(name):
            adds = any(view.code.holds(statement, node) for statement in self._added)
            if not adds and is_read(view, name, node):
                self._read(node)

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

    def _kind_of(self, bound: cst.CSTNode) -> Kind | None:
        """The kind of number that a binding beside the sum leaves, None where it may be anything."""
        statement, value = self._view.small(bound), self._view.given(bound)
        if not isinstance(statement, cst.AugAssign):
            return self._plain(value)
        kind = self._plain(value)
        if kind is None or isinstance(statement.operator, cst.DivideAssign):
            return kind and "float"
        exact = isinstance(statement.operator, (*_ADDS, cst.FloorDivideAssign, cst.ModuloAssign))
        return _joined(self.kept.kind, kind) if exact else None

    def _plain(self, value: cst.BaseExpression) -> Kind | None:
        if isinstance(value, cst.Name) and value.value == self._name:
            return self.kept.kind
        if not isinstance(value, cst.BinaryOperation):
            return self._values.number(value)
        left, right = self._plain(value.left), self._plain(value.right)
        if left is None or right is None or isinstance(value.operator, cst.Divide):
            return left and right and "float"
        exact = isinstance(
            value.operator, cst.Add | cst.Subtract | cst.Multiply | cst.FloorDivide | cst.Modulo
        )
        return _joined(left, right) if exact else None

    def _from_outside(self) -> None:
        """Raises Cannot where what is bound beside the sum may come into it and be no number of its kind."""
        view = self._view
        end = view.code.span(view.outer_loop() or view.loop)[1]
        for bound in self._odd:
            if view.steps(bound) or (not self._anew and view.code.span(bound)[0] < end):
                words = f"what {self._name} is set to here is not known to be a number like the others"
                raise view.cannot(words, bound)

    def _begins_beside(self) -> bool:
        """Whether the loop always begins with a plain start: one that stands before it in its block."""
        view, code = self._view, self._view.code
        block, begin = code.parents[view.loop], code.span(view.loop)[0]
        earlier = [one for one in view.bindings(self._name) if code.span(one)[0] < begin]
        last = earlier[-1] if earlier else None
        statement = view.line_of(last) if last is not None else None
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
        self._is_a_number(bound)
        found = _OPERATOR.match(code.text.text, code.span(bound)[1])
        if found is None:
            raise view.cannot(f"{self._name} is changed in a way that cannot be followed", bound)
        value = statement.value
        number = self._number() if found[1] == "/" or not self._may_be_whole else f"({self._either()})"
        bare = isinstance(value, _BARE) or bool(value.lpar)
        old, by = (" ".join(code.source(one).split()) for one in (statement, value))
        new = f" = {number} {found[1]} {'' if bare else '('}"
        self.kept.spans.append((*found.span(), new, f"{old} → {self._name}{new}{by}{'' if bare else ')'}"))
        if not bare:
            self.kept.spans.append((code.span(value)[1], code.span(value)[1], ")", ""))

    # -- reads -------------------------------------------------------------------------------------------

    def _read(self, node: cst.CSTNode) -> None:
        """Write ``float(total)``; where a whole number may be read before anything was added, that or it."""
        self._is_a_number(node)
        above = self._view.code.parents[node]
        if not self._may_be_whole or _same_as_broken(above):
            self.kept.texts.append((node, self._number()))
        else:
            alone = isinstance(above, cst.Arg | cst.Return | cst.Assign)
            self.kept.texts.append((node, self._either() if alone else f"({self._either()})"))

    def _number(self) -> str:
        return f"{self.kept.kind}({self._name})"

    def _either(self) -> str:
        return f"{self._name} if isinstance({self._name}, int) else float({self._name})"

    def _is_a_number(self, node: cst.CSTNode) -> None:
        """Raises Cannot where something else that was bound may be read."""
        code = self._view.code
        for bound in self._odd:
            if self._reaches(code.span(bound)[0], code.span(node)[0]):
                words = f"{self._name} may be what line {code.line(bound)} made of it"
                raise self._view.cannot(words, node)

    def _reaches(self, bound: int, at: int) -> bool:
        """Whether what is bound at one place outside of the loop may be read at another."""
        code, view = self._view.code, self._view
        begin, end = code.span(view.loop)
        first, last = code.span(view.outer_loop() or view.loop)
        if at >= end and end <= bound < at:
            return True
        if begin <= at < end or at >= end:
            return not self._anew and bound < last
        return first <= bound < last or bound < at


def _joined(left: Kind, right: Kind) -> Kind:
    return "int" if left == right == "int" else "float"


def is_read(view: InLoop, name: str, node: cst.CSTNode) -> bool:
    """Whether a name may be a tensor where it is read, and not asked for its number yet. Raises Cannot."""
    code, loop = view.code, view.loop
    if view.steps(node):
        view.may_wait(name, node)
    elif isinstance(loop, cst.While) and code.holds(loop.test, node):
        raise view.cannot(f"{name} is read in every step", node)
    elif not (loop.orelse is not None and code.holds(loop.orelse, node)) and not view.may_be_kept(node):
        return False
    above, later = code.parents[node], code.above(node, cst.Lambda)
    shown = code.above(node, cst.FormattedStringExpression)
    if isinstance(above, cst.Del) or (shown is not None and shown.equal is not None):
        raise view.cannot(f"{name} is read in a way that would show", node)
    if later is not None and code.holds(view.small(node), later):
        raise view.cannot(f"{name} may be read later", node)
    return not _is_asked(view, above)


def _is_asked(view: InLoop, above: cst.CSTNode) -> bool:
    """Whether the number is asked for there already: ``float(total)``."""
    call = view.code.parents[above] if isinstance(above, cst.Arg) else None
    if not isinstance(call, cst.Call) or len(call.args) != 1 or not isinstance(call.func, cst.Name):
        return False
    return call.func.value in ("float", "int")


def _same_as_broken(above: cst.CSTNode) -> bool:
    """Whether 0 and 0.0 come to the same there: divided, or shown with a format of broken numbers."""
    if isinstance(above, cst.BinaryOperation) and isinstance(above.operator, cst.Divide):
        return True
    spec = above.format_spec if isinstance(above, cst.FormattedStringExpression) else None
    last = spec[-1] if spec else None
    return isinstance(last, cst.FormattedStringText) and bool(_SAME_SHOWN.search(last.value))
