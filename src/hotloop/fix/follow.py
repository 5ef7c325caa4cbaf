"""From an argument of a call to the place where its value is written, along the frames of the run.

Names, parameters, classes and dictionaries are followed. Where the way ends, the one configured value of the
keys read so far is it. The check by running tells.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hotloop.diagnose.groups import shortened
from hotloop.fix.scene import Cannot, Scene
from hotloop.measure.places import Frame
from hotloop.measure.settings import same
from hotloop.record.recording import Note
from hotloop.source.code import Code
from hotloop.source.nodes import (
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
from hotloop.source.values import bound_to_self, keys_of, looked_up
from hotloop.torch_facts import LOADER_POSITIONS, normal

Keys = tuple[str, ...]

_DEPTH: Final = 24
_CASTS: Final = frozenset(["int", "bool", "float"])


@dataclass(frozen=True)
class Literal:
    """The value stands in code."""

    code: Code
    node: ast.expr
    name: str = ""  # the name it is bound to, where it is


@dataclass(frozen=True)
class Absent:
    """The argument is not given: it is to be added to this call, under this name."""

    code: Code
    call: ast.Call
    name: str
    default: ast.expr | None = None  # what counts instead


@dataclass(frozen=True)
class Entry:
    """The value was configured, as this note says."""

    note: Note


Target = Literal | Absent | Entry


def only_note(scene: Scene, keys: tuple[str, ...], value: Any) -> Note | None:
    """The one configured value of these keys that is in effect."""
    key = ".".join(keys)
    found: dict[tuple[Any, ...], Note] = {}
    for note in scene.config:
        name = str(note.get("key", ""))
        fits = name == key or name.endswith("." + key) or name == keys[-1]
        if fits and (value is None or same(note.get("value"), value)):
            if note.get("option") and not str(note["option"]).startswith("-"):  # data.num_workers=4
                return note
            found[str(note.get("file")), name] = note
    exact = [note for note in found.values() if note.get("key") == key]
    kept = exact if len(exact) == 1 else list(found.values())
    return kept[0] if len(kept) == 1 else None


def cannot(code: Code, node: ast.AST, why: str) -> Cannot:
    """Why a value cannot be followed through an expression, which is shown."""
    text = shortened(code.source(node))
    return Cannot.at(f"{why} ({text})" if text not in why else why, code, node)


def definition(scene: Scene, code: Code, node: ast.AST) -> tuple[Code, ast.AST | None]:
    """The function or class of the user's that a name means, and its file."""
    whole = code.qualified(node)
    if whole:
        before, _, name = whole.lstrip(".").rpartition(".")
        module = scene.module(before, code.path)
        if module is None:
            return code, None
        code = scene.code(module)
        found = code.global_names(name)
    else:
        found = code.bindings(node, node.id) if isinstance(node, ast.Name) else []
    return code, found[0].node if len(found) == 1 else None


