"""What making a sample does with attributes, as the text of the user's classes shows.

Methods are followed by their names: whatever is called anywhere as ``.NAME(...)`` may be any method of that
name. A sample is stateful where it reads what an earlier one wrote: an attribute that is assigned on every
way, and was read before that. What is written under a test of itself (a handle, the shard at hand), under a
key, or read only to be printed carries nothing from sample to sample.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from hotloop.source.code import parsed
from hotloop.source.effects import in_place
from hotloop.source.nodes import Function, last_name

#: Where making a sample begins; the last two are called by no name.
_ENTRIES: Final = ("__getitem__", "__getitems__", "__call__", "forward")
_SAYING: Final = frozenset(["print", "debug", "info", "warning", "error", "write"])
#: Notes of a process by their kind.
Notes = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Attributes that making a sample reads, those it writes, and those that make samples stateful."""

    reads: frozenset[str]
    writes: frozenset[str]
    stateful: frozenset[str]

    def set_by_script(self, names: Iterable[str]) -> tuple[str, ...]:
        """Of attributes that changed (``crop``, ``noise.size``) those that samples are made of, and that the
        script changed and not the samples.
        """
        return tuple(name for name in names if self.is_read(name) and _last(name) not in self.writes)

    def workers_would_miss(self, names: Iterable[str]) -> tuple[str, ...]:
        """The same, and those by which a sample depends on others."""
        return tuple(
            name for name in names if _last(name) in self.stateful or name in self.set_by_script([name])
        )

    def is_read(self, name: str) -> bool:
        """Whether making a sample reads an attribute."""
        return _last(name) in self.reads


def set_by_script(notes: Notes, number: int, names: tuple[str, ...]) -> tuple[str, ...]:
    """Of attributes of a loader's dataset that changed between two passes those that the script changed."""
    reading = reading_for(notes, number) if names else None
    if reading is None:
        return names
    workers = any(note.get("num_workers") for note in notes.get("loader", ()) if note.get("id") == number)
    return tuple(filter(reading.is_read, names)) if workers else reading.set_by_script(names)


def reading_for(notes: Notes, number: int) -> Reading | None:
    """How samples of a loader's dataset are made, by the notes of its process."""
    known = {note.get("id"): note.get("dataset") or {} for note in notes.get("loader", ())}
    texts = tuple(str(note.get("text") or "") for note in notes.get("source", ()))
    return reading_of(texts, str(known.get(number, {}).get("inner_class", "")))


@lru_cache(maxsize=16)
def reading_of(texts: tuple[str, ...], class_name: str) -> Reading | None:
    """How objects of a class of the user's make samples; None where its text is not among these."""
    classes = {node.name: node for text in texts for node in _classes(text)}
    if class_name not in classes:
        return None
    known: dict[str, list[Function]] = {}
    for node in classes.values():
        for one in node.body:
            if isinstance(one, Function):
                known.setdefault(one.name, []).append(one)
    lineage, todo = list[str](), [class_name]
    while todo:
        name = todo.pop()
        if name in classes and name not in lineage:
            lineage.append(name)
            bases = (one.value if isinstance(one, ast.Subscript) else one for one in classes[name].bases)
            todo += map(last_name, bases)
    ahead = [one for name in _ENTRIES for one in _inherited(name, [classes[name] for name in lineage])]
    if not ahead:
        return None
    ahead += [one for name in _ENTRIES[2:] for one in known.get(name, ())]
    reached: list[Function] = []
    while ahead:
        one = ahead.pop()
        if one not in reached:
            reached.append(one)
            names = {node.attr for node in ast.walk(one) if isinstance(node, ast.Attribute)}
            ahead += [method for name in names - {"__init__"} for method in known.get(name, ())]
    by_method = [list(_uses(one.body, frozenset())) for one in reached]
    uses = [use for one in by_method for use in one]
    counted = {use.name for use in uses if use.kind == "counted"}
    carried = {name for one in by_method for name in _read_before_written(one)}
    decides = {use.name for use in uses if use.kind == "read" and not use.for_itself}
    return Reading(
        reads=frozenset(use.name for use in uses if use.kind == "read"),
        writes=frozenset(use.name for use in uses if use.kind != "read"),
        stateful=frozenset(carried | (counted & decides)),
    )


