"""Whether an optimizer does nothing but arithmetic on each element: only then its updates show all of it.

What is not known here is refused: reductions and shapes, which make an update depend on more than the
element, attributes of its own, conditions on anything but counts and settings, and all that reaches beyond.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from hotloop.remedy.source.scene import Cannot

_ELEMENTWISE: Final = frozenset([
    "add", "sub", "mul", "div", "addcmul", "addcdiv", "sqrt", "rsqrt", "square", "pow", "lerp", "neg", "abs",
    "reciprocal", "maximum", "max",
])  # fmt: skip
_TORCH: Final = frozenset([
    "zeros_like", "ones_like", "full_like", "clone", "no_grad", "enable_grad", "preserve_format", "Tensor",
    "nn.Parameter", "optim.Optimizer", "optim.optimizer.Optimizer",
])  # fmt: skip
_MATH: Final = frozenset(["math.sqrt", "math.pow", "math.exp", "math.log"])
_METHODS: Final = frozenset([
    "clone", "detach", "copy_", "item", "get", "setdefault", "append", "items", "keys", "values",
])  # fmt: skip
_ATTRIBUTES: Final = frozenset(["grad", "data", "is_sparse"])
_OF_SELF: Final = frozenset(["param_groups", "state", "defaults"])
_BUILT_IN: Final = frozenset(["len", "float", "zip", "enumerate", "list", "tuple", "dict", "super", "range"])
_ERRORS: Final = frozenset(["ValueError", "TypeError", "RuntimeError", "NotImplementedError"])
_ALLOWED: Final = (
    ast.Module, ast.Import, ast.ImportFrom, ast.alias, ast.ClassDef, ast.FunctionDef, ast.arguments, ast.arg,
    ast.keyword, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.If, ast.With,
    ast.withitem, ast.Expr, ast.Pass, ast.Continue, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Dict,
    ast.ListComp, ast.GeneratorExp, ast.comprehension, ast.Compare, ast.Call, ast.Constant, ast.Attribute,
    ast.Subscript, ast.Name, ast.List, ast.Tuple, ast.expr_context, ast.boolop, ast.unaryop, ast.cmpop,
    ast.operator,
)  # fmt: skip
_MOST: Final = 10  # that something is compared to: the trial goes well beyond it


def check(source: str, name: str, path: str, line: int) -> None:
    """Raises Cannot where the definition ``source`` of class ``name`` has more than a trial can show."""
    strange = _Definition(source).strange()
    if strange is not None:
        words = f"a trial of {name} would not show all that this does: {_short(strange)}"
        raise Cannot(words, path, line)


class _Definition:
    """The text of a class and of what it needs."""

    def __init__(self, source: str) -> None:
        self._tree = ast.parse(source)
        self._nodes = list(_without_annotations(self._tree))
        functions = [one for one in self._nodes if isinstance(one, ast.FunctionDef)]
        self._functions = {one.name for one in functions}
        self._classes = {one.name for one in self._tree.body if isinstance(one, ast.ClassDef)}
        self._closures = {
            one.args.args[1].arg for one in functions if one.name == "step" and one.args.args[1:]
        }
        self._parameters = {
            id(inner)
            for one in functions
            if one.name == "__init__" and one.args.args[1:]
            for inner in ast.walk(one)
            if isinstance(inner, ast.Name) and inner.id == one.args.args[1].arg
        }
        self._modules = _imported(self._tree)
        self._bound = {one.arg for one in self._nodes if isinstance(one, ast.arg)}
        self._bound |= {
            one.id for one in self._nodes if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)
        }
        self._keys = set(self._written())
        self._called = {id(one.func) for one in self._nodes if isinstance(one, ast.Call)}
        self._parents = {id(child): one for one in self._nodes for child in ast.iter_child_nodes(one)}

    def strange(self) -> ast.AST | None:
        """The first node that is not known."""
        for one in self._tree.body:
            if not isinstance(one, ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef):
                return one
        for node in self._nodes:
            if isinstance(node, ast.ClassDef) and node not in self._tree.body:
                return node
            if not isinstance(node, _ALLOWED) or not self._is_known(node):
                return node
        return next((one for one in self._unread()), None)

    def _unread(self) -> Iterator[ast.AST]:
        """Settings that a scheduler changes and the class does not go by."""
        read = {
            one.slice.value
            for one in self._nodes
            if isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Constant) and _is_load(one)
        }
        for node in self._nodes:
            if isinstance(node, ast.Dict | ast.Call) and _CYCLED & self._named(node) - read:
                yield node

    def _named(self, node: ast.Dict | ast.Call) -> set[object]:
        if isinstance(node, ast.Dict):
            return {one.value for one in node.keys if isinstance(one, ast.Constant)}
        is_dict = isinstance(node.func, ast.Name) and node.func.id == "dict"
        return {one.arg for one in node.keywords} if is_dict else set()

    def _is_known(self, node: ast.AST) -> bool:
        match node:
            case ast.ClassDef():
                return not node.keywords and all(
                    isinstance(one, ast.FunctionDef | ast.Pass) or _is_text(one) for one in node.body
                )
            case ast.FunctionDef():
                inner = [one for one in ast.walk(node) if isinstance(one, ast.FunctionDef)]
                varied = node.args.vararg or node.args.kwarg
                return len(inner) == 1 and not varied and self._is_decorated_plainly(node)
            case ast.Name():
                return self._is_known_name(node)
            case ast.Attribute():
                return self._is_known_attribute(node)
            case ast.Subscript():
                index = node.slice
                return isinstance(index, ast.Name) or (
                    isinstance(index, ast.Constant)
                    and (index.value in self._keys or (index.value in (0, 1) and _is_load(node)))
                )
            case ast.If() | ast.IfExp():
                return not _LR.search(ast.unparse(node.test))
            case ast.BinOp() | ast.AugAssign():
                return isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.Pow)
            case ast.BoolOp():
                return not _LR.search(ast.unparse(node))
            case ast.Compare():
                return not _LR.search(ast.unparse(node)) and self._is_known_comparison(node)
            case ast.Call():
                return self._is_known_call(node)
            case ast.keyword():
                return node.arg is not None
            case ast.Dict():
                return all(isinstance(one, ast.Constant) for one in node.keys)
            case ast.With():
                return all(self._dotted_call(one.context_expr) in _GRAD_MODES for one in node.items)
            case ast.For():
                return not node.orelse
        return True

    def _is_decorated_plainly(self, node: ast.FunctionDef) -> bool:
        return all(
            ast.unparse(one) == "staticmethod" or self._dotted_call(one) in _GRAD_MODES
            for one in node.decorator_list
        )

    def _dotted_call(self, node: ast.expr) -> str:
        return self._dotted(node.func) if isinstance(node, ast.Call) and not node.args else ""

    def _is_known_name(self, node: ast.Name) -> bool:
        name = node.id
        outer = self._modules.keys() | _BUILT_IN | _ERRORS | self._functions | self._classes
        if id(node) in self._parameters:  # on to torch's Optimizer as they are
            call = self._parents[id(node)]
            return isinstance(call, ast.Call) and _is_super(call.func, "__init__")
        if not _is_load(node):
            return name not in outer | {"self"}
        if name in self._modules:
            up = self._parents[id(node)]
            return isinstance(up, ast.Attribute) or _is_known_dotted(self._modules[name])
        if id(node) in self._called:
            return name in _BUILT_IN | self._functions | self._closures
        return name in self._bound or name in self._classes or name == "staticmethod"

    def _dotted(self, node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            before = self._dotted(node.value)
            return f"{before}.{node.attr}" if before else ""
        return self._modules.get(node.id, "") if isinstance(node, ast.Name) else ""

    def _is_known_attribute(self, node: ast.Attribute) -> bool:
        dotted = self._dotted(node)
        if dotted:
            up = self._parents[id(node)]
            return isinstance(up, ast.Attribute) or _is_known_dotted(dotted)
        is_called = id(node) in self._called
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return _is_load(node) and (node.attr in (self._functions if is_called else _OF_SELF))
        if _is_super(node, node.attr):
            return node.attr in ("__init__", "__setstate__")
        if is_called:
            return node.attr in _METHODS or node.attr.removesuffix("_") in _ELEMENTWISE
        changed = isinstance(self._parents[id(node)], ast.AugAssign) and node.attr == "data"
        return node.attr in _ATTRIBUTES and (changed or _is_load(node))

    def _is_known_comparison(self, node: ast.Compare) -> bool:
        if len(node.ops) != 1:
            return False
        left, right = node.left, node.comparators[0]
        if isinstance(node.ops[0], ast.Is | ast.IsNot):
            return isinstance(right, ast.Constant)
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            return isinstance(left, ast.Name) or (isinstance(left, ast.Constant) and left.value in self._keys)
        numbers = [one.value for one in (left, right) if isinstance(one, ast.Constant)]
        return len(numbers) == 1 and numbers[0] in range(_MOST + 1)

    def _is_known_call(self, node: ast.Call) -> bool:
        if any(isinstance(one, ast.Starred) for one in node.args):
            return False
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in ("max", "maximum"):
            return len(node.args) == (2 if self._dotted(node.func) else 1)
        if name in ("get", "setdefault"):
            first = node.args[0] if node.args else None
            return isinstance(first, ast.Name) or (
                isinstance(first, ast.Constant) and first.value in self._keys
            )
        return True

    def _written(self) -> Iterator[object]:
        """Keys that the class itself gives values: of its settings and of its state."""
        yield from ("params", "lr")
        for node in self._nodes:
            if (
                isinstance(node, ast.Subscript)
                and not _is_load(node)
                and isinstance(node.slice, ast.Constant)
            ):
                yield node.slice.value
            elif isinstance(node, ast.Dict | ast.Call):
                yield from self._named(node)
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".setdefault"):
                yield from (one.value for one in node.args[:1] if isinstance(one, ast.Constant))


#: A schedule gives any number, also one that no trial has.
_LR: Final = re.compile(r"lr|rate|step_size")
_CYCLED: Final = frozenset(["betas", "momentum"])
_GRAD_MODES: Final = frozenset(["torch.no_grad", "torch.enable_grad"])


def _is_known_dotted(dotted: str) -> bool:
    if dotted in _MATH:
        return True
    module, _, name = dotted.partition(".")
    plain = name.removeprefix("_foreach_").removesuffix("_")
    return module == "torch" and (name in _TORCH or plain in _ELEMENTWISE)


def _imported(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            for one in node.names:
                short = one.name.partition(".")[0]
                found |= {one.asname: one.name} if one.asname else {short: short}
        elif isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return found


def _without_annotations(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but annotations, and errors with what leads to them: a run that ended well met none."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_refusal(child):
                yield from _without_annotations(child)


def _is_refusal(node: ast.AST) -> bool:
    """``if not 0.0 <= lr: raise ValueError(f"Invalid learning rate: {lr}")``: its test computes nothing."""
    if not isinstance(node, ast.If) or node.orelse or len(node.body) != 1:
        return False
    error = node.body[0]
    if not isinstance(error, ast.Raise) or not isinstance(error.exc, ast.Call):
        return False
    called = [one for one in ast.walk(node) if isinstance(one, ast.Call) and one is not error.exc]
    known = all(isinstance(one.func, ast.Attribute) and one.func.attr == "format" for one in called)
    tested = {one.attr for one in ast.walk(node.test) if isinstance(one, ast.Attribute)}
    of_grad = any(isinstance(one, ast.Name) and "grad" in one.id for one in ast.walk(node.test))
    sparse = "is_sparse" in tested
    return known and ast.unparse(error.exc.func) in _ERRORS and (sparse or not (tested or of_grad))


def _is_super(node: ast.expr, method: str) -> bool:
    """``super().method``, ``super(Mine, self).method``."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == method
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "super"
    )


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_load(node: ast.Name | ast.Attribute | ast.Subscript) -> bool:
    return isinstance(node.ctx, ast.Load)


def _short(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0][:80]
