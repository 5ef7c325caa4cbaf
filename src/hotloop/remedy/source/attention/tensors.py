"""What source says of tensors: what a name stands for where it is read, dimensions, if two are made alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import libcst as cst

from hotloop.remedy.source.attention.settled import settled
from hotloop.remedy.source.code import Code, Function, argument, is_self, last_name, literal

_DEPTH: Final = 24
#: Methods that leave the number of dimensions as it is.
_SAME_RANK: Final = frozenset([
    "transpose", "contiguous", "float", "half", "to", "type", "type_as", "softmax", "mul", "div", "add",
    "sub", "masked_fill", "clone", "detach", "flip", "roll", "split", "chunk", "swapaxes", "masked_fill_",
    "mul_", "div_", "add_", "bmm", "permute", "repeat_interleave", "cuda", "dropout", "normalize",
])  # fmt: skip
#: What makes rows of rows, in the same order and of the same number, each by itself.
_ALIKE: Final = frozenset([
    "view", "reshape", "transpose", "permute", "split", "chunk", "unbind", "unflatten", "flatten",
    "contiguous", "squeeze", "unsqueeze", "float", "to", "type_as", "size", "rearrange", "normalize",
])  # fmt: skip
_LAYERS: Final = frozenset([
    "torch.nn.Linear", "torch.nn.LayerNorm", "torch.nn.RMSNorm", "torch.nn.Identity", "torch.nn.Dropout",
])  # fmt: skip
#: What gives several tensors.
_PARTS: Final = frozenset(["split", "chunk", "tensor_split", "unbind"])
_DIVIDES: Final = re.compile(r"\.(?:split|chunk)\(([^()]*)\)")
_SIZED: Final = re.compile(r"\.(?:view|reshape)\((?![^()]*-1)[^()]*\)")
_NUMBERS: Final = frozenset(["numpy.sqrt", "numpy.power"])
_CONVERTS: Final = frozenset(["float", "int", "len"])
_PLAIN: Final = frozenset(["pow", "max", "min", "abs", "round"])
_SIZED_LAYERS: Final = frozenset(
    ["torch.nn.Linear", "torch.nn.Conv1d", "torch.nn.Conv2d", "torch.nn.LayerNorm"]
)
_ARITHMETIC: Final = (cst.Add, cst.Subtract, cst.Multiply, cst.Divide, cst.FloorDivide, cst.Power)


class Tensors:
    """Asks of one file, among all ``codes`` that ran."""

    def __init__(self, code: Code, codes: Sequence[Code]) -> None:
        self.code, self.codes = code, codes

    def binding(self, name: cst.Name) -> tuple[cst.CSTNode, cst.CSTNode] | None:
        """The statement that a local name has its value from where it is read, and the name there.

        None for a parameter, and where that depends on which way the function went.
        """
        code, function = self.code, self.code.function_of(name)
        here = code.statement_of(name)
        if function is None or here is None:
            return None
        found: tuple[cst.CSTNode, cst.CSTNode] | None = None
        for one in sorted(code.assignments(name, name.value), key=lambda one: code.begin(one.node)):
            if code.function_of(one.node) is not function or isinstance(one.node, cst.Param):
                continue
            statement = code.statement_of(one.node)
            if statement is None or code.span(statement)[0] >= code.span(here)[0]:
                if statement is not None and self._comes_around(statement, here):
                    return None
                continue
            block, around = code.parents[statement], code.parents.get(here)
            while around is not None and around is not block:
                around = code.parents.get(around)
            if around is None or not isinstance(statement, cst.SimpleStatementLine):
                return None
            found = statement, one.node
        return found

    def given(self, name: cst.Name) -> tuple[cst.BaseExpression, int | None] | None:
        """The expression a local name stands for where it is read; with the place in it of ``a, b = ...``."""
        bound = self.binding(name)
        if bound is None:
            return self._constant(name)
        above = self.code.parents.get(bound[1])
        if isinstance(above, cst.AssignTarget):
            assign = self.code.parents[above]
            return (assign.value, None) if isinstance(assign, cst.Assign) else None
        if isinstance(above, cst.AnnAssign):
            return (above.value, None) if above.value is not None else None
        outer = self.code.parents.get(above) if isinstance(above, cst.Element) else None
        target = self.code.parents.get(outer) if outer is not None else None
        whole = self.code.parents.get(target) if isinstance(target, cst.AssignTarget) else None
        if not isinstance(outer, cst.Tuple | cst.List) or not isinstance(whole, cst.Assign):
            return None
        if any(isinstance(one, cst.StarredElement) for one in outer.elements):
            return None
        at = next(i for i, one in enumerate(outer.elements) if one is above)
        value = whole.value
        if isinstance(value, cst.Tuple) and len(value.elements) == len(outer.elements):
            return value.elements[at].value, None
        return value, at

    def _comes_around(self, later: cst.CSTNode, here: cst.CSTNode) -> bool:
        """Whether a loop goes from a statement back to one before it."""
        around = self.code.parents.get(here)
        while around is not None and not isinstance(around, cst.FunctionDef):
            if isinstance(around, cst.For | cst.While) and self.code.holds(around, later):
                return True
            around = self.code.parents.get(around)
        return False

    def settled(self, node: cst.Attribute, *, tensor: bool = False) -> cst.BaseExpression | None:
        """What ``self.NAME`` is made as, where that is all it ever is."""
        owner = self.code.above(node, cst.ClassDef)
        if owner is None:
            return None
        return settled(self.code, self.codes, owner, node.attr.value, tensor=tensor)

    def _constant(self, name: cst.Name) -> tuple[cst.BaseExpression, int | None] | None:
        bound = self.code.assignments(name, name.value)
        above = self.code.parents.get(bound[0].node) if len(bound) == 1 else None
        if len(bound) != 1 or self.code.function_of(bound[0].node) is not None:
            return None
        assign = self.code.parents[above] if isinstance(above, cst.AssignTarget) else None
        return (assign.value, None) if isinstance(assign, cst.Assign) else None

    # -- dimensions --------------------------------------------------------------------------------------

    def rank(self, node: cst.BaseExpression, depth: int = _DEPTH) -> int | None:
        """How many dimensions a tensor has, None where source does not tell."""
        if depth == 0:
            return None
        if isinstance(node, cst.Name):
            found = self.given(node)
            if found is None:
                return self._rank_by_shape(node)
            value, at = found
            if at is not None and isinstance(value, cst.GeneratorExp | cst.ListComp):
                return self.rank(value.elt, depth - 1)
            inner = self.rank(value, depth - 1)
            if at is None or inner is None:
                return inner
            whole = self._behind(value)
            splits = isinstance(whole, cst.Call) and last_name(whole.func) in _PARTS
            return inner if splits else inner - 1
        if isinstance(node, cst.BinaryOperation):
            left = self.rank(node.left, depth - 1)
            if isinstance(node.operator, cst.MatrixMultiply) or left is not None:
                return left
            return None
        if isinstance(node, cst.Subscript) and len(node.slice) == 1:
            index = node.slice[0].slice
            inner = self.rank(node.value, depth - 1)
            is_number = isinstance(index, cst.Index) and isinstance(index.value, cst.Integer)
            return inner - 1 if is_number and inner is not None else None
        return self._rank_of_call(node, depth) if isinstance(node, cst.Call) else None

    def _rank_by_shape(self, node: cst.Name) -> int | None:
        """As many as there are names in ``B, T, C = x.shape``."""
        code, function = self.code, self.code.function_of(node)
        for assign in code.nodes(cst.Assign, function) if function is not None else ():
            target, value = assign.targets[0].target, assign.value
            of = value.func if isinstance(value, cst.Call) and not value.args else value
            if isinstance(target, cst.Tuple) and isinstance(of, cst.Attribute) and _is_shape(value):
                plain = all(isinstance(one, cst.Element) for one in target.elements)
                bound = code.assignments(node, node.value)
                if (
                    isinstance(of.value, cst.Name)
                    and of.value.value == node.value
                    and plain
                    and len(bound) == 1
                ):
                    return len(target.elements)
        return None

    def _rank_of_call(self, node: cst.Call, depth: int) -> int | None:
        name, whole = last_name(node.func), self.code.qualified(node.func)
        args = [arg for arg in node.args if arg.keyword is None and not arg.star]
        if name == "bmm":
            return 3
        if whole.startswith("torch."):
            first = args[0].value if args else None
            kept = name in _SAME_RANK or name == "matmul"
            return self.rank(first, depth - 1) if kept and first is not None else None
        if not isinstance(node.func, cst.Attribute):
            return None
        owner = self.code.above(node, cst.ClassDef)
        if is_self(node.func.value) and owner is not None:
            made = attributes(self.code, owner, name)
            layers = [self.code.qualified(one.func) if isinstance(one, cst.Call) else "" for one in made]
            kept = bool(layers) and all(layer in _LAYERS for layer in layers) and len(args) == 1
            return self.rank(args[0].value, depth - 1) if kept else None
        if name in ("view", "reshape", "permute", "expand"):
            if len(args) != len(node.args):
                return None
            if len(args) == 1 and isinstance(args[0].value, cst.Tuple | cst.List):
                return len(args[0].value.elements)
            return len(args) if len(args) > 1 else None
        inner = self.rank(node.func.value, depth - 1)
        if inner is None:
            return None
        if name == "unsqueeze":
            return inner + 1
        if name == "unbind":
            return inner - 1
        return inner if name in _SAME_RANK else None

    def _behind(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """What a name stands for, through other names."""
        for _ in range(_DEPTH):
            found = self.given(node) if isinstance(node, cst.Name) else None
            if found is None or found[1] is not None:
                break
            node = found[0]
        return node

    # -- numbers -----------------------------------------------------------------------------------------

    def is_number(self, node: cst.BaseExpression, depth: int = _DEPTH) -> bool:
        """Whether an expression is a number of Python's for certain."""
        if depth == 0:
            return False
        code = self.code

        def is_one(other: cst.BaseExpression) -> bool:
            return self.is_number(other, depth - 1)

        if isinstance(node, cst.Integer | cst.Float):
            return True
        if isinstance(node, cst.UnaryOperation):
            return isinstance(node.operator, cst.Minus | cst.Plus) and is_one(node.expression)
        if isinstance(node, cst.BinaryOperation):
            return isinstance(node.operator, _ARITHMETIC) and is_one(node.left) and is_one(node.right)
        if isinstance(node, cst.BooleanOperation):
            return is_one(node.left) and is_one(node.right)
        if isinstance(node, cst.Call):
            whole, given = code.qualified(node.func), [arg.value for arg in node.args]
            if whole.startswith("math.") or self._is_plain(node.func, _CONVERTS):
                return True
            if whole in _NUMBERS or self._is_plain(node.func, _PLAIN):
                return all(map(is_one, given))
            return last_name(node.func) == "size" and len(given) == 1
        if isinstance(node, cst.Subscript):
            return isinstance(node.value, cst.Attribute) and node.value.attr.value == "shape"
        if isinstance(node, cst.Name):
            found = self.given(node)
            if found is None:
                return self._is_handed_in(node)
            value, at = found
            return _is_shape(value) if at is not None else is_one(value)
        if isinstance(node, cst.Attribute) and is_self(node.value):
            made = self.settled(node)
            return made is not None and is_one(made)
        return isinstance(node, cst.Attribute) and self._is_field(node)

    def _is_plain(self, func: cst.BaseExpression, names: frozenset[str]) -> bool:
        return (
            isinstance(func, cst.Name) and func.value in names and not self.code.assignments(func, func.value)
        )

    def _is_field(self, node: cst.Attribute) -> bool:
        """Whether it is a field of what the constructor is given: ``config.n_head``."""
        return isinstance(node.value, cst.Name) and any(
            isinstance(one.node, cst.Param) and last_name(function.name) == "__init__"
            for one in self.code.assignments(node, node.value.value)
            if (function := self.code.function_of(one.node)) is not None
        )

    def _is_handed_in(self, name: cst.Name) -> bool:
        """Whether a parameter is a number: it says so, or a constructor makes sizes of it."""
        bound = self.code.assignments(name, name.value)
        if len(bound) != 1 or not isinstance(param := bound[0].node, cst.Param):
            return False
        function, said = self.code.function_of(param), param.annotation
        number = isinstance(param.default, cst.Integer | cst.Float)
        if function is None or number or (said and last_name(said.annotation) in ("int", "float")):
            return function is not None
        if last_name(function.name) != "__init__":
            return False
        none = param.default is not None and last_name(param.default) == "None"
        return self._is_never_given(function, param) if none else self._is_size(function, name.value)

    def _is_size(self, function: Function, name: str) -> bool:
        """Whether a constructor counts with a parameter: layers of that size, a part of it without a rest."""
        for one in self.code.nodes(cst.Name, function.body):
            above = self.code.parents[one]
            if one.value == name and isinstance(above, cst.BinaryOperation):
                if isinstance(above.operator, cst.FloorDivide | cst.Modulo):
                    return True
            elif one.value == name and isinstance(above, cst.Arg):
                call = self.code.parents[above]
                if isinstance(call, cst.Call) and self.code.qualified(call.func) in _SIZED_LAYERS:
                    return True
        return False

    def _is_never_given(self, function: Function, param: cst.Param) -> bool:
        """Whether nobody gives a parameter of a constructor anything but None, a number or itself."""
        names = [one.name.value for one in (*function.params.params, *function.params.kwonly_params)]
        owner, name = self.code.above(function, cst.ClassDef), param.name.value
        for code in self.codes:
            for call in code.nodes(cst.Call):
                mine = owner is not None and last_name(call.func) == owner.name.value
                value = argument(call, name, names.index(name) - 1 if mine else None)
                if mine and any(arg.star for arg in call.args):
                    return False
                if value is not None and not literal(value) and code.source(value) != name:
                    return False
        return True

    # -- alike -------------------------------------------------------------------------------------------

    def made_alike(self, one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
        """Whether two tensors come from the same one by the same steps, each of which keeps its rows."""
        first, second = self._making(one, _DEPTH), self._making(other, _DEPTH)
        parts = [one for one in _DIVIDES.finditer(first) if not re.search(r"(, |=)-1$", one[1])]
        uneven = any(not _SIZED.search(first, one.end()) for one in parts)
        return bool(first) and first == second and not uneven

    def _making(self, node: cst.BaseExpression, depth: int, inner: dict[str, str] | None = None) -> str:
        """How a tensor is made, without the names of its layer and its part; "" where that is not known."""
        code, inner = self.code, inner or {}
        if depth == 0:
            return ""
        if isinstance(node, cst.Name):
            if node.value in inner:
                return inner[node.value]
            found = self.given(node)
            if found is None:
                params = [o for o in code.assignments(node, node.value) if isinstance(o.node, cst.Param)]
                others = [o for o in code.assignments(node, node.value) if o not in params]
                return f"<{node.value}>" if params and not others else ""
            value, at = found
            if at is not None and isinstance(value, cst.GeneratorExp | cst.ListComp):
                return self._making_of_each(value, at, depth - 1)
            made = self._making(value, depth - 1, inner)
            return f"{made}[part]" if at is not None and made else made
        if isinstance(node, cst.BinaryOperation):
            left = self._making(node.left, depth - 1, inner)
            scaled = isinstance(node.operator, cst.Multiply | cst.Divide) and self.is_number(node.right)
            return left if scaled else ""
        if isinstance(node, cst.Subscript):
            made = self._making(node.value, depth - 1, inner)
            index = node.slice[0].slice if len(node.slice) == 1 else None
            is_number = isinstance(index, cst.Index) and isinstance(index.value, cst.Integer)
            stacked = made.endswith((")", ")[part]"))
            return f"{made}[part]" if made and is_number and stacked else ""
        if not isinstance(node, cst.Call):
            return ""
        func = node.func
        if isinstance(func, cst.Attribute) and is_self(func.value):
            owner = code.above(node, cst.ClassDef)
            values = list(attributes(code, owner, func.attr.value)) if owner is not None else []
            layers = [code.qualified(one.func) if isinstance(one, cst.Call) else "" for one in values]
            if not layers or any(layer not in _LAYERS for layer in layers) or len(node.args) != 1:
                return ""
            made = self._making(node.args[0].value, depth - 1, inner)
            return f"layer({made})" if made else ""
        name = last_name(func)
        if name not in _ALIKE:
            return ""
        if isinstance(func, cst.Attribute) and not code.qualified(func):
            receiver, args = func.value, list(node.args)
        elif node.args:
            receiver, args = node.args[0].value, list(node.args[1:])
        else:
            return ""
        made = self._making(receiver, depth - 1, inner)
        texts = [re.sub(r"\s+", "", code.source(arg)) for arg in args]
        rank = self.rank(receiver) if name in _PARTS and len(texts) == 2 else None
        if rank is not None and texts[1].removeprefix("dim=") == str(rank - 1):
            texts[1] = "-1"
        given = ", ".join(texts)
        return f"{made}.{name}({given})" if made else ""

    def _making_of_each(self, node: cst.GeneratorExp | cst.ListComp, at: int, depth: int) -> str:
        """The same of ``(f(t) for t in (q, k, v))``."""
        loop = node.for_in
        if not isinstance(loop.target, cst.Name) or loop.ifs or loop.inner_for_in is not None:
            return ""
        if isinstance(loop.iter, cst.Tuple | cst.List):
            if at >= len(loop.iter.elements):
                return ""
            item = self._making(loop.iter.elements[at].value, depth)
        else:
            item = self._making(loop.iter, depth)
            item = f"{item}[part]" if item else ""
        return self._making(node.elt, depth, {loop.target.value: item}) if item else ""


def attributes(code: Code, owner: cst.ClassDef, name: str) -> list[cst.BaseExpression]:
    """Everything ``self.NAME`` is bound to in a class; nothing where one of it cannot be told."""
    found: list[cst.BaseExpression] = []
    for node in code.nodes(cst.Attribute, owner):
        above = code.parents.get(node)
        if node.attr.value != name or not is_self(node.value):
            continue
        if isinstance(above, cst.AssignTarget):
            assign = code.parents[above]
            if not isinstance(assign, cst.Assign):
                return []
            found.append(assign.value)
        elif isinstance(above, cst.AnnAssign) and above.target is node:
            found += [above.value] if above.value is not None else []
        elif isinstance(above, cst.AugAssign) and above.target is node:
            return []
        elif isinstance(above, cst.Element) and isinstance(outer := code.parents[above], cst.Tuple):
            target = code.parents[outer]
            assign = code.parents[target] if isinstance(target, cst.AssignTarget) else target
            if not isinstance(assign, cst.Assign):
                continue
            value = assign.value
            if isinstance(value, cst.GeneratorExp | cst.ListComp):
                found.append(value.elt)
            elif isinstance(value, cst.Tuple) and len(value.elements) == len(outer.elements):
                found.append(value.elements[outer.elements.index(above)].value)
            elif isinstance(target, cst.AssignTarget):
                return []
    return found


def buffers(code: Code, owner: cst.ClassDef) -> dict[str, cst.BaseExpression]:
    """The buffers and parameters that a class registers by name."""
    found = {}
    for call in code.nodes(cst.Call, owner):
        if last_name(call.func) in ("register_buffer", "register_parameter"):
            name, value = argument(call, "name", 0), argument(call, "tensor", 1) or argument(call, "param", 1)
            if isinstance(name, cst.SimpleString) and value is not None:
                found[str(name.evaluated_value)] = value
    return found


def _is_shape(node: cst.BaseExpression) -> bool:
    """``x.shape``, ``x.size()``, and parts of it."""
    if isinstance(node, cst.Subscript):
        return _is_shape(node.value)
    if isinstance(node, cst.Call):
        return last_name(node.func) == "size" and not node.args
    return isinstance(node, cst.Attribute) and node.attr.value == "shape"
