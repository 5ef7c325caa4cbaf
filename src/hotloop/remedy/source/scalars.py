"""Single numbers read from a device, and the arithmetic that a tensor of 64 bits does as Python does it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import libcst as cst

from hotloop.record import rows as row
from hotloop.record.recording import Note
from hotloop.remedy.source.code import Code, last_name
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.values import value_of

Kind = Literal["float", "int"]

_READS: Final = ("item", "tolist", "cpu")
_ASKS: Final = (*_READS, "float", "int")
_BETWEEN: Final = (*_READS, "detach")
#: Methods that plain numbers have not.
_METHODS: Final = frozenset([
    "detach", "cpu", "item", "tolist", "sum", "mean", "max", "min", "abs", "norm", "float", "double", "long",
    "clone", "squeeze",
])  # fmt: skip
_SIZES: Final = ("numel", "nelement")
_ATOMS: Final = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)
_EXACT: Final = (cst.Add, cst.Subtract, cst.Multiply)
#: How many names are followed to what they were given.
_DEPTH: Final = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Read:
    """A call that gives one number of a tensor on the device. ``kind`` is None where the run cannot tell."""

    node: cst.Call
    tensor: str
    kind: Kind | None
    why: str = ""  # what keeps it from being put off

    def kept(self, kind: Kind) -> str:
        """The tensor in its place, for a sum of a kind."""
        text = self.tensor
        if kind == "int":
            return text if text.endswith(".sum()") else f"{text}.long()"
        detached = self.kind == "int" or text.endswith((".detach()", ".data"))
        return f"{text}.double()" if detached else f"{text}.detach().double()"

    def copied(self) -> str:
        """The tensor in its place, its own from now on."""
        if self.kind == "int":
            return self.kept("int") + ("" if self.tensor.endswith(".sum()") else ".clone()")
        detached = self.tensor.endswith((".detach()", ".data"))
        return f"{self.tensor}.clone()" if detached else f"{self.tensor}.detach().clone()"


def reading(code: Code, call: cst.Call, flags: int) -> Read:
    """The whole expression around a call that waited: ``float(loss.cpu())`` around ``loss.cpu()``."""
    node = call
    while last_name(call.func) in _ASKS:
        above = code.parents[node]
        if isinstance(above, cst.Attribute) and above.value is node and above.attr.value in _BETWEEN:
            outer = code.parents[above]
            if isinstance(outer, cst.Call) and outer.func is above and not outer.args:
                node = outer
                continue
        if isinstance(above, cst.Arg) and above.keyword is None and not above.star:
            outer = code.parents[above]
            if (
                isinstance(outer, cst.Call)
                and len(outer.args) == 1
                and _builtin(code, outer, ("float", "int"))
            ):
                node = outer
                continue
        break
    kind: Kind | None = {row.SYNC_FLOAT: "float", row.SYNC_WHOLE: "int"}.get(flags)  # type: ignore[assignment]
    why = ""
    name = last_name(node.func)
    if name not in _ASKS or name == "cpu":
        why = f"{code.source(node)} is not read as one number"
    elif kind is None:
        why = "what it reads is no single number of a plain tensor, or the run is too old to say"
    elif not _is_tensor(code, node):
        why = f"{_tensor(code, node)} may be a plain number at times"
    elif name == "int" and kind == "float":
        why = "a broken number is made a whole one"
    elif name == "float":
        kind = "float"
    return Read(node=node, tensor=_tensor(code, node), kind=kind, why=why)


def _is_tensor(code: Code, node: cst.BaseExpression) -> bool:
    """Whether what is read is a tensor in every step: ``float`` takes a plain number too."""
    if not isinstance(node, cst.Call) or not _builtin(code, node, ("float", "int")):
        return True
    asked = node.args[0].value
    if isinstance(asked, cst.Call):
        whole = code.qualified(asked.func)
        return whole.startswith("torch.") if whole else last_name(asked.func) in _METHODS
    if not isinstance(asked, cst.Name):
        return False
    name, function = asked.value, code.function_of(node)
    for call in code.nodes(cst.Call, function):
        if last_name(call.func) not in ("backward", "scale"):
            continue
        owner = call.func.value if isinstance(call.func, cst.Attribute) else None
        if last_name(owner or call) == name or any(last_name(arg.value) == name for arg in call.args):
            return True
    return False


def _tensor(code: Code, node: cst.BaseExpression) -> str:
    """What stands in the file for the tensor below the calls that read it."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and not node.args:
        if node.func.attr.value in _READS:
            return _tensor(code, node.func.value)
        if node.func.attr.value == "detach":
            return f"{_tensor(code, node.func.value)}.detach()"
    elif isinstance(node, cst.Call) and _builtin(code, node, ("float", "int")) and len(node.args) == 1:
        return _tensor(code, node.args[0].value)
    text = code.source(node)
    return text if isinstance(node, _ATOMS) and "\n" not in text else f"({text})"


