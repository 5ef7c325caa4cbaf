"""The body of a loop over tensors as calls for all of them: ``torch._foreach_mul_(params, 0.99)``.

Each operation of the body is done for all tensors before the next one. That is the same where the tensors of
one round share no memory with those of another; whether they do is asked elsewhere.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import libcst as cst

from hotloop.remedy.source.code import LITERALS, Code, is_member, last_name, literal
from hotloop.remedy.source.loops.numbers import Numbers
from hotloop.remedy.source.scene import Cannot

#: Methods with one more operand, a tensor or a number, by what the list form is called.
_BINARY: Final = frozenset(["mul", "add", "sub", "div"])
#: Methods without an operand.
_UNARY: Final = frozenset(["neg", "abs", "sqrt", "sign", "zero"])
_OPERATORS: Final = {cst.Add: "add", cst.Subtract: "sub", cst.Multiply: "mul", cst.Divide: "div"}
_ASSIGNED: Final = {
    cst.AddAssign: "add", cst.SubtractAssign: "sub", cst.MultiplyAssign: "mul", cst.DivideAssign: "div"
}  # fmt: skip
#: Attributes and methods of a tensor that are its memory under another name.
_SAME_MEMORY: Final = frozenset(["data", "grad"])
#: Methods that make another tensor of one, asked of each tensor by itself.
_EACH: Final = frozenset([
    "float", "double", "half", "bfloat16", "to", "cpu", "cuda", "clone", "contiguous", "type", "type_as",
    "detach",
])  # fmt: skip
_HALF: Final = re.compile(r"half\b|float16\b")
#: Functions that draw a tensor of each one's shape: one draw a round comes in the same order.
_DRAWN: Final = frozenset(["torch.randn_like", "torch.rand_like"])
_FACTS: Final = frozenset(["dtype", "device", "shape"])
#: What gives tensors.
_MADE: Final = frozenset([
    "clone", "deepcopy", "zeros_like", "ones_like", "empty_like", "randn_like", "zeros",
])  # fmt: skip
#: Functions of numbers.
_OF_NUMBERS: Final = frozenset(["min", "max", "abs", "float", "int", "pow", "round"])
#: What a condition may ask of a tensor, or of its name, that no operation of a round changes.
_ASKED: Final = frozenset([
    "requires_grad", "grad", "data", "dtype", "is_floating_point", "ndim", "shape", "device", "is_sparse",
    "is_leaf", "is_complex", "dim", "size", "numel", "startswith", "endswith", "split",
])  # fmt: skip
_ASKING: Final = frozenset(["isinstance", "hasattr"])
_FLOATING: Final = "is_floating_point"


@dataclass(frozen=True, kw_only=True)
class Number:
    """What is the same in every round: a number, or a tensor of one (``tensor``)."""

    text: str
    node: cst.BaseExpression
    tensor: bool = False


@dataclass(frozen=True, kw_only=True)
class Many:
    """A tensor of each round. ``of`` and ``operands`` say what it was made of, ``key`` which of the loop's it
    is, "" for one that was computed; ``new``: its memory is its own.
    """

    text: str
    key: str = ""
    of: str = ""
    operands: tuple[Many | Number, ...] = ()
    new: bool = False


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One call: a change in place of what ``into`` holds; a store in each round (``store``: text of the
    target); or a name for values (``name``).
    """

    name: str = ""
    into: Many | None = None
    operands: tuple[Many | Number, ...] = ()
    keywords: tuple[tuple[str, Number], ...] = ()
    store: cst.BaseExpression | None = None
    bound: str = ""
    bare: str = ""  # a statement that is written as it is


@dataclass(frozen=True, kw_only=True)
class Inexact:
    """What the list form rounds otherwise."""

    node: cst.CSTNode
    why: str
    on_cpu: bool = False


@dataclass(kw_only=True)
class Body:
    """A translated loop: the operations, what they go over, and under which conditions."""

    entries: dict[str, str] = field(default_factory=dict)  # what is read of a round -> the list's name
    conditions: list[str] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    written: set[str] = field(default_factory=set)  # loop names whose tensors change
    without_grad: str = ""  # ``torch.no_grad()`` around the whole body
    only_floating: bool = False
    inexact: list[Inexact] = field(default_factory=list)