class Follower:
    """Follows the arguments of the calls of a run. ``value`` is what is in effect, to choose by."""

    def __init__(self, scene: Scene, frames: Sequence[Frame], value: Any = None) -> None:
        self._scene, self._value = scene, value
        self.callers = Callers(scene, frames)
        self._left = _DEPTH

    def argument(self, code: Code, call: ast.Call, at: int | None, name: str, given: bool) -> Target:
        """Where a loader's argument is written. ``given``: the run gave it. Raises Cannot."""
        position = LOADER_POSITIONS.index(name) if name in LOADER_POSITIONS else None
        expression = argument(call, name, position)
        if expression is not None:
            return self._at(code, expression, (), at)
        found = self._spread_in(code, call, at, name)
        if found is not None:
            return found
        if given and has_spread(call):
            raise Cannot.at(f"{name} is passed on by * or **", code, call)
        return Absent(code, call, name)

    def expression(self, code: Code, node: ast.expr, at: int | None) -> Target:
        """Where the value of an expression is written. Raises Cannot."""
        return self._at(code, node, (), at)

    def passed(self, code: Code, param: ast.arg, at: int | None) -> tuple[Code, ast.expr, int | None] | None:
        """What the caller gave for a parameter, and where."""
        function = code.function_of(param)
        caller = self.callers.caller(code, function, at) if function is not None else None
        if function is None or caller is None:
            return None
        outer, call, above = caller
        given = argument(call, param.arg, _position_of(code, function, param))
        return (outer, given, above) if given is not None else None

    def constant(self, code: Code, keys: Keys) -> Target:
        """Where a file of constants gives a dotted name its value. Raises Cannot."""
        found = code.global_names(keys[0])
        if len(found) != 1:
            raise Cannot(f"{keys[0]} has {'several' if found else 'no'} definitions", str(code.path))
        bound = found[0].node
        if isinstance(bound, ast.ClassDef) and keys[1:]:
            return self._of_class(code, bound, keys[1:], code, bound)
        if found[0].value is None:
            raise cannot(code, bound, f"{keys[0]} is computed")
        return self._at(code, found[0].value, keys[1:], None)

    # -- the walk ----------------------------------------------------------------------------------------

    def _at(self, code: Code, node: ast.expr, keys: Keys, at: int | None) -> Target:
        """Where ``node[keys[0]][keys[1]]...`` is written. Raises Cannot."""
        self._left -= 1
        if self._left < 0:
            raise cannot(code, node, "the value is passed on too often to follow")
        if isinstance(node, ast.Subscript | ast.Attribute) or looked_up(node) is not None:
            return self._access(code, node, keys, at)
        if isinstance(node, ast.Name):
            return self._name(code, node, keys, at)
        if not keys and literal(node):
            return Literal(code, node)
        if isinstance(node, ast.Dict) and keys:
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None and text_of(key) == keys[0]:
                    return self._at(code, value, keys[1:], at)
        if isinstance(node, ast.Call):
            return self._call(code, node, keys, at)
        return self._end(code, node, keys, "the value is computed")

    def _end(self, code: Code, node: ast.AST, keys: Keys, why: str) -> Target:
        """What was configured under the keys that were read, where the way ends. Raises Cannot."""
        note = only_note(self._scene, keys, self._value) or self._option(code, node, keys) if keys else None
        if note is None:
            raise cannot(code, node, why)
        return Entry(note)

    def _option(self, code: Code, node: ast.AST, keys: Keys) -> Note | None:
        """The option of which a call, ``parser.parse_args()``, makes this attribute, of any name: one of the
        command's, or of this file.
        """
        if not isinstance(node, ast.Call):
            return None
        given = [word.partition("=")[0] for word in self._scene.command]
        known = [text_of(word) or "" for call in code.calls("add_argument") for word in call.args]
        for option in given + known:
            if option.startswith("--") and normal(option) == keys[-1]:
                about = {"source": "argparse", "key": keys[-1], "option": option, "given": option in given}
                return about | {"value": self._value, "raw": self._value, "file": str(code.path)}
        return None

    def _access(self, code: Code, node: ast.expr, keys: Keys, at: int | None) -> Target:
        root, path = keys_of(node)
        if root is node:
            return self._end(code, node, keys, "the value is computed")
        keys = (*path, *keys)
        owner = code.class_of(node)
        if isinstance(root, ast.Name) and root.id in ("self", "cls") and owner is not None:
            return self._of_class(code, owner, keys, code, node)
        got = looked_up(node)
        try:
            return self._at(code, root, keys, at)
        except Cannot:
            if got is None or got[1] is None:
                raise
        return self._at(code, got[1], (), at)

    def _of_class(self, where: Code, owner: ast.ClassDef, keys: Keys, code: Code, node: ast.AST) -> Target:
        """An attribute of a class, or of ``self`` in it, for a node that asks for it."""
        values = bound_to_self(where, owner, keys[0])
        if len(values) == 1 and values[0] is not None:
            return self._at(where, values[0], keys[1:], self.callers.frame_of(where, values[0]))
        for one in owner.body if not values else ():
            if isinstance(one, ast.Assign | ast.AnnAssign) and one.value is not None:
                targets = one.targets if isinstance(one, ast.Assign) else [one.target]
                if [last_name(target) for target in targets] == [keys[0]]:
                    return self._at(where, one.value, keys[1:], None)
        for call in where.calls("save_hyperparameters") if keys[0] == "hparams" and keys[1:] else ():
            init = where.function_of(call)  # Lightning: self.hparams has the arguments of this function
            named = [one for one in parameters_of(init) if one.arg == keys[1]] if init is not None else []
            if named and where.class_of(call) is owner:
                return self._parameter(where, named[0], keys[2:], None)
        times = "in several places" if values else f"in class {owner.name}"
        return self._end(code, node, keys, f"{keys[0]} is {'' if values else 'not '}set {times}")

    def _name(self, code: Code, node: ast.Name, keys: Keys, at: int | None) -> Target:
        found = code.bindings(node, node.id)
        if len(found) != 1:
            what = "has several definitions" if found else "has no definition in this file"
            return self._end(code, node, keys, f"{node.id} {what}")
        bound = found[0].node
        if found[0].imported:
            return self._imported(code, node, found[0], keys)
        if isinstance(bound, ast.arg):
            return self._parameter(code, bound, keys, at)
        if isinstance(bound, ast.ClassDef) and keys:
            return self._of_class(code, bound, keys, code, node)
        value = found[0].value
        if value is None:
            return self._end(code, node, keys, f"{node.id} is computed")
        target = self._at(code, value, keys, at)
        if isinstance(target, Literal) and target.node is value:
            return Literal(target.code, target.node, node.id)
        return target

    def _imported(self, code: Code, node: ast.Name, one: Binding, keys: Keys) -> Target:
        whole = one.imported.lstrip(".")
        module = self._scene.module(whole, code.path)
        if module is not None and keys:
            name, rest = keys[0], keys[1:]
        else:
            before, _, name = whole.rpartition(".")
            module, rest = self._scene.module(before, code.path), keys
        if module is None:
            raise cannot(code, node, f"{whole} is not a file of yours")
        target = self.constant(self._scene.code(module), (name, *rest))
        return Literal(target.code, target.node, name) if isinstance(target, Literal) and not rest else target

    def _parameter(self, code: Code, param: ast.arg, keys: Keys, at: int | None) -> Target:
        function, name = code.function_of(param), param.arg
        if function is None or param not in parameters_of(function):
            return self._end(code, param, keys, f"{name} is passed by * or into a lambda")
        caller = self.callers.caller(code, function, at)
        if caller is None:
            # What a library calls (Hydra, LightningCLI) is configured under the parameter's name.
            why = f"the caller of {function.name}() is not known"
            return self._end(code, param, keys or (name,), why)
        outer, call, above = caller
        given = argument(call, name, _position_of(code, function, param))
        if given is not None:
            return self._at(outer, given, keys, above)
        inner = self._spread_in(outer, call, above, name) if not keys else None
        if inner is not None or has_spread(call):
            return inner or self._end(outer, call, keys, f"{name} is passed on by * or **")
        default = default_of(function, name)
        if default is None:
            return self._end(code, param, keys, f"{name} is not given")
        return self._at(code, default, keys, None) if keys else Absent(outer, call, name, default)

    def _spread_in(self, code: Code, call: ast.Call, at: int | None, name: str) -> Target | None:
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
                raise Cannot.at(f"**{node.id}: its caller is not known", code, node)
            outer, call, above = caller
            found = argument(call, name)
            if found is not None:
                return self._at(outer, found, (), above)
            return self._spread_in(outer, call, above, name)
        try:
            return self._at(code, node, (name,), at)
        except Cannot:
            return None

    def _call(self, code: Code, node: ast.Call, keys: Keys, at: int | None) -> Target:
        """An entry of ``dict(name=value)``, a field of an object of the user's, ``int(value)``."""
        if not keys and last_name(node.func) in _CASTS and len(node.args) == 1:
            return self._at(code, node.args[0], (), at)
        given = argument(node, keys[0]) if keys else None
        if given is not None:
            return self._at(code, given, keys[1:], at)
        func: ast.AST = node.func
        if code.qualified(node.func) == "dataclasses.field":
            default, func = argument(node, "default"), argument(node, "default_factory") or func
            if default is not None:
                return self._at(code, default, keys, at)
        elif keys and len(node.args) == 1 and not node.keywords:  # vars(config), DictConfig(config)
            return self._at(code, node.args[0], keys, at)
        where, found = definition(self._scene, code, func)
        if isinstance(found, ast.ClassDef) and keys:
            return self._of_class(where, found, keys, code, node)
        return self._end(code, node, keys, "the value is computed")


