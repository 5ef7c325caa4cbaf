"""The walk from an expression to where its value is written, through names, parameters and mappings."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from hotloop.fix.callers import Callers
from hotloop.fix.scene import Cannot, Scene
from hotloop.fix.targets import (
    Absent,
    Entry,
    Literal,
    Loaded,
    Target,
    cannot,
    definition,
    entry_of,
    only_note,
)
from hotloop.measure.places import Frame
from hotloop.source.code import Code
from hotloop.source.nodes import (
    FUNCTIONS,
    Function,
    argument,
    decorators,
    default_of,
    has_spread,
    last_name,
    literal,
    parameters_of,
    text_of,
)
from hotloop.source.scopes import Binding
from hotloop.source.values import bound_to_self, keys_of, looked_up, sets_by_name

DEPTH: Final = 24
_CASTS: Final = frozenset(["int", "bool", "float"])
_ARGUMENTS: Final = frozenset(["parse_args", "parse_known_args", "parse_args_into_dataclasses"])
_READERS: Final = frozenset([
    "yaml.safe_load", "yaml.load", "yaml.full_load", "json.load", "json.loads", "tomllib.load",
    "tomllib.loads", "toml.load", "tomli.load", "runpy.run_path", "omegaconf.OmegaConf.load",
    "mmengine.Config.fromfile", "mmengine.config.Config.fromfile", "mmcv.Config.fromfile",
    "mmcv.utils.Config.fromfile",
])  # fmt: skip
#: Functions whose result reads like the mapping it is made from.
_WRAPPERS: Final = frozenset([
    "SimpleNamespace", "Namespace", "EasyDict", "edict", "Box", "Munch", "munchify", "AttrDict", "DotDict",
    "ConfigDict", "create", "dict", "vars", "asdict", "deepcopy", "copy", "DictConfig", "dict2obj",
    "to_container",
])  # fmt: skip


class Walk:
    """Follows values from one call of the run outwards. ``value`` is what is in effect, to choose by."""

    def __init__(self, scene: Scene, frames: Sequence[Frame], value: Any = None) -> None:
        self.scene, self._value = scene, value
        self.callers = Callers(scene, frames)
        self.left = DEPTH

    def constant(self, code: Code, keys: tuple[str, ...]) -> Target:
        """Where a file of constants gives a dotted name its value. Raises Cannot."""
        found = code.global_names(keys[0])
        if len(found) != 1:
            raise Cannot(f"{keys[0]} has {'several' if found else 'no'} definitions", str(code.path))
        bound = found[0].node
        target: Target | Loaded
        if isinstance(bound, ast.ClassDef) and keys[1:]:
            target = self._class_entry(code, bound, keys[1:], code, bound)
        elif found[0].value is not None:
            target = self.keys(code, found[0].value, keys[1:], None)
        else:
            raise cannot(code, bound, f"{keys[0]} is computed")
        if isinstance(target, Loaded):
            raise cannot(code, bound, f"{keys[0]} is read from another file")
        return target

    def value_at(self, code: Code, node: ast.expr, keys: tuple[str, ...], at: int | None) -> Target:
        """Where the value behind these keys of an expression is written. Raises Cannot."""
        asked = (*keys_of(node)[1], *keys)
        try:
            found = self.keys(code, node, keys, at)
            if isinstance(found, Loaded):
                asked = found.keys
                return entry_of(self.scene, found, self._value, code, node)
            return found
        except Cannot as cannot:
            # The way was lost in code that is not understood; a configured value of that name and of
            # that value, if there is one only, is it. The check by running tells.
            note = only_note(self.scene, asked, None, self._value) if asked else None
            if note is None:
                raise cannot
            return Entry(note)

    def keys(self, code: Code, node: ast.expr, keys: tuple[str, ...], at: int | None) -> Target | Loaded:
        """What ``node[keys[0]][keys[1]]...`` is."""
        self.left -= 1
        if self.left < 0:
            raise cannot(code, node, "the value is passed on too often to follow")
        if isinstance(node, ast.Subscript | ast.Attribute) or looked_up(node) is not None:
            return self._access(code, node, keys, at)
        if isinstance(node, ast.Name):
            return self._name(code, node, keys, at)
        if not keys and literal(node):
            return Literal(code, node)
        if isinstance(node, ast.Dict) and keys:
            return self._dict(code, node, keys, at)
        if isinstance(node, ast.Call):
            return self._call(code, node, keys, at)
        raise cannot(code, node, "the value is computed")

    def _access(self, code: Code, node: ast.expr, keys: tuple[str, ...], at: int | None) -> Target | Loaded:
        root, path = keys_of(node)
        if root is node:
            raise cannot(code, node, "the value is computed")
        keys = (*path, *keys)
        owner = code.class_of(node)
        if isinstance(root, ast.Name) and root.id in ("self", "cls") and owner is not None:
            values = bound_to_self(code, owner, keys[0])
            if not values:
                return self._class_entry(code, owner, keys, code, node)
            if len(values) > 1 or values[0] is None:
                raise cannot(code, node, f"self.{keys[0]} is set in several places")
            return self.keys(code, values[0], keys[1:], self.callers.frame_of(code, values[0]))
        got = looked_up(node)
        known = any(str(n.get("key", "")).split(".")[-1] == keys[-1] for n in self.scene.config)
        default = got[1] if got is not None and not known else None
        try:
            found = self.keys(code, root, keys, at)
        except Cannot:
            if default is None:
                raise
        else:
            if default is None or not isinstance(found, Loaded):
                return found
        return self.keys(code, default, (), at)

    def _class_entry(
        self, code: Code, owner: ast.ClassDef, keys: tuple[str, ...], asking: Code, node: ast.AST
    ) -> Target | Loaded:
        """An entry of a class for a node that asks for it, maybe in another file."""
        for statement in owner.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                if [last_name(one) for one in targets] == [keys[0]]:
                    return self.keys(code, statement.value, keys[1:], None)
        raise cannot(asking, node, f"{keys[0]} is not set in class {owner.name}")

    def _name(self, code: Code, node: ast.Name, keys: tuple[str, ...], at: int | None) -> Target | Loaded:
        found = code.bindings(node, node.id)
        if len(found) != 1:
            what = "has several definitions" if found else "has no definition in this file"
            raise cannot(code, node, f"{node.id} {what}")
        bound = found[0].node
        if found[0].imported:
            return self._imported(code, node, found[0], keys)
        if isinstance(bound, ast.arg):
            return self._parameter(code, bound, keys, at)
        if isinstance(bound, ast.ClassDef) and keys:
            return self._class_entry(code, bound, keys, code, node)
        value = found[0].value or _of_parsed(code, bound)
        if value is None:
            raise cannot(code, node, f"{node.id} is computed")
        if _is_set_after(code, found[0], keys):
            raise cannot(code, node, f"{node.id} is changed after it is made")
        if self._value is None and code.function_of(bound) is None and sets_by_name(code):
            raise cannot(code, node, f"{node.id} may be set by what the file executes")
        target = self.keys(code, value, keys, at)
        if isinstance(target, Literal) and target.node is value:
            return Literal(target.code, target.node, node.id)
        return target

    def _imported(self, code: Code, node: ast.Name, one: Binding, keys: tuple[str, ...]) -> Target | Loaded:
        whole = one.imported.lstrip(".")
        module = self.scene.module(whole, code.path)
        if module is not None and keys:
            name, rest = keys[0], keys[1:]
        else:
            before, _, name = whole.rpartition(".")
            module, rest = self.scene.module(before, code.path), keys
        if module is None:
            raise cannot(code, node, f"{whole} is not a file of yours")
        target = self.constant(self.scene.code(module), (name, *rest))
        return Literal(target.code, target.node, name) if isinstance(target, Literal) and not rest else target

    def _parameter(
        self, code: Code, param: ast.arg, keys: tuple[str, ...], at: int | None
    ) -> Target | Loaded:
        function, name = code.function_of(param), param.arg
        if function is None or param not in parameters_of(function):
            raise cannot(code, param, f"{name} is passed by * or into a lambda")
        caller = self.callers.caller(code, function, at)
        if caller is None:
            raise cannot(code, param, f"the caller of {function.name}() is not known")
        outer, call, above = caller
        given = argument(call, name, position_of(code, function, param))
        if given is not None:
            return self.keys(outer, given, keys, above)
        if has_spread(call):
            inner = self.spread_in(outer, call, above, name)
            if inner is not None and not keys:
                return inner
            raise cannot(outer, call, f"{name} is passed on by * or **")
        default = default_of(function, name)
        if default is None:
            raise cannot(code, param, f"{name} is not given")
        if not keys and self.callers.shared(code, function, at):
            return Absent(outer, call, name)  # the default serves other loaders too
        target = self.keys(code, default, keys, None)
        if isinstance(target, Literal) and target.node is default:
            return replace(target, ungiven=Absent(outer, call, name))
        return target

    def spread_in(self, code: Code, call: ast.Call, at: int | None, name: str) -> Target | None:
        """Where an argument is written that a call may spread by ``**``."""
        for keyword in call.keywords:
            found = self._spread(code, keyword.value, at, name) if keyword.arg is None else None
            if found is not None:
                return found
        return None

    def _spread(self, code: Code, node: ast.expr, at: int | None, name: str) -> Target | None:
        function = code.function_of(node)
        rest = function.args.kwarg if function is not None else None
        if isinstance(node, ast.Name) and function and rest and rest.arg == node.id:
            caller = self.callers.caller(code, function, at)
            if caller is None:
                raise Cannot(f"**{node.id}: its caller is not known", str(code.path), code.line(node))
            outer, call, above = caller
            found = argument(call, name)
            if found is not None:
                return self.value_at(outer, found, (), above)
            return self.spread_in(outer, call, above, name)
        try:
            return self.value_at(code, node, (name,), at)
        except Cannot:
            return None

    def _dict(self, code: Code, node: ast.Dict, keys: tuple[str, ...], at: int | None) -> Target | Loaded:
        for key, value in reversed(list(zip(node.keys, node.values, strict=True))):
            if key is None:
                raise cannot(code, node, "the dictionary takes in another one")
            if text_of(key) == keys[0]:
                return self.keys(code, value, keys[1:], at)
        raise cannot(code, node, f"the dictionary has no {keys[0]!r}")

    def _call(self, code: Code, node: ast.Call, keys: tuple[str, ...], at: int | None) -> Target | Loaded:
        name, whole = last_name(node.func), code.qualified(node.func)
        if name in _ARGUMENTS:
            return Loaded("argparse", keys)
        if whole in _READERS:
            return Loaded("file", keys)
        if whole == "dataclasses.field":
            return self._default(code, node, keys)
        if not keys:
            if name in _CASTS and len(node.args) == 1:
                return self.keys(code, node.args[0], (), at)
            raise cannot(code, node, "the value is computed")
        if name == "dict" and node.keywords:
            given = argument(node, keys[0])
            if given is None:
                raise cannot(code, node, f"the dictionary has no {keys[0]!r}")
            return self.keys(code, given, keys[1:], at)
        if name in _WRAPPERS and len(node.args) + len(node.keywords) == 1:
            return self.keys(code, [*node.args, *(one.value for one in node.keywords)][0], keys, at)
        return self._made(code, node, keys, at)

    def _default(self, code: Code, node: ast.Call, keys: tuple[str, ...]) -> Target | Loaded:
        """``field(default=0)``, ``field(default_factory=Options)`` of a dataclass."""
        factory = argument(node, "default_factory")
        default = factory.body if isinstance(factory, ast.Lambda) else argument(node, "default")
        if default is not None:
            return self.keys(code, default, keys, None)
        where, found = definition(self.scene, code, factory) if factory is not None else (code, None)
        if isinstance(found, ast.ClassDef) and keys:
            return self._class_entry(where, found, keys, code, node)
        raise cannot(code, node, "the value is computed")

    def _made(self, code: Code, node: ast.Call, keys: tuple[str, ...], at: int | None) -> Target | Loaded:
        """What a function of the user's returns, or a field of an object of theirs."""
        where, found = definition(self.scene, code, node.func)
        if isinstance(found, ast.ClassDef):
            given = argument(node, keys[0])
            if given is not None:
                return self.keys(code, given, keys[1:], at)
            values = bound_to_self(where, found, keys[0])
            if len(values) == 1 and values[0] is not None:
                return self.keys(where, values[0], keys[1:], self.callers.frame_of(where, values[0]))
            return self._class_entry(where, found, keys, code, node)
        if isinstance(found, FUNCTIONS):
            returns = [r for r in where.nodes(ast.Return, found) if where.function_of(r) is found]
            if len(returns) == 1 and returns[0].value is not None:
                frames = self.callers.through(found, where)
                inner = frames[0] if len(frames) == 1 else None
                return self.keys(where, returns[0].value, keys, inner)
        raise cannot(code, node, "the value is computed")