class Translator:
    """Reads the body of one loop. Raises Cannot with the line that has no list form."""

    def __init__(self, code: Code, loop: cst.For, numbers: Numbers, torch: str = "torch") -> None:
        self.code, self.loop, self._numbers = code, loop, numbers
        self.body = Body()
        self.bodies = [self.body]
        self.held: dict[str, cst.BaseExpression] = {}  # lists and dictionaries that a round has a tensor of
        self.changed: set[str] = set()  # those of them whose tensors change in place
        self._torch = torch
        self._targets = {name.value for name in code.nodes(cst.Name, loop.target)}
        self._aliases: dict[str, str] = {}  # a name of the body -> the tensor of the round that it is
        self._values: dict[str, Many] = {}  # a name of the body -> the values it stands for
        self._taken = {name.value for name in code.names()}
        self._counts = set(_counts(loop.target, loop.iter))
        self._tests: list[cst.BaseExpression] = []  # the conditions
        self._draws = 0
        self._stored = False
        self._own = self._targets | {
            name.value
            for assign in code.nodes(cst.AssignTarget, loop.body)
            for name in [assign.target]
            if isinstance(name, cst.Name)
        }

    def read(self) -> list[Body]:
        """The body of the loop; those of an ``if`` and its ``else`` apart."""
        self._statements(self.loop.body.body)
        for body in self.bodies:
            if not any(one.into is not None or one.store is not None for one in body.operations):
                raise self._cannot(self.loop, "no tensor is changed in it")
        self._require_asked_first()
        return self.bodies

    def _require_asked_first(self) -> None:
        """Raises Cannot where a condition may ask what a round before it, or the other way, has stored."""
        stored = [one.store for body in self.bodies for one in body.operations if one.store is not None]
        if stored and len(self.bodies) > 1:
            raise self._cannot(stored[0], "what one way stores the condition of the other may ask")
        for test in self._tests if stored else ():
            if any(name not in self._own | _ASKING | set(LITERALS) for name in self._names_in(test)):
                raise self._cannot(test, f"{self._flat(test)} may ask what a round before it stored")

    @property
    def bound(self) -> set[str]:
        """The names that the loop binds."""
        return set(self._own)

    # -- statements --------------------------------------------------------------------------------------

    def _statements(self, body: Sequence[cst.CSTNode]) -> None:
        for at, statement in enumerate(body):
            last = at == len(body) - 1
            if isinstance(statement, cst.BaseSmallStatement):
                self._small(statement)
            elif isinstance(statement, cst.SimpleStatementLine):
                for small in statement.body:
                    self._small(small)
            elif isinstance(statement, cst.If) and statement.orelse is None:
                self._condition(statement, last=last)
            elif isinstance(statement, cst.If) and last and not self.body.operations:
                self._two_ways(statement)
            elif isinstance(statement, cst.With) and last and at == 0 and not self.body.without_grad:
                self._with(statement)
            else:
                raise self._cannot(statement, "this statement has no form for all tensors at once")

    def _condition(self, statement: cst.If, *, last: bool) -> None:
        if self.body.operations:
            raise self._cannot(statement, "a condition behind an operation chooses some of the tensors only")
        self._require_pure(statement.test)
        self._tests.append(statement.test)
        text = self.spelled(statement.test)
        inner = statement.body.body
        if _is_continue(inner):
            self.body.conditions.append(self._negated(statement.test, text))
        elif last:
            self.body.conditions.append(f"({text})" if _loose(statement.test) else text)
            self.body.only_floating |= _asks_floating(text)
            self._statements(inner)
        else:
            raise self._cannot(statement, "a condition chooses some of the tensors only")

    def _two_ways(self, statement: cst.If) -> None:
        """An ``if`` with its ``else``: each tensor goes one of the two ways, so each way has a list."""
        self._require_pure(statement.test)
        self._tests.append(statement.test)
        text = self.spelled(statement.test)
        before = list(self.body.conditions), dict(self._aliases), self.body.only_floating
        self.body.conditions.append(f"({text})" if _loose(statement.test) else text)
        self.body.only_floating |= _asks_floating(text)
        self._statements(statement.body.body)
        conditions, self._aliases, floating = before
        self._values, self._stored = {}, False
        self.body = Body(conditions=conditions, without_grad=self.body.without_grad, only_floating=floating)
        self.bodies.append(self.body)
        self.body.conditions.append(self._negated(statement.test, text))
        orelse = statement.orelse
        self._statements([orelse] if isinstance(orelse, cst.If) else orelse.body.body if orelse else [])

    def _negated(self, test: cst.BaseExpression, text: str) -> str:
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            inner = self.spelled(test.expression)
            self.body.only_floating |= _asks_floating(inner)
            return f"({inner})" if _loose(test.expression) else inner
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            one = test.comparisons[0]
            left, right = self.spelled(test.left), self.spelled(one.comparator)
            opposite = {cst.Is: "is not", cst.IsNot: "is", cst.In: "not in", cst.NotIn: "in"}
            if type(one.operator) in opposite:
                return f"{left} {opposite[type(one.operator)]} {right}"
        return f"not {text}" if not isinstance(test, cst.BooleanOperation) else f"not ({text})"

    def _with(self, statement: cst.With) -> None:
        only = statement.items[0].item if len(statement.items) == 1 else None
        name = self.code.qualified(only.func) if isinstance(only, cst.Call) and not only.args else ""
        if only is None or name not in ("torch.no_grad", "torch.inference_mode"):
            raise self._cannot(statement, "what this block does around each tensor is not looked into")
        self.body.without_grad = self._flat(only)
        self._statements(statement.body.body)

    def _small(self, small: cst.BaseSmallStatement) -> None:
        if isinstance(small, cst.Pass) or (
            isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString)
        ):
            return
        if self._stored:
            raise self._cannot(small, "what is stored before it may be read here")
        if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
            self._changed(small.value)
        elif isinstance(small, cst.AugAssign) and type(small.operator) in _ASSIGNED:
            if isinstance(small.target, cst.Subscript) and not self.holds_new(small.target.value):
                raise self._cannot(small, f"{self._flat(small.target.value)} may begin without a tensor")
            self._in_place(small, _ASSIGNED[type(small.operator)], small.target, [small.value], {})
        elif isinstance(small, cst.Assign) and len(small.targets) == 1:
            self._assigned(small, small.targets[0].target, small.value)
        elif isinstance(small, cst.Assert) and not self.body.operations:
            self._asserted(small)
        else:
            raise self._cannot(small, "this statement has no form for all tensors at once")

    def _asserted(self, small: cst.Assert) -> None:
        self._require_pure(small.test)
        names = self.names_of_round(small.test)
        if small.msg is not None or len(names) != 1 or self._draws:
            raise self._cannot(small, "what is asserted of each tensor stays in a loop")
        name = names[0]
        listed = self._entry(name)
        text = f"assert all({self.spelled(small.test)} for {name} in {listed.text})"
        self.body.operations.append(Operation(bare=text))

    def _assigned(self, small: cst.Assign, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        if isinstance(target, cst.Name):
            name = target.value
            if name in self._targets or name in self._aliases or name in self._values:
                raise self._cannot(small, f"{name} gets another meaning here")
            same = self._same(value)
            if same:
                self._aliases[name] = same
                return
            many = self._expression(value)
            if isinstance(many, Number):
                raise self._cannot(small, f"{name} is computed in each round")
            listed = self.fresh(f"{name}s")
            self.body.operations.append(Operation(bound=listed, operands=(many,)))
            self._values[name] = Many(
                text=listed, new=many.new, of=many.of, operands=many.operands
            )  # computed once
            return
        root = self._root(target)
        if root is None or not self._is_store(target):
            raise self._cannot(small, f"{self._flat(target)} is stored in each round")
        kept = value
        if self._drops_clone(value):
            assert isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute)
            kept = value.func.value
        many = self._expression(kept)
        if isinstance(many, Number):
            raise self._cannot(small, "what is stored is no tensor of the round")
        if not many.new:
            raise self._cannot(small, "what is stored is not computed here: two names would share it")
        for name in self.names_of_round(target):
            self._entry(name)
        self.body.written.update(self.names_of_round(target))
        self.body.operations.append(Operation(store=target, operands=(many,)))
        self._stored = True

    def _drops_clone(self, value: cst.BaseExpression) -> bool:
        """Whether a ``clone()`` is of what nothing else holds."""
        if not isinstance(value, cst.Call) or value.args or last_name(value.func) != "clone":
            return False
        assert isinstance(value.func, cst.Attribute)
        of = value.func.value
        if isinstance(of, cst.Name) and of.value in self._values:
            reads = [
                name
                for name in self.code.nodes(cst.Name, self.loop.body)
                if name.value == of.value and not isinstance(self.code.parents[name], cst.AssignTarget)
            ]
            return self._values[of.value].new and len(reads) == 1
        return isinstance(of, cst.BinaryOperation)

    def holds_new(self, node: cst.BaseExpression) -> bool:
        """Whether everything that a list or a dictionary of that name is given was made by torch for it."""
        name, given = last_name(node), []
        for assign in self.code.nodes(cst.Assign):
            for target in (one.target for one in assign.targets):
                part = target.value if isinstance(target, cst.Subscript) else target
                empty = isinstance(assign.value, cst.Dict) and not assign.value.elements
                if last_name(part) == name and not (part is target and empty):
                    given.append(assign.value)
        return bool(given) and all(self._is_new(one) for one in given)

    def _is_new(self, node: cst.BaseExpression) -> bool:
        """Whether each tensor of a list, or of a store in each round, was made for it alone."""
        if isinstance(node, cst.ListComp | cst.DictComp):
            return makes_new(node.value if isinstance(node, cst.DictComp) else node.elt)
        return makes_new(node)

    def _is_store(self, target: cst.BaseExpression) -> bool:
        """``p.data = ...``, ``p.grad = ...``, ``shadow[name] = ...``."""
        if isinstance(target, cst.Attribute):
            return target.attr.value in _SAME_MEMORY and bool(self._same(target.value))
        return isinstance(target, cst.Subscript) and bool(self._same(target))

    def _changed(self, call: cst.Call) -> None:
        """A chain of changes in place: ``a.mul_(d).add_(b, alpha=1 - d)``."""
        method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        if self._into_itself(call):
            return
        if not method.endswith("_") or not isinstance(call.func, cst.Attribute) or method.startswith("_"):
            raise self._cannot(call, f"{self._flat(call.func)} has no form for all tensors at once")
        if self.code.qualified(call.func).startswith("torch."):
            raise self._cannot(call, f"{self._flat(call.func)} has no form for all tensors at once")
        inner = call.func.value
        if isinstance(inner, cst.Call) and not self._same(inner):
            self._changed(inner)
            inner = _innermost(inner)
        positional, keywords = self._arguments(call)
        self._in_place(call, method[:-1], inner, positional, keywords)

    def _in_place(
        self,
        node: cst.CSTNode,
        op: str,
        target: cst.BaseExpression,
        positional: list[cst.BaseExpression],
        keywords: dict[str, cst.BaseExpression],
    ) -> None:
        into = self._expression(target)
        if not isinstance(into, Many) or not (into.key or self._is_value(target)):
            raise self._cannot(node, f"{self._flat(target)} is no tensor of the round")
        self.body.written.update(self.names_of_round(target))
        root = into.key.partition("[")[0]
        if "[" in into.key:
            self.changed.add(root)
        for name, operands, given in self._forms(node, op, positional, keywords):
            self.body.operations.append(
                Operation(name=f"{name}_", into=into, operands=operands, keywords=given)
            )
        for name, value in self._values.items():  # what they were computed of may not be what it was
            self._values[name] = replace(value, of="", operands=())

    def _into_itself(self, call: cst.Call) -> bool:
        """``torch.add(a, b, alpha=tau, out=a)``."""
        positional, keywords = self._arguments(call)
        op = self.code.qualified(call.func).removeprefix("torch.")
        out = keywords.pop("out", None)
        if out is None or not positional or op not in (*_BINARY, "lerp"):
            return False
        if not self._same(out) or self._same(out) != self._same(positional[0]):
            return False
        self._in_place(call, op, positional[0], positional[1:], keywords)
        return True

    def _is_value(self, target: cst.BaseExpression) -> bool:
        value = self._values.get(target.value) if isinstance(target, cst.Name) else None
        return value is not None and value.new

    # -- expressions -------------------------------------------------------------------------------------

    def _forms(
        self,
        node: cst.CSTNode,
        op: str,
        positional: list[cst.BaseExpression],
        keywords: dict[str, cst.BaseExpression],
    ) -> Iterator[tuple[str, tuple[Many | Number, ...], tuple[tuple[str, Number], ...]]]:
        """The list forms of a method, with what they are given behind the list itself."""
        operands = [self._expression(one) for one in positional]
        named = {name: self._expression(one) for name, one in keywords.items()}
        numbers = {name: one for name, one in named.items() if isinstance(one, Number)}
        if op in _BINARY and len(operands) == 1 and set(named) <= {"alpha"} and set(numbers) == set(named):
            if named and (op not in ("add", "sub") or isinstance(operands[0], Number)):
                raise self._cannot(node, f"{op} with alpha has no such form")
            self._require_number(node, op, operands[0])
            self._look_at(node, op, operands[0])
            yield op, (operands[0],), tuple(numbers.items())
        elif op in _UNARY and not operands and not named:
            self._look_at(node, op, None)
            yield op, (), ()
        elif op == "lerp" and len([*operands, *named]) == 2 and set(named) <= {"weight"} and operands:
            operands += named.values()
            self._require_many(node, operands[0])
            self._require_number(node, op, operands[1])
            yield op, tuple(operands), ()
        elif op == "copy" and len(operands) in (1, 2) and set(named) <= {"non_blocking"}:
            self._require_many(node, operands[0])
            if any(not isinstance(one, Number) for one in operands[1:]) or set(numbers) != set(named):
                raise self._cannot(node, "copy_ is given something unknown")
            yield op, tuple(operands), tuple(numbers.items())
        elif op in ("addcmul", "addcdiv") and len(operands) == 2 and set(named) <= {"value"}:
            for one in operands:
                self._require_many(node, one)
            self._look_at(node, op, None)
            yield op, tuple(operands), tuple(numbers.items())
        elif op == "pow" and len(operands) == 1 and not named:
            self._require_number(node, op, operands[0])
            self._look_at(node, op, operands[0])
            yield op, (operands[0],), ()
        elif op in ("clamp", "clip", "clamp_min", "clamp_max"):
            yield from self._clamped(node, op, operands, named)
        else:
            raise self._cannot(node, f"{op} has no form for all tensors at once")

    def _clamped(
        self,
        node: cst.CSTNode,
        op: str,
        operands: list[Many | Number],
        named: dict[str, Many | Number],
    ) -> Iterator[tuple[str, tuple[Many | Number, ...], tuple[tuple[str, Number], ...]]]:
        order = ["min", "max"] if op in ("clamp", "clip") else [op.removeprefix("clamp_")]
        bounds = dict(zip(order, operands, strict=False)) | named
        if len(operands) > len(order) or not bounds or not set(bounds) <= set(order):
            raise self._cannot(node, f"{op} is given something unknown")
        for name in order:
            bound = bounds.get(name)
            if bound is None or (isinstance(bound, Number) and bound.text == "None"):
                continue
            if not isinstance(bound, Number) or bound.tensor:
                raise self._cannot(node, "its bound is no number")
            yield f"clamp_{name}", (bound,), ()

    def _expression(self, node: cst.BaseExpression) -> Many | Number:
        same = self._same(node)
        if same:
            if same in self._counts:
                raise self._cannot(node, f"{same} is no tensor")
            return self._entry(same)
        if isinstance(node, cst.Name) and node.value in self._values:
            return self._values[node.value]
        if not self._of_round(node):
            return self._number(node)
        if isinstance(node, cst.BinaryOperation) and type(node.operator) in _OPERATORS:
            return self._computed(node, _OPERATORS[type(node.operator)], node.left, node.right)
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Power):
            return self._called(node, "pow", node.left, [node.right], {})
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            return self._called(node, "neg", node.expression, [], {})
        if isinstance(node, cst.Call):
            return self._call(node)
        raise self._cannot(node, f"{self._flat(node)} has no form for all tensors at once")

    def _computed(
        self, node: cst.CSTNode, op: str, left: cst.BaseExpression, right: cst.BaseExpression
    ) -> Many:
        first = self._expression(left)
        if isinstance(first, Many):
            second = self._expression(right)
            self._require_number(node, op, second)
            self._look_at(node, op, second)
            return self._made(op, first, second)
        other = self._expression(right)
        assert isinstance(other, Many)
        self._require_number(node, op, first)
        if op in ("add", "mul"):
            return self._made(op, other, first)
        raise self._cannot(
            node, f"a number {'less' if op == 'sub' else 'divided by'} a tensor has no such form"
        )

    def _call(self, call: cst.Call) -> Many:
        whole = self.code.qualified(call.func)
        positional, keywords = self._arguments(call)
        if whole in _DRAWN and len(positional) == 1:
            self._draws += 1
            if self._draws > 1:
                raise self._cannot(call, "two draws in a round come in another order")
            return self._each(call, whole)
        if whole.startswith("torch.") and positional:
            return self._called(call, whole.removeprefix("torch."), positional[0], positional[1:], keywords)
        if not isinstance(call.func, cst.Attribute) or whole:
            raise self._cannot(call, f"{self._flat(call.func)} has no form for all tensors at once")
        method = call.func.attr.value
        if method in _EACH:
            if _HALF.search(self._flat(call)):
                why = "half precision rounds otherwise in the list form"
                self.body.inexact.append(Inexact(node=call, why=why, on_cpu=True))
            return self._each(call, method)
        return self._called(call, method, call.func.value, positional, keywords)

    def _called(
        self,
        node: cst.CSTNode,
        op: str,
        receiver: cst.BaseExpression,
        positional: list[cst.BaseExpression],
        keywords: dict[str, cst.BaseExpression],
    ) -> Many:
        many = self._expression(receiver)
        if op.endswith("_") or op == "zero" or op == "copy" or not isinstance(many, Many):
            raise self._cannot(node, f"{op} has no form for all tensors at once")
        for name, operands, given in self._forms(node, op, positional, keywords):
            many = self._made(name, many, *operands, keywords=given)
        return many

    def _made(
        self,
        op: str,
        first: Many,
        *others: Many | Number,
        keywords: tuple[tuple[str, Number], ...] = (),
    ) -> Many:
        operands = (first, *others)
        text = call_of(self._torch, op, operands, keywords)
        return Many(text=text, of="" if keywords else op, operands=operands, new=True)

    def _each(self, call: cst.Call, method: str) -> Many:
        """A call for each tensor by itself, in a comprehension where it stands."""
        new = method not in (
            "to",
            "float",
            "double",
            "cpu",
            "cuda",
            "contiguous",
            "type",
            "type_as",
            "detach",
        )
        new = new and method not in ("half", "bfloat16")
        if isinstance(call.func, cst.Attribute) and method in _EACH and not self._plain(call.func.value):
            many = self._expression(call.func.value)
            if not isinstance(many, Many) or any(self._of_round(arg.value) for arg in call.args):
                raise self._cannot(call, f"{self._flat(call)} has no form for all tensors at once")
            name = self.fresh("each")
            given = ", ".join(self._flat(arg) for arg in call.args)
            return Many(text=f"[{name}.{method}({given}) for {name} in {many.text}]", new=new or many.new)
        for arg in call.args:
            if self._of_round(arg.value) and not self._plain(arg.value):
                raise self._cannot(call, f"{self._flat(call)} has no form for all tensors at once")
        names = self.names_of_round(call)
        if not names:
            raise self._cannot(call, f"{self._flat(call)} is asked anew in each round")
        lists = [self._entry(name).text for name in names]
        over = lists[0] if len(lists) == 1 else f"zip({', '.join(lists)})"
        return Many(text=f"[{self.spelled(call)} for {', '.join(names)} in {over}]", new=new)

    def names_of_round(self, node: cst.CSTNode) -> list[str]:
        """The loop's own names in an expression, those that other names stand for included."""
        found: list[str] = []
        for name in self._names_in(node):
            whole = self._aliases.get(name, name)
            found += [one for one in re.findall(r"\w+", whole) if one in self._targets]
        return list(dict.fromkeys(found))

    def _plain(self, node: cst.BaseExpression) -> bool:
        """A tensor of the round, or its dtype, device or shape."""
        if isinstance(node, cst.Attribute) and node.attr.value in _FACTS:
            return self._plain(node.value)
        return bool(self._same(node))

    def _same(self, node: cst.BaseExpression) -> str:
        """The tensor of the round that an expression is, spelled with the loop's own names, "" for none."""
        if isinstance(node, cst.Name):
            if node.value in self._targets:
                return node.value
            return self._aliases.get(node.value, "")
        if isinstance(node, cst.Attribute) and node.attr.value in _SAME_MEMORY:
            inner = self._same(node.value)
            return f"{inner}.{node.attr.value}" if inner else ""
        if isinstance(node, cst.Call) and last_name(node.func) == "detach" and not node.args:
            inner = self._same(node.func.value) if isinstance(node.func, cst.Attribute) else ""
            return f"{inner}.detach()" if inner else ""
        if isinstance(node, cst.Subscript) and len(node.slice) == 1:
            index = node.slice[0].slice
            by = index.value if isinstance(index, cst.Index) and index.star is None else None
            if isinstance(by, cst.Name) and by.value in self._targets and self._fixed(node.value):
                self.held[self._flat(node.value)] = node.value
                return f"{self._flat(node.value)}[{by.value}]"
        return ""

    def _fixed(self, node: cst.CSTNode) -> bool:
        """A chain of names that the loop does not bind."""
        while isinstance(node, cst.Attribute):
            node = node.value
        return isinstance(node, cst.Name) and node.value not in self._own

    def _entry(self, key: str) -> Many:
        if key not in self.body.entries:
            self.body.entries[key] = self.fresh(_plural(key))
        return Many(text=self.body.entries[key], key=key)

    def fresh(self, wanted: str) -> str:
        """A name that the file does not have."""
        name, number = wanted, 2
        if wanted in self._taken or keyword.iskeyword(wanted):
            name = f"{wanted.removesuffix('s')}_list"
        while name in self._taken or keyword.iskeyword(name):
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name

    def _arguments(self, call: cst.Call) -> tuple[list[cst.BaseExpression], dict[str, cst.BaseExpression]]:
        if any(arg.star for arg in call.args):
            raise self._cannot(call, "what * hands over is not known")
        positional = [arg.value for arg in call.args if arg.keyword is None]
        return positional, {arg.keyword.value: arg.value for arg in call.args if arg.keyword is not None}

    # -- what is the same in every round -----------------------------------------------------------------

    def _number(self, node: cst.BaseExpression) -> Number:
        if not self._computes(node):
            raise self._cannot(node, f"{self._flat(node)} is asked anew in each round")
        kind = "number" if literal(node) else self._numbers.kind(self.code, node)
        if not kind:
            raise self._cannot(node, f"{self._flat(node)} is not shown to be a number")
        return Number(text=self._flat(node), node=node, tensor=kind == "scalar")

    def _computes(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.BinaryOperation):
            return self._computes(node.left) and self._computes(node.right)
        if isinstance(node, cst.UnaryOperation):
            return self._computes(node.expression)
        if isinstance(node, cst.Attribute):
            return self._computes(node.value)
        if isinstance(node, cst.Subscript):
            return self._computes(node.value) and all(
                isinstance(one.slice, cst.Index) and self._computes(one.slice.value) for one in node.slice
            )
        if isinstance(node, cst.Call):
            whole = self.code.qualified(node.func)
            builtin = isinstance(node.func, cst.Name) and node.func.value in _OF_NUMBERS and not whole
            return (builtin or whole.startswith("math.")) and all(
                not arg.star and self._computes(arg.value) for arg in node.args
            )
        return isinstance(node, cst.Name | cst.SimpleString) or literal(node)

    def _require_number(self, node: cst.CSTNode, op: str, one: Many | Number) -> None:
        if isinstance(one, Number) and one.tensor and op != "mul":
            raise self._cannot(node, f"{one.text} is a tensor, which {op} takes no list form with")

    def _require_many(self, node: cst.CSTNode, one: Many | Number) -> None:
        if not isinstance(one, Many):
            raise self._cannot(node, f"{one.text} is no tensor of the round")

    def _look_at(self, node: cst.CSTNode, op: str, other: Many | Number | None) -> None:
        """Remember what the list form rounds otherwise on a GPU."""
        if (op == "div" and isinstance(other, Number)) or op in ("pow", "sqrt", "addcmul", "addcdiv"):
            why = f"on a GPU {op} may round otherwise in the list form"
            self.body.inexact.append(Inexact(node=node, why=why))

    # -- text --------------------------------------------------------------------------------------------

    def _of_round(self, node: cst.CSTNode) -> bool:
        return any(name in self._own for name in self._names_in(node))

    def _names_in(self, node: cst.CSTNode) -> list[str]:
        """The names in an expression, in order; attributes and keywords are none."""
        found = []
        for name in self.code.nodes(cst.Name, node):
            if not is_member(self.code, name):
                found.append(name.value)
        return list(dict.fromkeys(found))

    def spelled(self, node: cst.CSTNode) -> str:
        """The text of an expression with the loop's own names in place of those that stand for them."""
        start, _ = self.code.span(node)
        text = self.code.source(node)
        for name in reversed(list(self.code.nodes(cst.Name, node))):
            if name.value in self._aliases and not is_member(self.code, name):
                first, last = (at - start for at in self.code.span(name))
                text = text[:first] + self._aliases[name.value] + text[last:]
        return self._on_a_line(node, text)

    def _flat(self, node: cst.CSTNode) -> str:
        return self._on_a_line(node, self.code.source(node))

    def _on_a_line(self, node: cst.CSTNode, text: str) -> str:
        if "\n" in text and ("#" in text or '"""' in text or "'''" in text):
            raise self._cannot(node, "a comment stands within the expression")
        return re.sub(r"\s*\\?\r?\n\s*", " ", text)

    def _require_pure(self, node: cst.CSTNode) -> None:
        """Raises Cannot where a condition asks something that an operation of the loop may change."""
        for call in self.code.nodes(cst.Call, node):
            name = last_name(call.func)
            whole = self.code.qualified(call.func)
            if whole not in ("torch.is_floating_point", "torch.is_tensor") and (
                whole or name not in (_ASKED | _ASKING)
            ):
                raise self._cannot(node, f"{self._flat(call)} is asked of each tensor by itself")
        for one in self.code.nodes(cst.Attribute, node):
            root = self._root(one)
            if root in self._own and one.attr.value not in _ASKED:
                raise self._cannot(node, f"{self._flat(one)} is asked of each tensor by itself")
        kinds = (cst.Lambda, cst.ListComp, cst.GeneratorExp, cst.NamedExpr, cst.Await, cst.IfExp, cst.SetComp)
        for kind in kinds:
            if any(True for _ in self.code.nodes(kind, node)):
                raise self._cannot(node, "what it asks of each tensor is not looked into")
        for name in self._names_in(node):
            if name in self._values:
                raise self._cannot(node, f"{name} is asked of each tensor by itself")
        for test in [node, *self.code.nodes(cst.BooleanOperation, node)]:
            parts = [test.left, test.right] if isinstance(test, cst.BooleanOperation) else [test]
            for part in parts:
                bare = part.expression if isinstance(part, cst.UnaryOperation) else part
                if isinstance(bare, cst.BaseExpression) and self._same(bare):
                    raise self._cannot(node, "the value of each tensor is asked for")
        for comparison in self.code.nodes(cst.Comparison, node):
            sides = [
                (comparison.left, None),
                *((one.comparator, one.operator) for one in comparison.comparisons),
            ]
            by_value = any(
                operator is not None and not isinstance(operator, cst.Is | cst.IsNot | cst.In | cst.NotIn)
                for _, operator in sides
            )
            within = any(isinstance(operator, cst.In | cst.NotIn) for _, operator in sides)
            tensors = [one for one, _ in sides if self._same(one) and not self._is_text(one)]
            if (by_value or within) and tensors:
                raise self._cannot(node, "the value of each tensor is asked for")

    def _is_text(self, node: cst.BaseExpression) -> bool:
        """Whether a loop name is the first of a pair of ``named_parameters`` or ``items``."""
        target = self.loop.target
        pairs = [target] if isinstance(target, cst.Tuple) else []
        pairs += self.code.nodes(cst.Tuple, target)
        firsts = {last_name(one.elements[0].value) for one in pairs if len(one.elements) == 2}
        return isinstance(node, cst.Name) and node.value in firsts

    def _root(self, node: cst.CSTNode) -> str | None:
        while isinstance(node, cst.Attribute | cst.Subscript | cst.Call):
            node = node.func if isinstance(node, cst.Call) else node.value
        return node.value if isinstance(node, cst.Name) else None

    def _cannot(self, node: cst.CSTNode, why: str) -> Cannot:
        return Cannot(why, str(self.code.path), self.code.line(node))


