"""From an argument of a call to the place where its value is written, along the frames of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import libcst as cst
from libcst import metadata as meta

from hotloop.measure.places import Frame
from hotloop.measure.settings import same
from hotloop.record.recording import Note
from hotloop.remedy.source.callers import Callers
from hotloop.remedy.source.code import Code, argument, has_spread, last_name, literal
from hotloop.remedy.source.scene import Cannot, Scene
from hotloop.remedy.source.values import (
    assignment,
    bound_to_self,
    chain_of,
    executes,
    is_changed,
    looked_up,
    parameters_of,
    position_of,
    setdefault_of,
    text_of,
    value_of,
)  # fmt: skip
from hotloop.written import LOADER_POSITIONS

_DEPTH: Final = 24
_CASTS: Final = frozenset(["int", "bool", "float"])
_ARGUMENTS: Final = frozenset(["parse_args", "parse_known_args", "parse_args_into_dataclasses"])
_READERS: Final = frozenset(
    [
        "yaml.safe_load",
        "yaml.load",
        "yaml.full_load",
        "json.load",
        "json.loads",
        "tomllib.load",
        "tomllib.loads",
        "toml.load",
        "tomli.load",
        "runpy.run_path",
        "omegaconf.OmegaConf.load",
        "mmengine.Config.fromfile",
        "mmengine.config.Config.fromfile",
        "mmcv.Config.fromfile",
        "mmcv.utils.Config.fromfile",
    ]
)
#: Functions whose result reads like the mapping it is made from.
_WRAPPERS: Final = frozenset(
    [
        "SimpleNamespace",
        "Namespace",
        "EasyDict",
        "edict",
        "Box",
        "Munch",
        "munchify",
        "AttrDict",
        "DotDict",
        "ConfigDict",
        "create",
        "dict",
        "vars",
        "asdict",
        "deepcopy",
        "copy",
        "DictConfig",
        "dict2obj",
        "to_container",
    ]
)


@dataclass(frozen=True)
class Literal:
    """The value stands in code."""

    code: Code
    node: cst.BaseExpression
    name: str = ""  # the name it is bound to, where it is
    ungiven: Absent | None = None  # of a parameter's default: the call that did not give it


@dataclass(frozen=True)
class Absent:
    """The argument is not given: it is to be added to this call, under this name."""

    code: Code
    call: cst.Call
    name: str


@dataclass(frozen=True)
class Entry:
    """The value was configured, as this note says."""

    note: Note


Target = Literal | Absent | Entry


@dataclass(frozen=True)
class Loaded:
    """What was read from a file of configuration, or the parsed arguments, and the keys into it."""

    source: str  # "argparse", or "file"
    keys: tuple[str, ...]
    mapping: bool = False  # read by subscript


class Follower:
    """Follows values from one call of the run outwards. ``value`` is what is in effect, to choose by."""

    def __init__(self, scene: Scene, frames: Sequence[Frame], value: Any = None) -> None:
        self._scene, self._value = scene, value
        self._callers = Callers(scene, frames)
        self._left = _DEPTH
        #: The expressions passed on the way, each with the keys that were still to be read of it.
        self.way: list[tuple[Code, cst.BaseExpression, tuple[str, ...]]] = []

    def argument(self, code: Code, call: cst.Call, at: int | None, name: str, given: bool) -> Target:
        """Where a loader's argument is written. ``given``: the run gave it. Raises Cannot."""
        expression = argument(call, name, _position(name))
        if expression is not None:
            return self.expression(code, expression, at)
        for arg in call.args:
            if arg.star == "**":
                found = self._spread(code, arg.value, at, name)
                if found is not None:
                    return found
        if given and has_spread(call):
            raise Cannot(f"{name} is passed on by * or **", str(code.path), code.line(call))
        return Absent(code, call, name)

    def _spread(self, code: Code, node: cst.BaseExpression, at: int | None, name: str) -> Target | None:
        function = code.function_of(node)
        rest = function.params.star_kwarg if function is not None else None
        if isinstance(node, cst.Name) and function and rest and rest.name.value == node.value:
            caller = self._callers.caller(code, function, at)
            if caller is None:
                raise Cannot(f"**{node.value}: its caller is not known", str(code.path), code.line(node))
            outer, call, above = caller
            found = argument(call, name)
            if found is not None:
                return self.expression(outer, found, above)
            for arg in call.args:
                inner = self._spread(outer, arg.value, above, name) if arg.star == "**" else None
                if inner is not None:
                    return inner
            usual = setdefault_of(code, function, node.value, name)
            if usual is None:
                return None
            target = self.expression(code, usual, at)
            alone = not isinstance(target, Literal) or not self._callers.shared(code, function, at)
            return target if alone else Absent(outer, call, name)
        try:
            return self._value_at(code, node, (name,), at)
        except Cannot:
            return None

    def expression(self, code: Code, node: cst.BaseExpression, at: int | None) -> Target:
        """Where the value of an expression is written. Raises Cannot."""
        return self._value_at(code, node, (), at)

    def constant(self, code: Code, keys: tuple[str, ...]) -> Target:
        """Where a file of constants gives a dotted name its value. Raises Cannot."""
        found = {id(one.node): one.node for one in code.global_names(keys[0])}
        if len(found) != 1:
            raise Cannot(f"{keys[0]} has {'several' if found else 'no'} definitions", str(code.path))
        bound = next(iter(found.values()))
        target: Target | Loaded
        if isinstance(bound, cst.ClassDef) and keys[1:]:
            target = self._class_entry(code, bound, keys[1:], code, bound)
        else:
            value = value_of(code, bound)
            if value is None:
                raise self._cannot(code, bound, f"{keys[0]} is computed")
            target = self._keys(code, value, keys[1:], None)
        if isinstance(target, Loaded):
            raise self._cannot(code, bound, f"{keys[0]} is read from another file")
        return target

    def frame_of(self, code: Code, node: cst.CSTNode) -> int | None:
        """The frame in whose function a node stands."""
        return self._callers.frame_of(code, node)

    def passed(
        self, code: Code, param: cst.Param, at: int | None
    ) -> tuple[Code, cst.BaseExpression, int | None] | None:
        """What the caller gave for a parameter, and where."""
        function = code.function_of(param)
        caller = self._callers.caller(code, function, at) if function is not None else None
        if function is None or caller is None:
            return None
        outer, call, above = caller
        given = argument(call, param.name.value, position_of(code, function, param, call))
        return (outer, given, above) if given is not None else None

    def loaded(self, code: Code, node: cst.BaseExpression, at: int | None) -> Loaded | None:
        """What an expression reads of a configuration, if it does."""
        self._left = _DEPTH  # each is a question of its own
        try:
            found = self._keys(code, node, (), at)
        except Cannot:
            return None
        return found if isinstance(found, Loaded) else None

    def _value_at(
        self, code: Code, node: cst.BaseExpression, keys: tuple[str, ...], at: int | None
    ) -> Target:
        asked = (*chain_of(node)[1], *keys)
        try:
            found = self._keys(code, node, keys, at)
            if isinstance(found, Loaded):
                asked = found.keys
                return self._entry(found, code, node)
            return found
        except Cannot as cannot:
            # The way was lost in code that is not understood; a configured value of that name and of
            # that value, if there is one only, is it. The check by running tells.
            note = self._only(asked, None) if asked else None
            if note is None:
                raise cannot
            return Entry(note)

    # -- the walk ----------------------------------------------------------------------------------------

    def _keys(
        self,
        code: Code,
        node: cst.BaseExpression,
        keys: tuple[str, ...],
        at: int | None,
        mapping: bool = False,
    ) -> Target | Loaded:
        """What ``node[keys[0]][keys[1]]...`` is."""
        self._left -= 1
        self.way.append((code, node, keys))
        if self._left < 0:
            raise self._cannot(code, node, "the value is passed on too often to follow")
        if isinstance(node, cst.Subscript | cst.Attribute) or looked_up(node) is not None:
            return self._access(code, node, keys, at)
        if isinstance(node, cst.Name) and node.value not in ("True", "False", "None"):
            return self._name(code, node, keys, at, mapping)
        if not keys and literal(node):
            return Literal(code, node)
        if isinstance(node, cst.Dict) and keys:
            return self._dict(code, node, keys, at)
        if isinstance(node, cst.Call):
            return self._call(code, node, keys, at, mapping)
        raise self._cannot(code, node, "the value is computed")

    def _access(
        self, code: Code, node: cst.BaseExpression, keys: tuple[str, ...], at: int | None
    ) -> Target | Loaded:
        root, path = chain_of(node)
        if root is node:
            raise self._cannot(code, node, "the value is computed")
        keys = (*path, *keys)
        if isinstance(root, cst.Name) and root.value in ("self", "cls") and code.above(node, cst.ClassDef):
            return self._attribute(code, node, keys)
        subscript = isinstance(node, cst.Subscript) or looked_up(node) is not None
        got = looked_up(node)
        known = any(str(n.get("key", "")).split(".")[-1] == keys[-1] for n in self._scene.config)
        default = got[1] if got is not None and not known else None
        try:
            found = self._keys(code, root, keys, at, subscript)
        except Cannot:
            if default is None:
                raise
        else:
            if default is None or not isinstance(found, Loaded):
                return found
        return self._keys(code, default, (), at)

    def _attribute(self, code: Code, node: cst.BaseExpression, keys: tuple[str, ...]) -> Target | Loaded:
        owner = code.above(node, cst.ClassDef)
        assert owner is not None
        values = list(bound_to_self(code, owner, keys[0]))
        if not values:
            return self._class_entry(code, owner, keys, code, node)
        if len(values) > 1:
            raise self._cannot(code, node, f"self.{keys[0]} is set in several places")
        return self._keys(code, values[0], keys[1:], self._callers.frame_of(code, values[0]))

    def _class_entry(
        self, code: Code, owner: cst.ClassDef, keys: tuple[str, ...], asking: Code, node: cst.CSTNode
    ) -> Target | Loaded:
        """An entry of a class for a node that asks for it, maybe in another file."""
        for statement in owner.body.body:
            for line in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
                name, value = assignment(line)
                if name == keys[0] and value is not None:
                    return self._keys(code, value, keys[1:], None)
        raise self._cannot(asking, node, f"{keys[0]} is not set in class {owner.name.value}")

    def _name(
        self, code: Code, node: cst.Name, keys: tuple[str, ...], at: int | None, mapping: bool
    ) -> Target | Loaded:
        found = {id(one.node): one for one in code.assignments(node, node.value)}
        if len(found) != 1:
            what = "has several definitions" if found else "has no definition in this file"
            raise self._cannot(code, node, f"{node.value} {what}")
        one = next(iter(found.values()))
        if isinstance(one, meta.ImportAssignment):
            return self._imported(code, node, one, keys)
        bound = one.node
        if isinstance(bound, cst.Param):
            return self._parameter(code, bound, keys, at)
        if isinstance(bound, cst.ClassDef) and keys:
            return self._class_entry(code, bound, keys, code, node)
        value = value_of(code, bound)
        if value is None:
            raise self._cannot(code, node, f"{node.value} is computed")
        if is_changed(code, one, keys):
            raise self._cannot(code, node, f"{node.value} is changed after it is made")
        if self._value is None and code.function_of(bound) is None and executes(code):
            raise self._cannot(code, node, f"{node.value} may be set by what the file executes")
        target = self._keys(code, value, keys, at, mapping)
        if isinstance(target, Literal) and target.node is value:
            return Literal(target.code, target.node, node.value)
        return target

    def _imported(
        self, code: Code, node: cst.Name, one: meta.ImportAssignment, keys: tuple[str, ...]
    ) -> Target | Loaded:
        whole = next(iter(one.get_qualified_names_for(node.value))).name.lstrip(".")
        module = self._scene.module(whole, code.path)
        if module is not None and keys:
            name, rest = keys[0], keys[1:]
        else:
            before, _, name = whole.rpartition(".")
            module, rest = self._scene.module(before, code.path), keys
        if module is None:
            raise self._cannot(code, node, f"{whole} is not a file of yours")
        target = self.constant(self._scene.code(module), (name, *rest))
        return Literal(target.code, target.node, name) if isinstance(target, Literal) and not rest else target

    def _parameter(
        self, code: Code, param: cst.Param, keys: tuple[str, ...], at: int | None
    ) -> Target | Loaded:
        function = code.function_of(param)
        if function is None or param not in parameters_of(function):
            raise self._cannot(code, param, f"{param.name.value} is passed by * or into a lambda")
        caller = self._callers.caller(code, function, at)
        if caller is None:
            raise self._cannot(code, param, f"the caller of {function.name.value}() is not known")
        outer, call, above = caller
        given = argument(call, param.name.value, position_of(code, function, param, call))
        if given is not None:
            return self._keys(outer, given, keys, above)
        if has_spread(call):
            for arg in call.args:
                inner = self._spread(outer, arg.value, above, param.name.value) if arg.star == "**" else None
                if inner is not None and not keys:
                    return inner
            raise self._cannot(outer, call, f"{param.name.value} is passed on by * or **")
        if param.default is None:
            raise self._cannot(code, param, f"{param.name.value} is not given")
        if not keys and self._callers.shared(code, function, at):
            return Absent(outer, call, param.name.value)  # the default serves other loaders too
        target = self._keys(code, param.default, keys, None)
        if isinstance(target, Literal) and target.node is param.default:
            return replace(target, ungiven=Absent(outer, call, param.name.value))
        return target

    def _dict(self, code: Code, node: cst.Dict, keys: tuple[str, ...], at: int | None) -> Target | Loaded:
        for element in reversed(node.elements):
            if isinstance(element, cst.StarredDictElement):
                raise self._cannot(code, node, "the dictionary takes in another one")
            if isinstance(element, cst.DictElement) and text_of(element.key) == keys[0]:
                return self._keys(code, element.value, keys[1:], at)
        raise self._cannot(code, node, f"the dictionary has no {keys[0]!r}")

    def _call(
        self, code: Code, node: cst.Call, keys: tuple[str, ...], at: int | None, mapping: bool
    ) -> Target | Loaded:
        name, whole = last_name(node.func), code.qualified(node.func)
        if name in _ARGUMENTS:
            return Loaded("argparse", keys)
        if whole in _READERS:
            return Loaded("file", keys, mapping)
        if whole == "dataclasses.field":
            return self._default_of(code, node, keys)
        if whole == "dataclasses.replace" and keys and node.args:
            return self._replaced(code, node, keys, at)
        if not keys:
            if name in _CASTS and len(node.args) == 1:
                return self._keys(code, node.args[0].value, (), at)
            raise self._cannot(code, node, "the value is computed")
        if name == "dict" and any(arg.keyword is not None for arg in node.args):
            given = argument(node, keys[0])
            if given is None:
                raise self._cannot(code, node, f"the dictionary has no {keys[0]!r}")
            return self._keys(code, given, keys[1:], at)
        if name in _WRAPPERS and len(node.args) == 1:
            return self._keys(code, node.args[0].value, keys, at, mapping)
        return self._made(code, node, keys, at)

    def _default_of(self, code: Code, node: cst.Call, keys: tuple[str, ...]) -> Target | Loaded:
        """``field(default=0)``, ``field(default_factory=Options)`` of a dataclass."""
        factory = argument(node, "default_factory")
        default = factory.body if isinstance(factory, cst.Lambda) else argument(node, "default")
        if default is not None:
            return self._keys(code, default, keys, None)
        where, found = self.definition(code, factory) if factory is not None else (code, None)
        if isinstance(found, cst.ClassDef) and keys:
            return self._class_entry(where, found, keys, code, node)
        raise self._cannot(code, node, "the value is computed")

    def _replaced(self, code: Code, node: cst.Call, keys: tuple[str, ...], at: int | None) -> Target | Loaded:
        """A field of ``replace(options, lr=1e-3)``: what is given there, else what the options have."""
        given = argument(node, keys[0])
        if given is not None:
            return self._keys(code, given, keys[1:], at)
        options = any(n.get("given") and str(n.get("key")).endswith(keys[-1]) for n in self._scene.config)
        if options and has_spread(node):
            raise self._cannot(code, node, f"{keys[-1]} may be passed by **")
        return self._keys(code, node.args[0].value, keys, at)

    def _made(self, code: Code, node: cst.Call, keys: tuple[str, ...], at: int | None) -> Target | Loaded:
        """What a function of the user's returns, or a field of an object of theirs."""
        where, found = self.definition(code, node.func)
        if isinstance(found, cst.ClassDef):
            return self._field(code, node, at, where, found, keys)
        if isinstance(found, cst.FunctionDef):
            returns = [r for r in where.nodes(cst.Return, found) if where.function_of(r) is found]
            if len(returns) == 1 and returns[0].value is not None:
                frames = self._callers.through(found, where)
                inner = frames[0] if len(frames) == 1 else None
                return self._keys(where, returns[0].value, keys, inner)
        raise self._cannot(code, node, "the value is computed")

    def _field(
        self,
        code: Code,
        call: cst.Call,
        at: int | None,
        where: Code,
        owner: cst.ClassDef,
        keys: tuple[str, ...],
    ) -> Target | Loaded:
        """A field of an object that a call makes: what it was given, what its class sets."""
        given = argument(call, keys[0])
        values = list(bound_to_self(where, owner, keys[0]))
        if len(values) == 1 and isinstance(values[0], cst.Name):
            bound = [one.node for one in where.assignments(values[0], values[0].value)]
            param = bound[0] if len(bound) == 1 else None
            function = where.function_of(param) if isinstance(param, cst.Param) else None
            if function is not None and isinstance(param, cst.Param) and function.name.value == "__init__":
                given = argument(call, param.name.value, position_of(where, function, param, call)) or given
        if given is not None:
            return self._keys(code, given, keys[1:], at)
        if len(values) == 1:
            return self._keys(where, values[0], keys[1:], self._callers.frame_of(where, values[0]))
        return self._class_entry(where, owner, keys, code, call)

    def definition(self, code: Code, node: cst.CSTNode) -> tuple[Code, cst.CSTNode | None]:
        """The function or class of the user's that a name means, and its file."""
        whole = code.qualified(node)
        if whole:
            before, _, name = whole.lstrip(".").rpartition(".")
            module = self._scene.module(before, code.path)
            if module is None:
                return code, None
            code, found = self._scene.code(module), []
            found = code.global_names(name)
        else:
            found = code.assignments(node, last_name(node)) if isinstance(node, cst.Name) else []
        bound = {id(one.node): one.node for one in found if isinstance(one, meta.Assignment)}
        return code, next(iter(bound.values())) if len(bound) == 1 else None

    # -- configuration -----------------------------------------------------------------------------------

    def _entry(self, found: Loaded, code: Code, node: cst.CSTNode) -> Entry:
        note = self._only(found.keys, found.source)
        if note is not None:
            return Entry(note)
        key = ".".join(found.keys)
        read = next((n for n in self._scene.config if n.get("file") and n.get("key") == key), None)
        if read is not None:
            where = f"{read.get('value')} in {Path(str(read['file'])).name}, {self._value} was in effect"
            raise self._cannot(code, node, f"{key} is {where}")
        raise self._cannot(code, node, f"which setting {key or 'it'} is cannot be told")

    def _only(self, keys: tuple[str, ...], source: str | None) -> Note | None:
        """The one configured value of these keys that is in effect."""
        key = ".".join(keys)
        found: dict[tuple[Any, ...], Note] = {}
        for note in self._scene.config:
            name = str(note.get("key", ""))
            is_argument = note.get("source") == "argparse" and bool(note.get("option"))
            is_word = is_argument and not str(note["option"]).startswith("-")  # data.num_workers=4
            fits = name == key or name.endswith("." + key) or (source is None and name == keys[-1])
            meant = not is_argument or is_word if source == "file" else is_argument or source is None
            if not meant:
                continue
            if fits and (self._value is None or same(note.get("value"), self._value)):
                if is_word:
                    return note
                found[str(note.get("file")), name] = note
        exact = [n for n in found.values() if n.get("key") == key]
        kept = exact if len(exact) == 1 else list(found.values())
        return kept[0] if len(kept) == 1 else None

    def _cannot(self, code: Code, node: cst.CSTNode, why: str) -> Cannot:
        shown = " ".join(code.source(node).split())
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return Cannot(f"{why} ({shown})" if shown not in why else why, str(code.path), code.line(node))


def _position(name: str) -> int | None:
    return LOADER_POSITIONS.index(name) if name in LOADER_POSITIONS else None
