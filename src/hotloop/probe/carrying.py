"""What making a sample does with the attributes of its dataset, read in the source of the dataset's class.

Told are those by which a sample depends on the ones made before it: a counter that decides something, the
last sample read. What is kept under a key of its own, opened when it is first needed, made anew when what is
asked for changes, or never flows into what is returned, carries nothing.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

from hotloop.probe.identity import code_place, is_own

#: Where making a sample begins.
_ENTRIES: Final = ("__getitem__", "__getitems__", "__call__", "forward")
#: Methods that add to a container, and those that take out of it without a key.
_ADDING: Final = frozenset(["append", "appendleft", "extend", "extendleft", "insert", "rotate"])
_TAKING: Final = frozenset(["pop", "popleft"])
#: Functions that only look at the object that they are given.
_LOOKING: Final = frozenset([
    "super", "hasattr", "getattr", "isinstance", "issubclass", "len", "type", "id", "repr", "str",
])  # fmt: skip
#: Methods that change a container under a key, or all of it.
_CHANGING: Final = _ADDING | _TAKING | {
    "update", "setdefault", "add", "clear", "remove", "discard", "popitem", "move_to_end",
}  # fmt: skip
#: Before the name of a method that another one stands before.
_SUPER: Final = "super()."
#: Modules whose classes do nothing to attributes.
_BARE: Final = ("builtins", "abc", "typing", "torch.utils.data.dataset", "torch.nn.modules.module")
#: Calls within calls, and statements, that are followed.
_DEEP: Final = 6
_MOST: Final = 4000

Taint = frozenset[str]
_NONE: Final[Taint] = frozenset()
_Ends = Literal["falls", "leaves", "raises"]
Kind = Literal["whole", "keyed", "moved"]
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Making:
    """Attributes that making a sample reads, those it writes, and those that carry from sample to sample.

    ``handed_on``: other code may write to them as well: the object itself is given to a function, or a base
    class is not the user's.
    """

    reads: frozenset[str]
    writes: frozenset[str]
    carried: tuple[str, ...]
    handed_on: bool = False


def making_of(kind: type) -> Making | None:
    """How objects of a class make samples, None where its source cannot be read."""
    if kind not in _makings:
        _makings[kind] = _making(kind)
    return _makings[kind]


_makings: WeakKeyDictionary[type, Making | None] = WeakKeyDictionary()


def _making(kind: type) -> Making | None:
    methods = _methods(kind)
    entries = [name for name in _ENTRIES if name in methods]
    if not entries:
        return None
    found = _Stores(methods)
    try:
        for name in entries:
            found.enter(name, frozenset())
        carried = _Flow(methods, found).carried(entries)
    except _TooMuchError:
        return None
    bases = any(not is_own(one.__module__) and one.__module__ not in _BARE for one in kind.__mro__)
    return Making(
        reads=frozenset(found.reads),
        writes=frozenset(store.name for store in found.stores),
        carried=carried,
        handed_on=found.handed_on or bases,
    )


def writes_of(kind: type, method: str) -> frozenset[str]:
    """The attributes that a method of a class may write to, none where its source cannot be read."""
    methods = _methods(kind)
    found = _Stores(methods)
    if method in methods:
        with suppress(_TooMuchError):
            found.enter(method, frozenset())
    return frozenset(store.name for store in found.stores)


class _TooMuchError(Exception):
    """More code than is followed."""


def _methods(kind: type) -> dict[str, _Function]:
    """The methods and properties of a class and its bases that the user wrote, as they are found by name."""
    found: dict[str, _Function] = {}
    known: set[str] = set()
    for one in kind.__mro__:
        for name, member in vars(one).items():
            if name in known:
                name = _SUPER + name  # as it is called from the class above
            if name in known:
                continue
            known.add(name)
            if isinstance(member, staticmethod | classmethod):
                continue
            function = getattr(member, "fget", None) or member
            file, line = code_place(function)
            if file is not None and line is not None and is_own(one.__module__):
                node = _functions(file).get((function_name(function), line))
                if node is not None and (node.args.posonlyargs or node.args.args):
                    found[name] = node
    return found


def function_name(function: Any) -> str:
    """The name that its code has."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return str(function.__code__.co_name)