def _position_of(code: Code, function: Function, param: ast.arg) -> int | None:
    """At which position of a call a parameter is given."""
    plain = [*function.args.posonlyargs, *function.args.args]
    if param not in plain:
        return None
    is_method = isinstance(code.parents.get(function), ast.ClassDef)
    bound = is_method and "staticmethod" not in decorators(function) and plain[0].arg in ("self", "cls")
    return plain.index(param) - (1 if bound else 0)


class Callers:
    """The frames of one call of the run, outermost first."""

    def __init__(self, scene: Scene, frames: Sequence[Frame]) -> None:
        self._scene, self._frames = scene, frames

    def caller(
        self, code: Code, function: Function, at: int | None
    ) -> tuple[Code, ast.Call, int | None] | None:
        """The call that a function ran from: by the frames, else the only one in all files."""
        frames = [at] if at is not None and self._is(at, code, function) else self._through(function, code)
        name = _called(code, function)
        if len(frames) == 1 and frames[0]:
            above = frames[0] - 1
            frame = self._frames[above]
            outer = self._scene.code(frame.file)
            call = outer.call_at(frame.line, frame.col, name=name)
            if call is not None and last_name(call.func) == name:
                return outer, call, above
        found = [
            (other, call)
            for other in self._scene.codes(name)
            for call in other.calls(name)
            if other.path == self._scene.main or not _of_script(other, call)
        ]
        return (*found[0], self.frame_of(*found[0])) if len(found) == 1 else None

    def _through(self, function: Function, code: Code) -> list[int]:
        """The frames that ran a function."""
        return [at for at in range(len(self._frames)) if self._is(at, code, function)]

    def _is(self, at: int, code: Code, function: Function) -> bool:
        frame = self._frames[at]
        return Path(frame.file) == code.path and code.function_at(frame.func, frame.func_line) is function

    def frame_of(self, code: Code, node: ast.AST) -> int | None:
        """The frame in whose function a node stands, if there is one."""
        function = code.function_of(node)
        found = self._through(function, code) if function is not None else []
        return found[0] if len(found) == 1 else None


def _of_script(code: Code, node: ast.AST) -> bool:
    """Whether a node runs only where its file is the script that was started."""
    tests = (one.test for one in code.ancestors(node) if isinstance(one, ast.If))
    return any(last_name(one.left) == "__name__" for one in tests if isinstance(one, ast.Compare))


def _called(code: Code, function: Function) -> str:
    owner = code.class_of(function) if function.name == "__init__" else None
    return owner.name if owner is not None else function.name