def position_of(code: Code, function: Function, param: ast.arg) -> int | None:
    """At which position of a call a parameter is given."""
    plain = [*function.args.posonlyargs, *function.args.args]
    if param not in plain:
        return None
    is_method = isinstance(code.parents.get(function), ast.ClassDef)
    bound = is_method and "staticmethod" not in decorators(function) and plain[0].arg in ("self", "cls")
    return plain.index(param) - (1 if bound else 0)


def _of_parsed(code: Code, bound: ast.AST) -> ast.expr | None:
    """The call of ``args, rest = parser.parse_known_args()`` for its first name."""
    above = code.parents.get(bound)
    assign = code.parents.get(above) if isinstance(above, ast.Tuple) and above.elts[0] is bound else None
    value = assign.value if isinstance(assign, ast.Assign) else None
    is_parsed = isinstance(value, ast.Call) and last_name(value.func) == "parse_known_args"
    return value if is_parsed else None


def _is_set_after(code: Code, one: Binding, keys: tuple[str, ...]) -> bool:
    """Whether an entry of a mapping, or a field, is written after the mapping was made."""
    for read in code.references(one) if keys else ():
        above = code.parents.get(read)
        while isinstance(above, ast.Subscript | ast.Attribute):
            if not isinstance(above.ctx, ast.Load) and keys_of(above)[1][-1:] == keys[-1:]:
                return True
            above = code.parents.get(above)
    return False