def _read_before_written(uses: Iterable[_Use]) -> Iterator[str]:
    """Attributes that a method reads, and then gives another value for the next sample."""
    read: set[str] = set()
    for use in uses:
        if use.kind == "write" and use.name in read:
            yield use.name
        elif use.kind == "read" and not use.for_itself:
            read.add(use.name)


def _inherited(name: str, lineage: Iterable[ast.ClassDef]) -> Iterator[Function]:
    """The method of this name that an object has, and those that it calls by ``super()``."""
    for node in lineage:
        for one in node.body:
            if isinstance(one, Function) and one.name == name:
                yield one
                if not any(isinstance(node, ast.Name) and node.id == "super" for node in ast.walk(one)):
                    return


@dataclass(frozen=True)
class _Use:
    name: str
    kind: str  # "read", "write", "counted" (+= 1), "keyed" (beneath a key, or under a test of itself)
    for_itself: bool = False  # to write the same attribute, to test it before that, or to print it


def _uses(statements: Sequence[ast.stmt], tested: frozenset[str]) -> Iterator[_Use]:
    """What statements do with attributes, where those of ``tested`` were asked for on the way."""
    for statement in statements:
        yield from _of_statement(statement, tested)


def _of_statement(node: ast.stmt, tested: frozenset[str]) -> Iterator[_Use]:
    blocks = [block for name in ("body", "orelse", "finalbody") if (block := getattr(node, name, None))]
    blocks += [handler.body for handler in getattr(node, "handlers", ())]
    blocks += [case.body for case in getattr(node, "cases", ())]
    if isinstance(node, ast.If | ast.While):
        asked = _loaded(node.test)
        written = {use.name for block in blocks for use in _uses(block, asked) if use.kind != "read"}
        prints = isinstance(node, ast.If) and all(map(_says, node.body)) and not node.orelse
        yield from (_Use(name, "read", prints or bool(written & asked)) for name in asked)
        for block in blocks:
            yield from _uses(block, tested | asked)
        return
    if blocks:
        parts = [
            one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.stmt | ast.excepthandler)
        ]
        for part in parts:
            yield from (_Use(name, "read") for name in _loaded(part))
        for block in blocks:
            yield from _uses(block, tested)
        return
    targets = dict(_written(node))
    for name, keyed in targets.items():
        kind = "counted" if _counts(node) else "write"
        yield _Use(name, "keyed" if keyed or name in tested else kind)
    yield from (_Use(name, "read", name in targets or _says(node)) for name in _loaded(node))


def _written(node: ast.stmt) -> Iterator[tuple[str, bool]]:
    """Attributes that a statement writes, each with whether beneath a key."""
    for one in ast.walk(node):
        targets: list[ast.expr] = []
        if isinstance(one, ast.Assign | ast.Delete):
            targets = [each for target in one.targets for each in getattr(target, "elts", [target])]
        elif isinstance(one, ast.AugAssign | ast.AnnAssign):
            targets = [one.target]
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute):
            changes = in_place(one.func.attr)
            if changes and isinstance(one.func.value, ast.Attribute):
                yield one.func.value.attr, True
        for target in targets:
            keyed = isinstance(target, ast.Subscript)
            while isinstance(target, ast.Subscript):
                target = target.value
            if isinstance(target, ast.Attribute):
                yield target.attr, keyed


def _loaded(node: ast.AST) -> frozenset[str]:
    """Attributes that are read, those beneath a key that is written to included."""
    named = (one for one in ast.walk(node) if isinstance(one, ast.Attribute))
    found = {one.attr for one in named if isinstance(one.ctx, ast.Load)}
    return frozenset(found | {one.target.attr for one in ast.walk(node) if _counts(one)})  # type: ignore[attr-defined]


def _counts(node: ast.AST) -> bool:
    return isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute)


def _says(node: ast.stmt) -> bool:
    """``print(...)`` or ``log.info(...)``."""
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and last_name(call.func) in _SAYING


def _last(path: str) -> str:
    """The attribute at the end of ``inner.rows[2]``."""
    return re.sub(r"\[[^\]]*\]", "", path).rpartition(".")[2]


@lru_cache(maxsize=64)
def _classes(text: str) -> tuple[ast.ClassDef, ...]:
    tree = parsed(text) or ast.Module([], [])
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