def call_of(
    torch: str, op: str, operands: Sequence[Many | Number], keywords: Sequence[tuple[str, Number]] = ()
) -> str:
    """``torch._foreach_add_(a, b, alpha=0.1)``."""
    given = [one.text for one in operands] + [f"{name}={one.text}" for name, one in keywords]
    return f"{torch}._foreach_{op}({', '.join(given)})"


def makes_new(node: cst.BaseExpression) -> bool:
    """Whether an expression is a tensor that torch made there: ``p.data.clone().detach()``."""
    while isinstance(node, cst.Call | cst.Attribute):
        if isinstance(node, cst.Call) and last_name(node.func) in _MADE:
            return True
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            if node.func.attr.value not in _EACH:
                return False
            node = node.func.value
        elif isinstance(node, cst.Attribute) and node.attr.value == "data":
            node = node.value
        else:
            return False
    return False


def _counts(target: cst.BaseExpression, iterable: cst.BaseExpression) -> Iterator[str]:
    """The names of a loop that count its rounds, or are the names of parameters."""
    parts = [one.value for one in target.elements] if isinstance(target, cst.Tuple | cst.List) else []
    if not isinstance(iterable, cst.Call):
        return
    name, given = last_name(iterable.func), [arg.value for arg in iterable.args if arg.keyword is None]
    if name == "range":
        yield last_name(target)
    elif name == "enumerate" and len(parts) == 2:
        yield last_name(parts[0])
        yield from _counts(parts[1], given[0])
    elif name == "zip":
        for part, one in zip(parts, given, strict=False):
            yield from _counts(part, one)
    elif name in ("named_parameters", "named_buffers", "items") and len(parts) == 2:
        yield last_name(parts[0])


def _is_continue(body: Sequence[cst.CSTNode]) -> bool:
    only = body[0] if len(body) == 1 else None
    small = only.body if isinstance(only, cst.SimpleStatementLine) else [only]
    return len(small) == 1 and isinstance(small[0], cst.Continue)


def _asks_floating(text: str) -> bool:
    return _FLOATING in text and not re.search(r"\b(or|not)\b", text)


def _loose(node: cst.CSTNode) -> bool:
    """Whether it needs parentheses beside ``and``."""
    return isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.Or)


def _innermost(call: cst.Call) -> cst.BaseExpression:
    """What a chain of changes in place is of."""
    node: cst.BaseExpression = call
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        if not node.func.attr.value.endswith("_"):
            break
        node = node.func.value
    return node


def _plural(key: str) -> str:
    """What a list of such tensors is called: ``grads`` of ``p.grad.data``."""
    plain = key.replace(".detach()", "").removesuffix(".data")
    if "[" in plain:
        plain = plain.partition("[")[0]
    name = plain.rpartition(".")[2]
    return f"{name}_list" if name.endswith(("s", "y")) else f"{name}s"
