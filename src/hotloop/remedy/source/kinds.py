"""What a variable or an expression of the user's holds, as far as the text says: read, and never run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import libcst as cst

from hotloop.remedy.source import hidden
from hotloop.remedy.source.aliases import READ_ONLY
from hotloop.remedy.source.code import LITERALS, Code, Function, argument, is_member, is_self, last_name
from hotloop.remedy.source.scene import Scene
from hotloop.remedy.source.values import HOST_DRAWS, assignment, parameters_of, position_of, value_of

#: A number or a text; arrays, and containers of them; a random generator of the script's own, an open file,
#: and what else goes on as it is read; what may be anything.
Kind = Literal["plain", "array", "generator", "other"]
_KINDS: Final[tuple[Kind, ...]] = ("plain", "array", "generator", "other")
Maker = Function | cst.Lambda
#: A variable: the file, and a node that stands for it.
Variable = tuple[Code, cst.Name]

SEEDS: Final = frozenset(["seed", "manual_seed", "manual_seed_all", "set_state", "setstate", "set_rng_state"])
GENERATORS: Final = frozenset(["default_rng", "RandomState", "Generator", "Random"])
PLAIN_CALLS: Final = frozenset([
    "int", "float", "str", "bool", "len", "min", "max", "round", "abs", "range", "sum", "repr",
])  # fmt: skip
MEASURES: Final = frozenset(["shape", "ndim", "dtype", "device", "nbytes", "size"])
STORES: Final = (cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.Element)
#: Packages whose functions give numbers, texts and paths.
_PLAIN_MODULES: Final = ("os.", "math.", "time.", "pathlib.")
#: Functions of libraries that read a file whole.
_READ: Final = ("json.load", "yaml.safe_load", "pandas.read_")
_DEEP: Final = 100


class Kinds:
    """The kinds of what the names and expressions of a script stand for, over all its files."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._bound: dict[int, Kind] = {}  # by the node that binds a variable

    def forget(self) -> None:
        """Looks at every variable anew: what was found half way through a circle holds for that one alone."""
        self._bound.clear()

    def function(self, code: Code, node: cst.CSTNode) -> tuple[Code, Maker] | None:
        """The user's function that an expression names."""
        if isinstance(node, cst.Attribute) and code.qualified(node):
            module, _, name = code.qualified(node).rpartition(".")
            return self._of_module(code, module, name)
        if not isinstance(node, cst.Name):
            return None
        bound = [one.node for one in code.assignments(node, node.value)]
        if len(bound) != 1:
            return None
        if isinstance(bound[0], cst.FunctionDef):
            return None if bound[0].asynchronous or bound[0].decorators else (code, bound[0])
        value = value_of(code, bound[0])
        if isinstance(value, cst.Lambda):
            return code, value
        module, _, name = code.qualified(node).rpartition(".")
        return self._of_module(code, module, name) if module else None

    def _of_module(self, code: Code, module: str, name: str) -> tuple[Code, Maker] | None:
        path = self._scene.module(module.lstrip("."), code.path)
        if path is None:
            return None
        other = self._scene.code(path)
        bound = [one.node for one in other.global_names(name)]
        if len(bound) == 1 and isinstance(bound[0], cst.FunctionDef) and not bound[0].decorators:
            return other, bound[0]
        return None

    def is_users(self, code: Code, whole: str) -> bool:
        """Whether what a full name stands for is in a file of the user's."""
        package = whole.lstrip(".").partition(".")[0]
        return whole.startswith(".") or self._scene.module(package, code.path) is not None

    def imported(self, code: Code, name: cst.Name) -> Variable | None:
        """The variable of another file of the user's that an imported name stands for."""
        module, _, plain = code.qualified(name).rpartition(".")
        path = self._scene.module(module.lstrip("."), code.path) if module else None
        if path is None:
            return None
        other = self._scene.code(path)
        nodes = [one.node for one in other.global_names(plain)]
        names = [one for one in nodes if isinstance(one, cst.Name)]
        return (other, names[0]) if names else None

    def is_code(self, code: Code, name: cst.Name) -> bool:
        """Whether a name stands for a module, or a function."""
        bound = [one.node for one in code.assignments(name, name.value)]
        if not bound or self.function(code, name) is not None:
            return True
        if code.qualified(name):
            return self.imported(code, name) is None
        return all(
            isinstance(one, cst.FunctionDef) or isinstance(value_of(code, one), cst.Lambda) for one in bound
        )

    def of_name(self, code: Code, name: cst.Name, depth: int = 0) -> Kind:
        """Of a variable: what joins all that it is ever given."""
        bound = [one.node for one in code.assignments(name, name.value)]
        return joined(self._bound_at(code, one, depth) for one in bound) if bound else "other"

    def _bound_at(self, code: Code, node: cst.CSTNode, depth: int) -> Kind:
        """The kind of what a variable is given at one place; by itself it is no other than the rest."""
        if id(node) not in self._bound:
            self._bound[id(node)] = "plain"
            self._bound[id(node)] = self._given_at(code, node, depth)
        return self._bound[id(node)]

    def _given_at(self, code: Code, node: cst.CSTNode, depth: int) -> Kind:
        value = value_of(code, node)
        if value is not None:
            return self.of(code, value, depth + 1)
        if isinstance(node, cst.Param):
            passed = self.passed(code, node) if depth <= _DEEP else None
            kinds = [self.of(other, one, depth + 1) for other, one in passed or ()]
            return joined(kinds) if kinds else "other"
        above = code.parents.get(node)
        outer = code.parents.get(above) if isinstance(above, cst.Element) else None
        whole = code.parents.get(code.parents.get(outer, outer)) if isinstance(outer, cst.Tuple) else None
        if isinstance(whole, cst.Assign):  # several names for what a call gives
            return joined(["array", self.of(code, whole.value, depth + 1)])
        while isinstance(above, cst.Element | cst.Tuple | cst.AsName):
            above = code.parents.get(above)
        if isinstance(above, cst.WithItem):
            return self.of(code, above.item, depth + 1)
        if isinstance(above, cst.CompFor | cst.For):
            return self.of(code, above.iter, depth + 1)
        return "other"

    def of(self, code: Code, node: cst.BaseExpression, depth: int) -> Kind:
        """What an expression gives, as far as its own text says."""
        if depth > _DEEP:
            return "other"
        deeper = depth + 1
        if isinstance(
            node, cst.Integer | cst.Float | cst.SimpleString | cst.FormattedString | cst.Comparison
        ):
            return "plain"
        if isinstance(node, cst.Name):
            return "plain" if node.value in LITERALS else self.of_name(code, node, deeper)
        if isinstance(node, cst.UnaryOperation):
            return self.of(code, node.expression, deeper)
        if isinstance(node, cst.BinaryOperation | cst.BooleanOperation):
            return joined(self.of(code, one, deeper) for one in (node.left, node.right))
        if isinstance(node, cst.IfExp):
            return joined(self.of(code, one, deeper) for one in (node.body, node.orelse))
        if isinstance(node, cst.ListComp | cst.SetComp | cst.GeneratorExp):
            return joined(["array", self.of(code, node.elt, deeper)])
        if isinstance(node, cst.DictComp):
            return joined(["array", *(self.of(code, one, deeper) for one in (node.key, node.value))])
        if isinstance(node, cst.List | cst.Tuple | cst.Set | cst.Dict):
            held = [one.value for one in node.elements]
            return joined(["array", *(self.of(code, one, deeper) for one in held)])
        if isinstance(node, cst.Subscript):
            return self.of(code, node.value, deeper)
        if isinstance(node, cst.Attribute):
            whole = code.qualified(node)
            if (whole and not self.is_users(code, whole)) or node.attr.value in MEASURES:
                return "plain"
            return self._of_field(code, node, deeper)
        return self._of_call(code, node, deeper) if isinstance(node, cst.Call) else "other"

    def _of_field(self, code: Code, node: cst.Attribute, depth: int) -> Kind:
        """Of a parsed argument, or a setting that a class of the user's has and nobody sets later."""
        made = self._made(code, node.value, depth) if isinstance(node.value, cst.Name) else None
        owner = self.class_of(*made) if made is not None else None
        if isinstance(node.value, cst.Name) and made is None:  # the class itself
            bound = [one.node for one in code.assignments(node.value, node.value.value)]
            owner = (code, bound[0]) if len(bound) == 1 and isinstance(bound[0], cst.ClassDef) else None
        if owner is None and (made is None or last_name(made[1].func) != "parse_args"):
            return joined(["array", self.of(code, node.value, depth)])
        for other in self._scene.codes(node.attr.value):
            for one in other.nodes(cst.Attribute):
                own = is_self(one.value) and (owner is None or other.above(one, cst.ClassDef) is not owner[1])
                stored = isinstance(other.parents.get(one), STORES) or hidden.is_stored(other, one)
                if one.attr.value == node.attr.value and not own and stored:
                    return "other"
        if owner is None:
            return "plain"
        where, kept = owner
        values = [
            given
            for line in kept.body.body
            if isinstance(line, cst.SimpleStatementLine)
            for name, given in map(assignment, line.body)
            if name == node.attr.value
        ]
        given = values[0] if len(values) == 1 else None
        return "plain" if given is not None and self.of(where, given, depth) == "plain" else "other"

    def class_of(self, code: Code, call: cst.Call) -> tuple[Code, cst.ClassDef] | None:
        """The user's class that a call builds one of."""
        found = [one for one in code.nodes(cst.ClassDef) if one.name.value == last_name(call.func)]
        return (code, found[0]) if len(found) == 1 else None

    def _made(self, code: Code, name: cst.Name, depth: int) -> tuple[Code, cst.Call] | None:
        """The call that gives a variable what it stands for, through the functions that it is passed to."""
        bound = [one.node for one in code.assignments(name, name.value)]
        value = value_of(code, bound[0]) if len(bound) == 1 else None
        if isinstance(value, cst.Call):
            return code, value
        if len(bound) != 1 or not isinstance(bound[0], cst.Param) or depth > _DEEP:
            return None
        passed = self.passed(code, bound[0])
        found = [
            self._made(other, one, depth + 1) if isinstance(one, cst.Name) else None
            for other, one in passed or ()
        ]
        return found[0] if len(found) == 1 else None

    def passed(self, code: Code, param: cst.Param) -> list[tuple[Code, cst.BaseExpression]] | None:
        """What a function of the user's is given for a parameter wherever it is called; None: not known."""
        function = code.function_of(param)
        if function is None or param not in parameters_of(function):
            return None
        found: list[tuple[Code, cst.BaseExpression]] = []
        for other in self._scene.codes(function.name.value):
            for call in other.nodes(cst.Call):
                reached = self.function(other, call.func)
                if reached is None or reached[1] is not function:
                    continue
                at = position_of(code, function, param, call)
                value = argument(call, param.name.value, at) or param.default
                if value is None or any(arg.star for arg in call.args):
                    return None
                found.append((other, value))
        return found or None

    def _of_call(self, code: Code, node: cst.Call, depth: int) -> Kind:
        name, whole = last_name(node.func), code.qualified(node.func)
        if whole:
            if name in GENERATORS and whole.startswith((*HOST_DRAWS, "torch.")):
                return "generator"
            if whole.startswith(_PLAIN_MODULES) or whole == "torch.device":
                return "plain"
            if self.function(code, node.func) is not None:
                return self._returned(code, node, depth)
            if whole.startswith(("torch.nn.", "torch.optim.", "torch.jit.", "torch.utils.", "torch.hub.")):
                return "other"
            if self.is_users(code, whole):
                return "other"
            given = joined([self.of(code, arg.value, depth) for arg in node.args])
            return (
                "array" if whole.startswith((*READ_ONLY, *_READ)) and given in ("plain", "array") else "other"
            )
        builtin = isinstance(node.func, cst.Name) and not code.assignments(node.func, name)
        if builtin:
            if name in ("list", "tuple", "dict", "set", "sorted", "zip", "enumerate", "bytes", "reversed"):
                return joined(["array", *(self.of(code, arg.value, depth) for arg in node.args)])
            if name == "open":
                return "generator"
            return "plain" if name in PLAIN_CALLS else "other"
        if self.function(code, node.func) is not None:
            return self._returned(code, node, depth)
        if isinstance(node.func, cst.Attribute):
            inner = self.of(code, node.func.value, depth)
            made = inner == "generator" and name not in SEEDS  # what seeds one gives it back
            return "array" if made else joined(["array", inner])
        return "other"

    def _returned(self, code: Code, node: cst.Call, depth: int) -> Kind:
        """Of what a function of the user's gives that it made itself."""
        reached = self.function(code, node.func)
        if reached is None or depth > _DEEP:
            return "other"
        where, function = reached
        if isinstance(function, cst.Lambda):
            return self.of(where, function.body, depth)
        kinds: list[Kind] = []
        for back in where.nodes(cst.Return, function):
            if where.function_of(back) is not function or back.value is None:
                continue
            for name in where.nodes(cst.Name, back.value):
                bound = [one.node for one in where.assignments(name, name.value)]
                outside = any(not where.holds(function, one) for one in bound)
                if outside and not is_member(where, name) and not self.is_code(where, name):
                    return "other"
            kinds.append(self.of(where, back.value, depth))
        return joined(kinds) if kinds else "other"


def joined(kinds: Iterable[Kind]) -> Kind:
    """The kind of what holds several."""
    return max(kinds, key=_KINDS.index, default="plain")