@lru_cache(maxsize=16)
def tree_of(file: str) -> ast.Module | None:
    """The syntax of a file, None where it cannot be read."""
    try:
        with open(file, "rb") as source:
            return ast.parse(source.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=16)
def _functions(file: str) -> dict[tuple[str, int], _Function]:
    tree = tree_of(file)
    return {
        (node.name, min([node.lineno, *(one.lineno for one in node.decorator_list)])): node
        for node in ast.walk(tree or ast.Module([], []))
        if isinstance(node, _Function)
    }


def _self_of(function: _Function) -> str:
    return (*function.args.posonlyargs, *function.args.args)[0].arg


def _attribute(node: ast.AST, of: str) -> str:
    """The name in ``self.NAME``, "" for anything else."""
    named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == of
    return node.attr if named and isinstance(node, ast.Attribute) else ""


def _method(function: ast.expr, of: str) -> str:
    """What is called in ``self.NAME(...)`` and ``super().NAME(...)``."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
        above = function.value.func
        return _SUPER + function.attr if isinstance(above, ast.Name) and above.id == "super" else ""
    return _attribute(function, of)


def _root(node: ast.AST, of: str) -> tuple[str, list[ast.expr]]:
    """The name in ``self.NAME[...]...`` and its keys."""
    keys: list[ast.expr] = []
    while isinstance(node, ast.Subscript):
        keys.append(node.slice)
        node = node.value
    return _attribute(node, of), keys


@dataclass(frozen=True, kw_only=True)
class _Store:
    """A write: to the attribute itself, beneath a key that is not always the same, or of what it was."""

    name: str
    kind: Kind
    tests: frozenset[str]  # attributes that decide whether it is done


class _Stores:
    """Every write to an attribute that making a sample may come by."""

    def __init__(self, methods: dict[str, _Function]) -> None:
        self._methods = methods
        self._done: set[tuple[str, frozenset[str]]] = set()
        self.stores: list[_Store] = []
        self.reads: set[str] = set()
        self.handed_on = False

    def enter(self, name: str, tests: frozenset[str]) -> None:
        """A method that is called where these attributes have been asked."""
        if (name, tests) in self._done:
            return
        if len(self._done) > 50 * _DEEP:
            raise _TooMuchError
        self._done.add((name, tests))
        function = self._methods[name]
        for statement in function.body:
            self._walk(statement, _self_of(function), tests)

    def _walk(self, node: ast.AST, of: str, tests: frozenset[str]) -> None:
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            inside = tests | self._asked(node.test, of)
            self._walk(node.test, of, tests)
            rest = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [*node.body, *node.orelse]
            for child in rest:
                self._walk(child, of, inside)
            return
        if isinstance(node, ast.Try):
            asked = frozenset().union(*(self._asked(one, of) for one in node.body))
            for child in [*node.body, *node.orelse, *node.finalbody]:
                self._walk(child, of, tests)
            for handler in node.handlers:
                for child in handler.body:
                    self._walk(child, of, tests | asked)
            return
        self._take(node, of, tests)
        for inner in ast.iter_child_nodes(node):
            self._walk(inner, of, tests)

    def _asked(self, test: ast.AST, of: str) -> frozenset[str]:
        """Attributes that a test looks at: also by ``hasattr(self, "name")``."""
        found = {name for node in ast.walk(test) if (name := _attribute(node, of))}
        for call in ast.walk(test):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and len(call.args) > 1:
                first, second = call.args[:2]
                if isinstance(first, ast.Name) and first.id == of and isinstance(second, ast.Constant):
                    found.add(str(second.value))
        return frozenset(found)

    def _take(self, node: ast.AST, of: str, tests: frozenset[str]) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete):
            targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
            for target in _flat(targets):
                self._store(target, getattr(node, "value", None), of, tests, isinstance(node, ast.AugAssign))
            # By another name it may be written to unseen.
            name = _attribute(node.value, of) if isinstance(node, ast.Assign) else ""
            if name:
                self.stores.append(_Store(name=name, kind="keyed", tests=tests))
        elif isinstance(node, ast.For | ast.comprehension):
            for target in _flat([node.target]):
                self._store(target, None, of, tests, moved=False)
        elif isinstance(node, ast.Call):
            self._call(node, of, tests)
        name = _attribute(node, of)
        if name and isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            self.reads.add(name)
            if name in self._methods:
                self.enter(name, tests)

    def _store(
        self, target: ast.expr, value: ast.expr | None, of: str, tests: frozenset[str], moved: bool
    ) -> None:
        name, keys = _root(target, of)
        if not name:
            return
        moved = moved or (value is not None and not keys and self._moves(value, name, of))
        keyed = any(not isinstance(key, ast.Constant) for key in keys)
        if value is not None and not keys and _made_when_needed(value, name, of):
            tests = tests | {name}
        kind: Kind = "moved" if moved else "keyed" if keyed else "whole"
        self.stores.append(_Store(name=name, kind=kind, tests=tests))

    def _moves(self, value: ast.expr, name: str, of: str) -> bool:
        """Whether the new value is made of the old one."""
        if _made_when_needed(value, name, of):
            return False
        return any(_attribute(node, of) == name for node in ast.walk(value))

    def _call(self, node: ast.Call, of: str, tests: frozenset[str]) -> None:
        given = [*node.args, *(one.value for one in node.keywords)]
        looks = isinstance(node.func, ast.Name) and node.func.id in _LOOKING
        if not looks and any(isinstance(one, ast.Name) and one.id == of for one in given):
            self.handed_on = True
        if not looks and not _only_reads(node.func):
            for name in filter(None, (_attribute(one, of) for one in given)):
                self.stores.append(_Store(name=name, kind="keyed", tests=tests))
        if not isinstance(node.func, ast.Attribute):
            return
        above = _method(node.func, of)
        if above.startswith(_SUPER) and above in self._methods:
            self.enter(above, tests)
        name, keys = _root(node.func.value, of)
        method = node.func.attr
        taken = method in _TAKING and (not given or not name or isinstance(given[0], ast.Constant))
        if name and not keys and (method in _ADDING or taken):
            self.stores.append(_Store(name=name, kind="whole", tests=tests))
        elif name:
            in_place = method.endswith("_") and not method.endswith("__")
            if in_place or method in _CHANGING:
                self.stores.append(_Store(name=name, kind="keyed", tests=tests))


def _only_reads(function: ast.expr) -> bool:
    """Whether a function leaves what it is given as it was, as one of numpy, torch or Python does."""
    if isinstance(function, ast.Name):
        return hasattr(builtins, function.id)
    node = function
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("np", "numpy", "torch", "math", "random")


def _made_when_needed(value: ast.expr, name: str, of: str) -> bool:
    """``self.x or make()``, ``self.x if self.x else make()``."""
    if isinstance(value, ast.BoolOp):
        return _attribute(value.values[0], of) == name
    return isinstance(value, ast.IfExp) and any(_attribute(one, of) == name for one in ast.walk(value.test))


def _flat(targets: Iterable[ast.expr]) -> Iterator[ast.expr]:
    for target in targets:
        if isinstance(target, ast.Tuple | ast.List):
            yield from _flat(target.elts)
        else:
            yield target.value if isinstance(target, ast.Starred) else target


@dataclass(kw_only=True)
class _State:
    """What names and attributes have taken from samples made before; ``of`` is ``self``."""

    of: str
    names: dict[str, Taint] = field(default_factory=dict)
    #: Attributes that this sample has set already: what they held before is gone.
    attributes: dict[str, Taint] = field(default_factory=dict)
    #: What decided that this point is come to.
    decided: Taint = _NONE

    def copy(self) -> _State:
        return _State(
            of=self.of, names=dict(self.names), attributes=dict(self.attributes), decided=self.decided
        )

    def become(self, ways: list[_State]) -> None:
        """What is true whichever way was taken."""
        if not ways:
            return
        names = {name for way in ways for name in way.names}
        self.names = {name: _NONE.union(*(way.names.get(name, _NONE) for way in ways)) for name in names}
        kept = set.intersection(*(set(way.attributes) for way in ways))
        self.attributes = {name: _NONE.union(*(way.attributes[name] for way in ways)) for name in kept}


class _Flow:
    """Follows what was there before a sample into what is returned for it."""

    def __init__(self, methods: dict[str, _Function], stores: _Stores) -> None:
        self._methods = methods
        written = {store.name for store in stores.stores}
        moved = {store.name for store in stores.stores if store.kind == "moved"}
        whole = {store.name for store in stores.stores if store.kind == "whole" and not store.tests & written}
        #: What may hold something of another sample; of these, the ones that count.
        self._carrying = moved | whole
        self._counting = moved
        self._left = _MOST
        self._results: list[Taint] = []
        self._calls: list[str] = []

    def carried(self, entries: Iterable[str]) -> tuple[str, ...]:
        """The attributes whose earlier values flow into what an entry returns."""
        if not self._carrying:
            return ()
        found: set[str] = set()
        for name in entries:
            found |= self._enter(name, [], _State(of=""))
        return tuple(sorted(found))

    def _enter(self, name: str, given: list[Taint], state: _State) -> Taint:
        """What a method returns has taken, from what it is given and from attributes."""
        every = _NONE.union(*given)
        if name in self._calls or len(self._calls) >= _DEEP:
            return every
        function = self._methods[name]
        inner = _State(of=_self_of(function), attributes=state.attributes, decided=state.decided)
        params = [*function.args.posonlyargs, *function.args.args][1:]
        inner.names = {one.arg: given[k] if k < len(given) else every for k, one in enumerate(params)}
        inner.names |= {one.arg: every for one in function.args.kwonlyargs}
        before, self._results = self._results, []
        self._calls.append(name)
        self._block(function.body, inner)
        self._calls.pop()
        result, self._results = _NONE.union(*self._results), before
        state.attributes = inner.attributes
        return result

    # -- statements --------------------------------------------------------------------------------------

    def _block(self, statements: Iterable[ast.stmt], state: _State) -> _Ends:
        for statement in statements:
            self._left -= 1
            if self._left < 0:
                raise _TooMuchError
            ends = self._statement(statement, state)
            if ends != "falls":
                return ends
        return "falls"

    def _statement(self, node: ast.stmt, state: _State) -> _Ends:
        if isinstance(node, ast.Return):
            self._results.append(self._value(node.value, state) | state.decided)
            return "leaves"
        if isinstance(node, ast.Raise):
            return "raises"
        if isinstance(node, ast.Break | ast.Continue):
            return "leaves"
        if isinstance(node, ast.If):
            return self._branches(self._value(node.test, state), [node.body, node.orelse], state)
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            self._loop(node, state)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                taken = self._value(item.context_expr, state)
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, taken, state)
            return self._block(node.body, state)
        elif isinstance(node, ast.Try):
            return self._try(node, state)
        elif isinstance(node, ast.Match):
            taken = self._value(node.subject, state)
            self._branches(taken, [case.body for case in node.cases] + [[]], state)
        elif isinstance(node, ast.Assign):
            taken = self._value(node.value, state) | state.decided
            for target in node.targets:
                self._bind(target, taken, state)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._bind(node.target, self._value(node.value, state) | state.decided, state)
        elif isinstance(node, ast.AugAssign):
            now = self._value(node.value, state) | state.decided
            self._bind(node.target, now | self._held(node.target, state), state)
        elif isinstance(node, ast.Expr):
            taken = self._value(node.value, state) | state.decided
            self._told(node.value, taken, state)
        return "falls"

    def _branches(self, asked: Taint, blocks: list[list[ast.stmt]], state: _State) -> _Ends:
        deciding = asked & self._counting
        ways, ends = [], []
        for block in blocks:
            way = state.copy()
            way.decided |= deciding
            ends.append(self._block(block, way))
            if ends[-1] == "falls":
                ways.append(way)
        state.become(ways)
        state.decided = state.decided.union(*(way.decided - deciding for way in ways))
        if "leaves" in ends:
            state.decided |= deciding
        return "falls" if ways else "leaves" if "leaves" in ends else "raises"

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, state: _State) -> None:
        way = state.copy()
        for _ in range(2):
            if isinstance(node, ast.While):
                way.decided |= self._value(node.test, way) & self._counting
            else:
                self._bind(node.target, self._value(node.iter, way), way)
            self._block(node.body, way)
        state.become([state.copy(), way])
        self._block(node.orelse, state)

    def _try(self, node: ast.Try, state: _State) -> _Ends:
        before = state.copy()
        ends = self._block([*node.body, *node.orelse], state)
        ways = [state.copy()] if ends == "falls" else []
        all_ends = [ends]
        for handler in node.handlers:
            way = before.copy()
            way.names |= {name: taken | way.names.get(name, _NONE) for name, taken in state.names.items()}
            all_ends.append(self._block(handler.body, way))
            if all_ends[-1] == "falls":
                ways.append(way)
        state.become(ways)
        last = self._block(node.finalbody, state)
        if last != "falls":
            return last
        return "falls" if ways else "leaves" if "leaves" in all_ends else "raises"

    def _bind(self, target: ast.expr, taken: Taint, state: _State) -> None:
        for one in _flat([target]):
            if isinstance(one, ast.Name):
                state.names[one.id] = taken
                continue
            name, keys = _root(one, state.of)
            if name and not keys:
                state.attributes[name] = taken
            elif name and name in state.attributes:
                state.attributes[name] |= taken
            elif isinstance(one, ast.Subscript | ast.Attribute):
                self._add(one.value, taken, state)

    def _add(self, node: ast.expr, taken: Taint, state: _State) -> None:
        """What a variable holds has taken something too."""
        while isinstance(node, ast.Subscript | ast.Attribute):
            node = node.value
        if isinstance(node, ast.Name) and node.id != state.of:
            state.names[node.id] = state.names.get(node.id, _NONE) | taken

    def _told(self, node: ast.expr, taken: Taint, state: _State) -> None:
        """``x.append(value)`` as a statement of its own."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, keys = _root(node.func.value, state.of)
            if name and not keys and name in state.attributes:
                state.attributes[name] |= taken
            elif not name:
                self._add(node.func.value, taken, state)

    # -- values ------------------------------------------------------------------------------------------

    def _held(self, target: ast.expr, state: _State) -> Taint:
        """What a target held before it is changed."""
        if isinstance(target, ast.Name):
            return state.names.get(target.id, _NONE)
        name, _ = _root(target, state.of)
        return self._attribute(name, state) if name else _NONE

    def _attribute(self, name: str, state: _State) -> Taint:
        if name in state.attributes:
            return state.attributes[name]
        return frozenset([name]) if name in self._carrying else _NONE

    def _value(self, node: ast.AST | None, state: _State) -> Taint:
        if node is None or isinstance(node, ast.Constant):
            return _NONE
        if isinstance(node, ast.Name):
            return state.names.get(node.id, _NONE)
        name = _attribute(node, state.of)
        if name:
            return self._enter(name, [], state) if name in self._methods else self._attribute(name, state)
        if isinstance(node, ast.NamedExpr):
            taken = self._value(node.value, state)
            self._bind(node.target, taken, state)
            return taken
        if isinstance(node, ast.Call):
            given = [self._value(one, state) for one in (*node.args, *(one.value for one in node.keywords))]
            method = _method(node.func, state.of)
            if method in self._methods:
                return self._enter(method, given, state)
            return self._value(node.func, state).union(*given)
        return _NONE.union(*(self._value(child, state) for child in ast.iter_child_nodes(node)))
