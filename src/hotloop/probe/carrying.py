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
from types import FunctionType
from typing import Final, Literal, NamedTuple
from weakref import WeakKeyDictionary

from hotloop.probe.identity import code_of, is_own

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
#: Functions of numpy, torch and random that write to the first of what they are given.
_FILLING: Final = frozenset([
    "copyto", "put", "put_along_axis", "place", "putmask", "shuffle", "fill_diagonal", "at",
])  # fmt: skip
_CachedFunction: Final = type(lru_cache(len))
#: Before the name of a method that another one stands before.
_SUPER: Final = "super()."
#: Before the name of an attribute that is kept for what asks for it again.
_KEPT: Final = "kept "
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

    ``beneath``: what it assigns to, and the methods that it calls, of the objects that its attributes hold,
    with the attribute's name (``transform``, ``set_size``). ``handed_on``: other code may write to them as
    well: the object itself is given to a function, or a base class is not the user's.
    """

    reads: frozenset[str]
    writes: frozenset[str]
    carried: tuple[str, ...]
    beneath: frozenset[tuple[str, str]] = frozenset()
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
            found.enter(name, _NOTHING)
        carried = _Flow(methods, found).carried(entries)
    except _TooMuchError:
        return None
    bases = any(not is_own(one.__module__) and one.__module__ not in _BARE for one in kind.__mro__)
    return Making(
        reads=frozenset(found.reads),
        writes=frozenset(store.name for store in found.stores),
        carried=carried,
        beneath=frozenset(found.beneath),
        handed_on=found.handed_on or bases,
    )


def writes_of(kind: type, method: str) -> frozenset[str]:
    """The attributes that a method of a class may write to, none where its source cannot be read."""
    methods = _methods(kind)
    found = _Stores(methods)
    if method in methods:
        with suppress(_TooMuchError):
            found.enter(method, _NOTHING)
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
            if not isinstance(member, FunctionType | property | _CachedFunction):
                continue
            code = code_of(member.fget if isinstance(member, property) else member)
            if code is not None and is_own(one.__module__):
                node = _functions(code.co_filename).get((code.co_name, code.co_firstlineno))
                if node is not None and (node.args.posonlyargs or node.args.args):
                    found[name] = node
    return found


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


class _Asked(NamedTuple):
    """Attributes that were asked on the way to a statement: by what it stands in, and by what stands before
    it and returns otherwise.
    """

    around: frozenset[str] = frozenset()
    before: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        return self.around | self.before

    def within(self, names: frozenset[str]) -> _Asked:
        return self._replace(around=self.around | names)


_NOTHING: Final = _Asked()


class _Stores:
    """Every write to an attribute that making a sample may come by."""

    def __init__(self, methods: dict[str, _Function]) -> None:
        self._methods = methods
        self._done: set[tuple[str, _Asked]] = set()
        #: Variables of the method that is followed: the attributes that they are, and are parts of.
        self._same: dict[str, frozenset[str]] = {}
        self._parts: dict[str, frozenset[str]] = {}
        self._assigned = _assigned(methods)
        self.stores: list[_Store] = []
        self.reads: set[str] = set()
        self.beneath: set[tuple[str, str]] = set()
        self.handed_on = False

    def enter(self, name: str, asked: _Asked) -> None:
        """A method that is called where these attributes have been asked."""
        if (name, asked) in self._done:
            return
        if len(self._done) > 50 * _DEEP:
            raise _TooMuchError
        self._done.add((name, asked))
        function = self._methods[name]
        names = self._same, self._parts
        self._same, self._parts = {}, {}
        self._block(function.body, _self_of(function), asked)
        self._same, self._parts = names

    def _block(self, statements: list[ast.stmt], of: str, asked: _Asked) -> _Asked:
        """What has been asked at its end."""
        for statement in statements:
            asked = self._statement(statement, of, asked)
        return asked

    def _statement(self, node: ast.stmt, of: str, asked: _Asked) -> _Asked:
        """What has been asked by whom it is followed."""
        if isinstance(node, ast.If):
            self._walk(node.test, of, asked)
            inside = asked.within(self._names(node.test, of))
            self._block(node.body, of, inside)
            self._block(node.orelse, of, inside)
            if _leaves(node.body):
                return self._passed(node.test, of, asked, holds=False)
            if _leaves(node.orelse):
                return self._passed(node.test, of, asked, holds=True)
        elif isinstance(node, ast.Try):
            tried = frozenset().union(*(self._names(one, of) for one in node.body))
            after = self._block([*node.body, *node.orelse], of, asked)
            for handler in node.handlers:
                self._block(handler.body, of, asked.within(tried))
            if _leaves([*node.body, *node.orelse]):
                after = asked.within(tried)
            return self._block(node.finalbody, of, after)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self._walk(item, of, asked)
            return self._block(node.body, of, asked)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            head = node.test if isinstance(node, ast.While) else node.iter
            self._walk(head, of, asked)
            if isinstance(node, ast.While):
                inside = asked.within(self._names(head, of))
            else:
                inside = asked
                self._take(node, of, asked)
            self._block(node.body, of, inside)
            self._block(node.orelse, of, inside)
        else:
            self._walk(node, of, asked)
        return asked

    def _walk(self, node: ast.AST, of: str, asked: _Asked) -> None:
        if isinstance(node, ast.IfExp):
            self._walk(node.test, of, asked)
            inside = asked.within(self._names(node.test, of))
            self._walk(node.body, of, inside)
            self._walk(node.orelse, of, inside)
            return
        if isinstance(node, ast.match_case):
            self._block(node.body, of, asked)
            return
        self._take(node, of, asked)
        for inner in ast.iter_child_nodes(node):
            self._walk(inner, of, asked)

    def _names(self, test: ast.AST, of: str) -> frozenset[str]:
        """Attributes that a test looks at: also by ``hasattr(self, "name")``, and by another name."""
        found = {name for node in ast.walk(test) if (name := _attribute(node, of))}
        for node in ast.walk(test):
            if isinstance(node, ast.Name):
                found |= self._same.get(node.id, frozenset())
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
                first, second = node.args[:2]
                if isinstance(first, ast.Name) and first.id == of and isinstance(second, ast.Constant):
                    found.add(str(second.value))
        return frozenset(found)

    def _passed(self, test: ast.expr, of: str, asked: _Asked, *, holds: bool) -> _Asked:
        """What has been asked where a test was passed that would have returned otherwise."""
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, holds = test.operand, not holds
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) is holds:
            # One of them is enough, and it may be one that asks for something else, like a random number.
            others = (one for one in test.values if not self._names(one, of) & self._assigned)
            if any(_is_foreign(one, of) for one in others):
                return asked
        asked = asked._replace(before=asked.before | self._names(test, of))
        return asked.within(self._names(test, of)) if _says_missing(test, holds=holds) else asked

    def _take(self, node: ast.AST, of: str, asked: _Asked) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete):
            targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
            for target in _flat(targets):
                self._store(target, getattr(node, "value", None), of, asked, isinstance(node, ast.AugAssign))
            # By another name it may be written to unseen.
            name = _attribute(node.value, of) if isinstance(node, ast.Assign) else ""
            if name:
                self.stores.append(_Store(name=name, kind="keyed", tests=asked.all))
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                self._rename(list(_flat(targets)), node.value, of)
        elif isinstance(node, ast.NamedExpr):
            self._rename([node.target], node.value, of)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            for target in _flat([node.target]):
                self._store(target, None, of, asked, moved=False)
                if isinstance(target, ast.Name):
                    self._parts[target.id] = self._names(node.iter, of)
        elif isinstance(node, ast.Call):
            self._call(node, of, asked)
        name = _attribute(node, of)
        if name and isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            self.reads.add(name)
            if name in self._methods:
                self.enter(name, asked)

    def _rename(self, targets: list[ast.expr], value: ast.expr, of: str) -> None:
        called = value.func if isinstance(value, ast.Call) else None
        looks = isinstance(called, ast.Name) and called.id == "getattr"
        names = self._names(value, of) if looks or _attribute(value, of) else frozenset()
        part = _root(value, of)[0]
        for target in targets:
            if isinstance(target, ast.Name):
                self._same[target.id] = names
                self._parts[target.id] = names | ({part} if part else frozenset())

    def _touch(self, node: ast.Attribute, of: str) -> None:
        """``self.NAME.attribute = ...``, ``self.NAME.method(...)``."""
        below = node.value
        while isinstance(below, ast.Attribute | ast.Subscript) and not _attribute(below, of):
            below = below.value
        name = _attribute(below, of)
        names = self._parts.get(below.id, ()) if isinstance(below, ast.Name) else (name,) if name else ()
        # Of what lies deeper it is not known which of its attributes is another.
        self.beneath.update((one, node.attr if below is node.value else "") for one in names)

    def _store(self, target: ast.expr, value: ast.expr | None, of: str, asked: _Asked, moved: bool) -> None:
        name, keys = _root(target, of)
        if isinstance(target, ast.Attribute) and not name:
            self._touch(target, of)
        if not name:
            return
        tests = asked.all
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

    def _call(self, node: ast.Call, of: str, asked: _Asked) -> None:
        tests = asked.all
        given = [*node.args, *(one.value for one in node.keywords)]
        looks = isinstance(node.func, ast.Name) and node.func.id in _LOOKING
        if not looks and any(isinstance(one, ast.Name) and one.id == of for one in given):
            self.handed_on = True
        filled = [] if looks else _filled(node) if _only_reads(node.func) else given
        for name in filter(None, (_root(one, of)[0] for one in filled)):
            self.stores.append(_Store(name=name, kind="keyed", tests=tests))
        if not isinstance(node.func, ast.Attribute):
            return
        above = _method(node.func, of)
        if above.startswith(_SUPER) and above in self._methods:
            self.enter(above, asked)
        name, keys = _root(node.func.value, of)
        method = node.func.attr
        taken = method in _TAKING and (not given or not name or isinstance(given[0], ast.Constant))
        if not _attribute(node.func, of):
            self._touch(node.func, of)
        if name and not keys and (method in _ADDING or taken):
            self.stores.append(_Store(name=name, kind="whole", tests=asked.around))
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


def _filled(call: ast.Call) -> list[ast.expr]:
    """What a function that leaves the rest as it was writes to."""
    given = [one.value for one in call.keywords if one.arg == "out"]
    if isinstance(call.func, ast.Attribute) and call.func.attr in _FILLING:
        given += call.args[:1]
    return [each for one in given for each in _flat([one])]


def _assigned(methods: dict[str, _Function]) -> frozenset[str]:
    """Attributes that any method but ``__init__`` sets."""
    return frozenset(
        node.attr
        for name, function in methods.items()
        if not name.endswith("__init__")
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    )


def _leaves(statements: list[ast.stmt]) -> bool:
    """Whether what follows is left out; what raises makes no sample."""
    last = statements[-1] if statements else None
    if isinstance(last, ast.If):
        return _leaves(last.body) and _leaves(last.orelse)
    if isinstance(last, ast.With | ast.AsyncWith):
        return _leaves(last.body)
    return isinstance(last, ast.Return | ast.Continue | ast.Break)


def _is_foreign(test: ast.expr, of: str) -> bool:
    """Whether a test asks for anything but attributes."""
    return any(
        isinstance(node, ast.Call) or (isinstance(node, ast.Name) and node.id != of)
        for node in ast.walk(test)
    )


def _says_missing(test: ast.expr, *, holds: bool) -> bool:
    """Whether ``self.x``, ``self.x is not None`` do not hold, or ``self.x is None`` does."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        nothing = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None
        return nothing and isinstance(test.ops[0], ast.Is | ast.Eq if holds else ast.IsNot | ast.NotEq)
    return isinstance(test, ast.Attribute) and not holds


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


