"""What source says of tensors: what a name stands for where it is read, dimensions, if two are made alike."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from hotloop.remedy.source.code import LITERALS, Code, argument, is_self, last_name

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
_NUMBERS: Final = ("math.", "numpy.sqrt", "numpy.power")
_PLAIN: Final = frozenset(["float", "int", "len", "pow", "max", "min", "abs", "round"])
_ARITHMETIC: Final = (cst.Add, cst.Subtract, cst.Multiply, cst.Divide, cst.FloorDivide, cst.Power)


class Tensors:
    """Asks of one file."""

    def __init__(self, code: Code) -> None:
        self.code = code

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
        """Whether an expression is a number of Python's. What the caller decides passes in arithmetic of
        numbers alone: a tensor there is refused by torch itself, where a number is asked for.
        """
        if depth == 0:
            return False
        if isinstance(node, cst.Integer | cst.Float):
            return True
        if isinstance(node, cst.UnaryOperation):
            return isinstance(node.operator, cst.Minus | cst.Plus) and self.is_number(
                node.expression, depth - 1
            )
        if isinstance(node, cst.BinaryOperation):
            sides = (node.left, node.right)
            return isinstance(node.operator, _ARITHMETIC) and all(
                self.is_number(one, depth - 1) or self._is_size(one, depth - 1) for one in sides
            )
        if isinstance(node, cst.BooleanOperation):
            sides = (node.left, node.right)
            return all(self.is_number(one, depth - 1) or self._is_size(one, depth - 1) for one in sides)
        if isinstance(node, cst.Call):
            whole = self.code.qualified(node.func)
            if whole.startswith(_NUMBERS) or self._is_plain(node.func):
                return all(not self._is_made_by_torch(arg.value, depth - 1) for arg in node.args)
            return last_name(node.func) == "size" and len(node.args) == 1
        if isinstance(node, cst.Subscript):
            return isinstance(node.value, cst.Attribute) and node.value.attr.value == "shape"
        if isinstance(node, cst.Name):
            found = self.given(node)
            if found is None:
                return self._is_parameter_of_numbers(node)
            value, at = found
            return _is_shape(value) if at is not None else self.is_number(value, depth - 1)
        if isinstance(node, cst.Attribute) and is_self(node.value):
            owner = self.code.above(node, cst.ClassDef)
            values = list(attributes(self.code, owner, node.attr.value)) if owner is not None else []
            return bool(values) and all(self.is_number(one, depth - 1) for one in values)
        return False

    def _is_size(self, node: cst.BaseExpression, depth: int) -> bool:
        """Whether nothing says that an operand is a tensor: a size, a field of a configuration."""
        if isinstance(node, cst.Name | cst.Attribute):
            return node_is_plain(node) and not self._is_made_by_torch(node, depth)
        return False

    def _is_made_by_torch(self, node: cst.BaseExpression, depth: int) -> bool:
        """Whether an expression is a tensor, or may be one that something learns."""
        if depth <= 0:
            return True
        if isinstance(node, cst.Call):
            whole = self.code.qualified(node.func)
            is_size = last_name(node.func) in ("size", "item") or self._is_plain(node.func)
            return not is_size and not whole.startswith(_NUMBERS)
        if isinstance(node, cst.Name) and node.value not in LITERALS:
            found = self.given(node)
            return found is not None and found[1] is None and self._is_made_by_torch(found[0], depth - 1)
        if isinstance(node, cst.Attribute) and is_self(node.value):
            owner = self.code.above(node, cst.ClassDef)
            if owner is None or node.attr.value in buffers(self.code, owner):
                return True
            values = attributes(self.code, owner, node.attr.value)
            return any(self._is_made_by_torch(one, depth - 1) for one in values)
        if isinstance(node, cst.BinaryOperation):
            return any(self._is_made_by_torch(one, depth - 1) for one in (node.left, node.right))
        return False

    def _is_plain(self, func: cst.BaseExpression) -> bool:
        return (
            isinstance(func, cst.Name)
            and func.value in _PLAIN
            and not self.code.assignments(func, func.value)
        )

    def _is_parameter_of_numbers(self, name: cst.Name) -> bool:
        """Whether a name is a parameter of the constructor, or says by its default or annotation a number."""
        for one in self.code.assignments(name, name.value):
            if isinstance(one.node, cst.Param):
                function = self.code.function_of(one.node)
                made = function is not None and function.name.value == "__init__"
                default, said = one.node.default, one.node.annotation
                number = isinstance(default, cst.Integer | cst.Float)
                return made or number or (said is not None and last_name(said.annotation) in ("int", "float"))
        return False

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


def derives(code: Code, name: str) -> bool:
    """Whether a file has a class with a base of that name."""
    return any(last_name(base.value) == name for each in code.nodes(cst.ClassDef) for base in each.bases)


def node_is_plain(node: cst.BaseExpression) -> bool:
    """Whether an expression is a name, or fields of one."""
    while isinstance(node, cst.Attribute):
        node = node.value
    return isinstance(node, cst.Name)


def _is_shape(node: cst.BaseExpression) -> bool:
    """``x.shape``, ``x.size()``, and parts of it."""
    if isinstance(node, cst.Subscript):
        return _is_shape(node.value)
    if isinstance(node, cst.Call):
        return last_name(node.func) == "size" and not node.args
    return isinstance(node, cst.Attribute) and node.attr.value == "shape"