def _builtin(code: Code, call: cst.Call, names: Collection[str]) -> bool:
    name = call.func.value if isinstance(call.func, cst.Name) else ""
    return name in names and not code.assignments(call.func, name)


class Arithmetic:
    """Expressions of numbers that are put off: sums, differences and products of them and plain numbers."""

    def __init__(
        self, code: Code, reads: Sequence[Read], config: Sequence[Note], held: Mapping[str, Kind | None]
    ) -> None:
        self._code, self._held = code, held
        self._reads = {id(read.node): read for read in reads}
        self._config = {str(note.get("key")).rpartition(".")[2]: note.get("value") for note in config}

    def kinds(self, node: cst.BaseExpression, own: str = "") -> set[Kind]:
        """The kinds of what is put off in an expression; empty for a plain number. ``own`` is the sum itself.

        Raises Cannot for anything else.
        """
        read = self._reads.get(id(node))
        if read is not None:
            if read.why or read.kind is None:
                raise Cannot(read.why, str(self._code.path), self._code.line(node))
            return {read.kind}
        if isinstance(node, cst.Name) and node.value == own:
            return set()
        if isinstance(node, cst.Name) and (kind := self._held.get(node.value)) is not None:
            return {kind}
        plain = self.number(node)
        if plain is not None:
            return set()
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, _EXACT):
            return self.kinds(node.left, own) | self.kinds(node.right, own)
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            return self.kinds(node.expression, own)
        raise self._cannot(node)

    def _cannot(self, node: cst.BaseExpression) -> Cannot:
        code = self._code
        words = " ".join(code.source(node).split())
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide):
            why = f"{words}: a division rounds otherwise on the device; divide what is read"
        elif any(id(one) in self._reads for one in code.nodes(cst.Call, node)):
            why = f"{words} is computed of the number in every step"
        else:
            why = f"{words} is not known to be a plain number"
        return Cannot(why, str(code.path), code.line(node))

    def written(self, node: cst.BaseExpression, kind: Kind) -> list[tuple[cst.CSTNode, str]]:
        """What to write for every number that is put off in an expression of a kind."""
        read = self._reads.get(id(node))
        if read is not None:
            return [(node, read.kept(kind))]
        if isinstance(node, cst.Name) and node.value in self._held:
            return [(node, f"{node.value}.double()")] if kind == "float" else []
        if isinstance(node, cst.BinaryOperation):
            return [*self.written(node.left, kind), *self.written(node.right, kind)]
        return self.written(node.expression, kind) if isinstance(node, cst.UnaryOperation) else []

    def bound(self, node: cst.BaseExpression, kind: Kind) -> list[tuple[cst.CSTNode, str]]:
        """The same for what is kept as it is: nothing done in place to the tensor later may change it."""
        read = self._reads.get(id(node))
        if read is not None:
            return [(node, read.copied())]
        return [] if isinstance(node, cst.Name) else self.written(node, kind)

    def held_in(self, node: cst.BaseExpression) -> set[str]:
        """The names in an expression that a number was given to."""
        return {one.value for one in self._code.nodes(cst.Name, node) if one.value in self._held}

    def reads_in(self, node: cst.BaseExpression) -> bool:
        """Whether something is put off in an expression."""
        reads = any(id(call) in self._reads for call in self._code.nodes(cst.Call, node))
        return reads or bool(self.held_in(node))

    def whole(self, node: cst.BaseExpression) -> bool:
        """Whether no plain number in an expression is broken."""
        if isinstance(node, cst.BinaryOperation):
            return self.whole(node.left) and self.whole(node.right)
        return self.number(node) != "float"

    # -- plain numbers -----------------------------------------------------------------------------------

    def number(self, node: cst.BaseExpression | None, depth: int = _DEPTH) -> Kind | None:
        """Whether an expression is a Python number for sure, and of which kind."""
        if isinstance(node, cst.Integer):
            return "int"
        if isinstance(node, cst.Float):
            return "float"
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus | cst.Plus):
            return self.number(node.expression, depth)
        if isinstance(node, cst.BinaryOperation):
            return self._computed(node, depth)
        if isinstance(node, cst.Call):
            return "int" if self._is_size(node) else None
        if isinstance(node, cst.Subscript):
            return "int" if last_name(node.value) == "shape" and _one_integer(node) else None
        if isinstance(node, cst.Attribute):
            return "int" if node.attr.value == "batch_size" else self._configured(node.attr.value)
        if isinstance(node, cst.Name) and depth:
            return self._named(node, depth)
        return None

    def _computed(self, node: cst.BinaryOperation, depth: int) -> Kind | None:
        sides = {self.number(node.left, depth), self.number(node.right, depth)}
        if None in sides:
            return None
        if isinstance(node.operator, cst.Divide):
            return "float"
        whole = sides == {"int"}
        if isinstance(node.operator, (*_EXACT, cst.FloorDivide, cst.Modulo)):
            return "int" if whole else "float"
        return None

    def _is_size(self, call: cst.Call) -> bool:
        name = last_name(call.func)
        if name == "size":
            return isinstance(call.func, cst.Attribute) and len(call.args) == 1
        return _builtin(self._code, call, ("len",)) or (
            isinstance(call.func, cst.Attribute) and name in _SIZES and not call.args
        )

    def _configured(self, key: str) -> Kind | None:
        value = self._config.get(key)
        if isinstance(value, bool):
            return None
        return "int" if isinstance(value, int) else "float" if isinstance(value, float) else None

    def _named(self, node: cst.Name, depth: int) -> Kind | None:
        """What a name is in all of its bindings."""
        kinds = {self._bound(one.node, depth) for one in self._code.assignments(node, node.value)}
        if not kinds or None in kinds:
            return None
        return "int" if kinds == {"int"} else "float"

    def _bound(self, bound: cst.CSTNode, depth: int) -> Kind | None:
        above = self._code.parents.get(bound)
        if isinstance(above, cst.AugAssign):
            exact = isinstance(above.operator, cst.AddAssign | cst.SubtractAssign | cst.MultiplyAssign)
            return self.number(above.value, depth - 1) if exact else None
        if isinstance(bound, cst.Param):
            annotation = bound.annotation.annotation if bound.annotation is not None else None
            said = last_name(annotation) if annotation is not None else ""
            return said if said in ("int", "float") else None  # type: ignore[return-value]
        return self.number(value_of(self._code, bound), depth - 1)


def literal_number(node: cst.BaseExpression) -> Kind | None:
    """The kind of a number that stands there."""
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        return literal_number(node.expression)
    return "int" if isinstance(node, cst.Integer) else "float" if isinstance(node, cst.Float) else None


def _one_integer(node: cst.Subscript) -> bool:
    index = node.slice[0].slice if len(node.slice) == 1 else None
    value = index.value if isinstance(index, cst.Index) else None
    if isinstance(value, cst.UnaryOperation):
        value = value.expression
    return isinstance(value, cst.Integer)