def _is_all_one(one: list[ast.stmt], other: list[ast.stmt], of: str) -> bool:
    """Whether two ways return the same variables, and neither does anything to them."""
    if not (one and other and isinstance(one[-1], ast.Return) and isinstance(other[-1], ast.Return)):
        return False
    nodes = [node for statement in (*one, *other) for node in ast.walk(statement)]
    returned = [node.value for node in nodes if isinstance(node, ast.Return)]
    if len({ast.dump(value) if value is not None else "" for value in returned}) > 1 or returned[0] is None:
        return False
    plain = (ast.Name, ast.Tuple, ast.List, ast.Dict, ast.Constant, ast.Load)
    if not all(isinstance(node, plain) for node in ast.walk(returned[0])):
        return False
    names = {node.id for node in ast.walk(returned[0]) if isinstance(node, ast.Name)}
    return of not in names and not any(_may_change(node, names, of) for node in nodes)


def _may_change(node: ast.AST, names: set[str], of: str) -> bool:
    """Whether a variable is bound, written beneath, or given to a call that is a statement."""
    if isinstance(node, ast.Name):
        return node.id in names and not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return _base(node) in names
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    called = _base(node.value.func)
    given = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return called in names or (called != of and bool(given & names))


def _base(node: ast.AST) -> str:
    """The variable at the beginning of ``x.a[b].c``."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


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
        #: What is kept for what asks for it again: a sample is made of it, or it is made anew, but not both.
        self._kept = {store.name for store in stores.stores if store.kind == "whole"} - self._carrying
        self._left = _MOST
        self._results: list[Taint] = []
        self._returns: list[_State] = []
        self._calls: list[str] = []

    def carried(self, entries: Iterable[str]) -> tuple[str, ...]:
        """The attributes whose earlier values flow into what an entry returns."""
        if not self._carrying | self._kept:
            return ()
        found: set[str] = set()
        for name in entries:
            found |= self._enter(name, [], _State(of=""))
        return tuple(sorted(found - {_KEPT + name for name in self._kept}))

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
        before = self._results, self._returns
        self._results, self._returns = [], []
        self._calls.append(name)
        if self._block(function.body, inner) == "falls":
            self._returns.append(inner)
        self._calls.pop()
        result, ways = _NONE.union(*self._results), self._returns
        self._results, self._returns = before
        inner.become(ways)
        state.attributes = inner.attributes
        return result

    # -- statements --------------------------------------------------------------------------------------

    def _block(self, statements: list[ast.stmt], state: _State) -> _Ends:
        for at, statement in enumerate(statements):
            self._left -= 1
            if self._left < 0:
                raise _TooMuchError
            if isinstance(statement, ast.If):
                taken = self._value(statement.test, state)
                if _is_all_one(statement.body, [*statement.orelse, *statements[at + 1 :]], state.of):
                    taken = _NONE
                ends = self._branches(taken, [statement.body, statement.orelse], state)
            else:
                ends = self._statement(statement, state)
            if ends != "falls":
                return ends
        return "falls"

    def _statement(self, node: ast.stmt, state: _State) -> _Ends:
        if isinstance(node, ast.Return):
            taken = self._value(node.value, state) | state.decided
            if len(self._calls) == 1:
                taken |= {name for name in self._kept & set(state.attributes) if _KEPT + name in taken}
            self._results.append(taken)
            self._returns.append(state.copy())
            return "leaves"
        if isinstance(node, ast.Raise):
            return "raises"
        if isinstance(node, ast.Break | ast.Continue):
            return "leaves"
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
            if name and not keys and _KEPT + name in taken:
                state.attributes.pop(name, None)  # self.x = self.x or make()
            elif name and not keys:
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
        if name in self._kept:
            return frozenset([_KEPT + name])
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
