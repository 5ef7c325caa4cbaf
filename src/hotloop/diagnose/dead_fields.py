"""Which lines of a dataset work for fields of its samples that nothing reads, and for nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from hotloop.diagnose.collating import DEFAULT_COLLATE, collate_name
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.source import sources, text_of
from hotloop.measure.steps import LoaderUse
from hotloop.written import Function, tree_of


def dead_lines(evidence: Evidence, loader: LoaderUse) -> frozenset[tuple[str, int]]:
    """File and number of each line; none where the samples are not a dictionary or tuple written out or
    filled in the dataset's ``__getitem__``, or a function of the user's makes batches of them.
    """
    file, line = str(loader.dataset.get("file") or ""), int(loader.dataset.get("line") or 0)
    tree = tree_of(text_of(evidence, file))
    if tree is None or collate_name(loader.settings) not in DEFAULT_COLLATE:
        return frozenset()
    made = [one for one in ast.walk(tree) if _is_maker(one, line)]
    if len(made) != 1 or not isinstance(made[0], ast.FunctionDef):
        return frozenset()
    dead = _dead(made[0], list(_entries(made[0], frozenset(loader.unused_fields))))
    lines = {(file, number) for number in _only(made[0], dead)}
    trees = [tree_of(text) or ast.Module([], []) for text in sources(evidence).values()]
    inside = {id(part) for one in dead for part in ast.walk(one)}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function is not made[0]:
            named = [part for one in trees for part in ast.walk(one) if _names(part, function.name)]
            if named and all(id(part) in inside for part in named):
                lines |= {(file, number) for number in _span(function)}
    return frozenset(lines)


def _is_maker(node: ast.AST, line: int) -> bool:
    named = isinstance(node, ast.FunctionDef) and node.name == "__getitem__"
    return named and line in (node.lineno, *(one.lineno for one in node.decorator_list))  # type: ignore[attr-defined]


def _entries(function: Function, fields: frozenset[str]) -> Iterator[ast.AST]:
    """What the unread fields are given in what the function returns."""
    for node in ast.walk(function):
        value = node.value if isinstance(node, ast.Return) else None
        if isinstance(value, ast.Dict):
            yield from _given(value, fields)
        elif isinstance(value, ast.Tuple):
            yield from (entry for number, entry in enumerate(value.elts) if str(number) in fields)
        elif isinstance(value, ast.Name):
            yield from _filled(function, value.id, fields)


def _given(value: ast.Dict, fields: frozenset[str]) -> Iterator[ast.expr]:
    for key, entry in zip(value.keys, value.values, strict=True):
        if isinstance(key, ast.Constant) and str(key.value) in fields:
            yield entry


def _filled(function: Function, name: str, fields: frozenset[str]) -> list[ast.AST]:
    """What a dictionary that is filled key by key is given; nothing where it is used in another way, so that
    something may read the fields.
    """
    dead: list[ast.AST] = []
    known: set[int] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Name):
            known.add(id(node.value))
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            target = targets[0] if len(targets) == 1 else None
            if isinstance(target, ast.Name) and target.id == name and isinstance(node.value, ast.Dict):
                known.add(id(target))
                dead += _given(node.value, fields)
            elif isinstance(target, ast.Subscript) and _key(target) in fields:
                known.add(id(target.value))
                dead += [node] if _is_named(target.value, name) else []
        if isinstance(node, ast.Subscript) and _key(node) not in (None, *fields):
            known.add(id(node.value))
    uses = [part for part in ast.walk(function) if _is_named(part, name)]
    return dead if all(id(part) in known for part in uses) else []


def _key(node: ast.Subscript) -> str | None:
    return str(node.slice.value) if isinstance(node.slice, ast.Constant) else None


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _dead(function: Function, entries: list[ast.AST]) -> list[ast.AST]:
    """The entries, and the plain assignments whose names only they and other such read."""
    dead: list[ast.AST] = list(entries)
    assigned = [one for one in ast.walk(function) if isinstance(one, ast.Assign) and _plain(one)]
    grew = bool(entries)
    while grew:
        inside = {id(part) for one in dead for part in ast.walk(one)}
        read = {
            part.id
            for part in ast.walk(function)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and id(part) not in inside
        }
        more = [one for one in assigned if one not in dead and not read & set(_bound(one))]
        dead += more
        grew = bool(more)
    return dead


def _plain(node: ast.Assign) -> bool:
    parts = [part for target in node.targets for part in ast.walk(target)]
    return all(isinstance(part, ast.Name | ast.Tuple | ast.expr_context) for part in parts)


def _bound(node: ast.Assign) -> Iterator[str]:
    names = (part for target in node.targets for part in ast.walk(target))
    yield from (part.id for part in names if isinstance(part, ast.Name))


def _only(function: Function, dead: Iterable[ast.AST]) -> set[int]:
    """Lines of the dead parts on which nothing else of the function stands."""
    parts = [part for one in dead for part in ast.walk(one)]
    inside = {id(part) for part in parts}
    keys = {id(key) for one in ast.walk(function) if isinstance(one, ast.Dict) for key in one.keys}
    others = {
        part.lineno
        for part in ast.walk(function)
        if isinstance(part, ast.expr) and not isinstance(part, ast.Dict | ast.Tuple)
        and id(part) not in inside | keys
    }  # fmt: skip
    return {number for one in dead for number in _span(one)} - others


def _span(node: ast.AST) -> range:
    first = getattr(node, "lineno", 0)
    return range(first, (getattr(node, "end_lineno", None) or first) + 1)


def _names(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == name
    return (isinstance(node, ast.Name) and node.id == name) or (
        isinstance(node, ast.Constant) and node.value == name
    )
