"""Whether an expression is a plain number, or a tensor without dimensions, as far as the text shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import libcst as cst
from libcst import metadata as meta

from hotloop.remedy.source.code import Code, argument, last_name
from hotloop.remedy.source.scene import Scene
from hotloop.remedy.source.values import parameters_of, position_of, text_of, value_of

#: "scalar" for a tensor without dimensions, "" where the text does not show it.
Kind = Literal["number", "scalar", ""]

_OF_ANYTHING: Final = frozenset(["float", "int", "len", "item", "numel"])
_TYPES: Final = frozenset(["float", "int"])
_REGISTERS: Final = frozenset(["register_buffer", "register_parameter", "setattr"])
_OF_NUMBERS: Final = frozenset(["min", "max", "abs", "pow", "round", "sum"])
#: Methods and functions of torch whose result has no dimensions where they are given none.
_REDUCES: Final = frozenset(["sum", "norm", "mean", "max", "min"])
_KEEPS: Final = frozenset(["clamp", "clip", "sqrt", "exp", "abs", "detach", "float", "to", "cpu", "cuda"])
_DEPTH: Final = 8


class Numbers:
    """What the user's code binds names and fields to, asked of each that a number is computed of."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def kind(self, code: Code, node: cst.CSTNode, depth: int = _DEPTH) -> Kind:
        """What an expression is."""
        if depth == 0:
            return ""
        if isinstance(node, cst.Integer | cst.Float):
            return "number"
        if isinstance(node, cst.BinaryOperation):
            return _together(self.kind(code, node.left, depth), self.kind(code, node.right, depth))
        if isinstance(node, cst.UnaryOperation):
            return self.kind(code, node.expression, depth)
        if isinstance(node, cst.IfExp):
            return _together(self.kind(code, node.body, depth), self.kind(code, node.orelse, depth))
        if isinstance(node, cst.Call):
            return self._of_call(code, node, depth)
        if isinstance(node, cst.Subscript):
            return self._of_entry(code, node, depth)
        if isinstance(node, cst.Name):
            return self._of_name(code, node, depth)
        return self._of_field(node.attr.value, depth) if isinstance(node, cst.Attribute) else ""

    def _of_call(self, code: Code, call: cst.Call, depth: int) -> Kind:
        name, whole = last_name(call.func), code.qualified(call.func)
        given = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
        if whole.startswith(("math.", "numpy.")) or (name in _OF_ANYTHING and not whole):
            return "number"
        if isinstance(call.func, cst.Name) and name in _OF_NUMBERS and given:
            return _together(*(self.kind(code, one, depth - 1) for one in given))
        if whole == "torch.tensor" and len(given) == 1:
            return "scalar" if self.kind(code, given[0], depth - 1) == "number" else ""
        if name in ("clip_grad_norm_", "get_total_norm") and whole.startswith("torch."):
            return "scalar"
        of = given.pop(0) if whole.startswith("torch.") and given else None
        if of is None and isinstance(call.func, cst.Attribute) and not whole:
            of = call.func.value
        if of is not None and name in _REDUCES:
            norm = name == "norm" and len(given) == 1 and len(call.args) <= 2
            return "scalar" if norm or (not given and not any(arg.keyword for arg in call.args)) else ""
        if of is not None and name in _KEEPS:
            return "scalar" if self.kind(code, of, depth - 1) else ""
        return self._returned(code, call, depth)

    def _of_entry(self, code: Code, node: cst.Subscript, depth: int) -> Kind:
        index = node.slice[0].slice
        by = index.value if len(node.slice) == 1 and isinstance(index, cst.Index) else None
        if by is None or not isinstance(node.value, cst.Name):
            return ""
        bound = code.assignments(node, node.value.value)
        above = code.parents.get(bound[0].node) if len(bound) == 1 else None
        if isinstance(above, cst.For) and text_of(by) not in (None, "params"):
            return "number" if last_name(above.iter) == "param_groups" else ""
        values = [value_of(code, one.node) for one in bound]
        return _together(*(self._of_list(code, one, depth - 1) for one in values))

    def _of_list(self, code: Code, node: cst.CSTNode | None, depth: int) -> Kind:
        if isinstance(node, cst.List | cst.Tuple):
            return _together(*(self.kind(code, one.value, depth) for one in node.elements))
        if isinstance(node, cst.ListComp):
            return self.kind(code, node.elt, depth)
        return (
            "number" if isinstance(node, cst.Call) and code.qualified(node.func).startswith("numpy.") else ""
        )

    def _of_name(self, code: Code, node: cst.Name, depth: int) -> Kind:
        bound = code.assignments(node, node.value)
        return _together(*(self._of_binding(code, one, depth - 1) for one in bound))

    def _of_binding(self, code: Code, bound: meta.Assignment, depth: int) -> Kind:
        above = code.parents.get(bound.node)
        param = bound.node if isinstance(bound.node, cst.Param) else above
        if isinstance(param, cst.Param):
            return self._of_parameter(code, param, depth)
        if isinstance(above, cst.AugAssign):
            return self.kind(code, above.value, depth)
        if isinstance(above, cst.For | cst.CompFor):
            if isinstance(above.iter, cst.Call):
                return "number" if last_name(above.iter.func) in ("range", "trange") else ""
            return self._of_list(code, above.iter, depth)
        if isinstance(above, cst.Element):
            outer = code.parents[above]
            loop = code.parents.get(outer)
            counted = (
                isinstance(loop, cst.For) and isinstance(outer, cst.Tuple) and above is outer.elements[0]
            )
            if counted and isinstance(loop, cst.For) and isinstance(loop.iter, cst.Call):
                return "number" if last_name(loop.iter.func) == "enumerate" else ""
        value = value_of(code, bound.node)
        return self.kind(code, value, depth) if value is not None else ""

    def _of_parameter(self, code: Code, param: cst.Param, depth: int) -> Kind:
        """What every call gives a parameter, and what it is without."""
        if isinstance(code.parents.get(code.parents.get(param, param)), cst.Lambda):
            return "number"  # as the one that calls it is asked
        function = code.function_of(param)
        if function is None or param not in parameters_of(function):
            return ""
        name, owner = function.name.value, code.above(function, cst.ClassDef)
        called = owner.name.value if owner is not None and name == "__init__" else name
        found: list[Kind] = []
        if param.default is not None:
            found.append(self.kind(code, param.default, depth))
        elif param.annotation is not None:
            found.append(_annotated(param.annotation))
        for other in self._scene.codes(called):
            for call in other.nodes(cst.Call):
                if last_name(call.func) != called:
                    continue
                at = position_of(code, function, param, call)
                value = argument(call, param.name.value, at)
                if value is not None:
                    found.append(self.kind(other, value, depth))
                elif any(arg.star for arg in call.args):
                    found.append("")
        return _together(*found)

    def _of_field(self, name: str, depth: int) -> Kind:
        """What the user's code gives a field of that name, in any class; options of a command line too."""
        return _together(*self._options(name), *self._bindings(name, depth - 1))

    def _bindings(self, name: str, depth: int) -> Iterator[Kind]:
        for code in self._scene.codes(name):
            for text in code.nodes(cst.SimpleString):
                call = code.above(text, cst.Call)
                if text_of(text) == name and call is not None and last_name(call.func) in _REGISTERS:
                    yield ""
            for function in code.nodes(cst.FunctionDef):
                if function.name.value == name and code.above(function, cst.ClassDef) is not None:
                    yield ""
            stores: list[cst.AssignTarget | cst.AnnAssign | cst.AugAssign] = []
            for kind in (cst.AssignTarget, cst.AnnAssign, cst.AugAssign):
                stores += code.nodes(kind)
            for one in stores:
                target = one.target
                of_class = code.function_of(target) is None and code.above(target, cst.ClassDef) is not None
                if last_name(target) == name and (isinstance(target, cst.Attribute) or of_class):
                    above = code.parents[one] if isinstance(one, cst.AssignTarget) else one
                    value = getattr(above, "value", None)
                    if isinstance(one, cst.AnnAssign) and value is None:
                        yield _annotated(one.annotation)
                    else:
                        yield self.kind(code, value, depth) if value is not None else ""

    def _options(self, name: str) -> Iterator[Kind]:
        """The options of a command line that go by a name."""
        for code in self._scene.codes("add_argument"):
            for call in code.nodes(cst.Call):
                texts = [text_of(arg.value) or "" for arg in call.args if arg.keyword is None]
                names = [one.lstrip("-").replace("-", "_") for one in texts]
                if last_name(call.func) == "add_argument" and name in [
                    *names,
                    text_of(argument(call, "dest") or call),
                ]:
                    kind = argument(call, "type")
                    yield "number" if kind is not None and last_name(kind) in _TYPES else ""

    def _returned(self, code: Code, call: cst.Call, depth: int) -> Kind:
        """What a function of the user's returns, or a lambda."""
        name = last_name(call.func)
        found: list[Kind] = []
        for other in self._scene.codes(name) if name else ():
            for function in other.nodes(cst.FunctionDef):
                if function.name.value == name:
                    returns = [one for one in other.nodes(cst.Return, function) if one.value is not None]
                    found.append(
                        _together(*(self.kind(other, one.value, depth - 1) for one in returns if one.value))
                    )
            for assign in other.nodes(cst.Assign):
                if any(last_name(one.target) == name for one in assign.targets):
                    body = assign.value.body if isinstance(assign.value, cst.Lambda) else assign.value
                    given = [self.kind(code, arg.value, depth - 1) for arg in call.args]
                    found += [
                        self.kind(other, body, depth - 1) if isinstance(assign.value, cst.Lambda) else "",
                        *given,
                    ]
        return _together(*found)


def _annotated(annotation: cst.Annotation) -> Kind:
    return "number" if last_name(annotation.annotation) in _TYPES else ""


def _together(*kinds: Kind) -> Kind:
    """What is computed of several, or may be one of them."""
    if not kinds or "" in kinds:
        return ""
    return "scalar" if "scalar" in kinds else "number"
