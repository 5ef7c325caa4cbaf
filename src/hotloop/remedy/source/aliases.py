"""Which variables may share memory, by what they are given: an array, its views, and what holds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeGuard

import libcst as cst

from hotloop.remedy.source.code import Code, is_self, last_name

#: Modules whose functions only read what they are given, but for those told apart.
READ_ONLY: Final = ("numpy.", "torch.", "sklearn.", "math.")
#: Of their functions the ones whose result shares the memory of what they are given.
_SHARE: Final = frozenset([
    "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "from_numpy", "as_tensor", "frombuffer",
    "from_dlpack", "reshape", "ravel", "transpose", "permute", "squeeze", "unsqueeze", "swapaxes", "moveaxis",
    "split", "array_split", "chunk", "atleast_1d", "atleast_2d", "atleast_3d", "expand_dims", "broadcast_to",
    "narrow", "unbind", "as_strided", "sliding_window_view",
])  # fmt: skip
#: Methods whose result has memory of its own.
_NEW: Final = frozenset([
    "copy", "clone", "deepcopy", "astype", "mean", "std", "var", "min", "max", "sum", "fit_transform",
    "transform",
])  # fmt: skip

#: Attributes and methods of an array or a tensor that hand on its memory.
_WHOLE: Final = frozenset(["T", "data", "real", "values", "view", "numpy", "detach", "to_numpy"])


def values_of(codes: Iterable[Code]) -> dict[str, set[str]]:
    """Variable -> those whose memory it may share, by what it is given anywhere."""
    found: dict[str, set[str]] = {}
    for code in codes:
        for assign in code.nodes(cst.Assign):
            for target in assign.targets:
                parts = _parts(target.target)
                values = _parts(assign.value) if len(parts) > 1 else [assign.value]
                same = len(values) == len(parts)
                for at, part in enumerate(parts):
                    if isinstance(part, cst.Name):
                        given = shared(code, values[at] if same else assign.value)
                        found.setdefault(part.value, set()).update(given)
        loops: list[cst.For | cst.CompFor] = [*code.nodes(cst.For), *code.nodes(cst.CompFor)]
        for loop in loops:
            for name in code.nodes(cst.Name, loop.target):
                found.setdefault(name.value, set()).update(shared(code, loop.iter))
    return found


def _parts(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    return [one.value for one in node.elements] if isinstance(node, cst.Tuple) else [node]


def shared(code: Code, node: cst.CSTNode) -> set[str]:
    """Variables whose memory the value of an expression may share; of a new object none."""
    if isinstance(node, cst.Name):
        return {node.value} - {"None", "True", "False"}
    if isinstance(node, cst.Attribute | cst.Subscript):
        return shared(code, node.value)
    if isinstance(node, cst.BinaryOperation | cst.Comparison | cst.UnaryOperation):
        return set()
    if isinstance(node, cst.Call):
        name, whole = last_name(node.func), code.qualified(node.func)
        if name in _NEW or (whole.startswith(READ_ONLY) and name not in _SHARE):
            return set()
        owner = node.func.value if isinstance(node.func, cst.Attribute) and not whole else None
        found = shared(code, owner) if owner is not None else set()
        return found.union(*(shared(code, arg.value) for arg in node.args))
    return set().union(*(shared(code, child) for child in node.children))


def viewed(code: Code, node: cst.CSTNode) -> cst.BaseExpression | None:
    """The variable, or attribute of ``self``, that an expression is all or a part of, in the same memory."""
    if isinstance(node, cst.Name) or is_of_self(node):
        return node
    if isinstance(node, cst.Subscript):
        return viewed(code, node.value)
    if isinstance(node, cst.Attribute):
        return viewed(code, node.value) if node.attr.value in _WHOLE else None
    if not isinstance(node, cst.Call) or last_name(node.func) not in _SHARE | _WHOLE:
        return None
    if isinstance(node.func, cst.Attribute) and not code.qualified(node.func):
        return viewed(code, node.func.value)
    return viewed(code, node.args[0].value) if node.args else None


def views_of(codes: Iterable[Code]) -> Iterator[tuple[cst.BaseExpression, str]]:
    """What is given another name, all or a part of it, and that name."""
    for code in codes:
        for assign in code.nodes(cst.Assign):
            for target in assign.targets:
                parts, values = _parts(target.target), _parts(assign.value)
                for part, value in zip(parts, values, strict=False) if len(parts) == len(values) else ():
                    if isinstance(part, cst.Name) and (given := viewed(code, value)) is not None:
                        yield given, part.value


def is_of_self(node: cst.CSTNode) -> TypeGuard[cst.Attribute]:
    """Whether a node is ``self.NAME``."""
    return isinstance(node, cst.Attribute) and is_self(node.value)
