"""Functions of the input that may be called with the same arguments again, as their text shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from hotloop.diagnose.causes import reachable
from hotloop.diagnose.collating import DEFAULT_COLLATE, collate_name
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.hotspots import Hotspot
from hotloop.diagnose.reading import is_random, may_vary
from hotloop.diagnose.source import dataset_text, text_of
from hotloop.findings import Place
from hotloop.measure.steps import LoaderUse
from hotloop.written import tree_of

REMEDY: Final = "keep-results"
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Asked for another result each time, by number or one after the other, or called once.
_NEVER: Final = ("__getitem__", "__getitems__", "__next__", "__iter__", "__init__", "main")
_DRAWS: Final = re.compile(
    r"random|\brand(n|int|perm|range|_like|n_like)?\b|\buniform\b|\bshuffle\b|\bchoices?\b|\brng\b|\bjitter"
    r"|\baug|\bsample\(|\bdropout\b|\bsecrets\b|\buuid",
    re.IGNORECASE,
)
#: Of a dataset: it may hold what draws under these names.
_MAY_DRAW: Final = re.compile(rf"{_DRAWS.pattern}|transform", re.IGNORECASE)
_KEPT: Final = re.compile(r"\b(lru_cache|cache|cached|memoize|property|contextmanager|njit|jit|compile)\b")
#: Who calls these for what they do.
_DOES: Final = re.compile(
    r"\bprint\(|\.write\w*\(|\bglobal\s+\w|\bget_worker_info\b|\.backward\(|\.savefig\("
)
_MOST: Final = 2
_DEPTH: Final = 3


def repeated(
    evidence: Evidence, spot: Hotspot | None, loader: LoaderUse | None, *, collate: bool = False
) -> str:
    """The functions around the spot whose results may be kept, as ``keep-results`` wants them named: the one
    reached first and the innermost; "" where there is none.

    Samples of a dataset that draws nothing are kept whole, by their number: no function is named for those.
    """
    if spot is None:
        return ""
    if loader is not None and not (collate or loader.settings.get("iterable") or _may_draw(evidence, loader)):
        return ""
    apart = set() if loader is None else {collate_name(loader.settings)} - set(DEFAULT_COLLATE)
    loop = evidence.steps.source_loop
    if loop is not None:
        apart.add(loop.function.rpartition(".")[2])
    top = max(spot.lines, key=lambda line: line.seconds)
    named = []
    for place in (*reversed(top.callers), top.place):
        name = _function(text_of(evidence, place.file), place.line)
        known = reachable(place, name) if name.rpartition(".")[2] not in apart else None
        if known and known not in named and not _holds(loop, place, name, evidence):
            named.append(known)
    return ",".join([*named[:1], *named[1:][-(_MOST - 1) :]])


def _may_draw(evidence: Evidence, loader: LoaderUse) -> bool:
    return bool(_MAY_DRAW.search(dataset_text(evidence, loader)))


def draws(evidence: Evidence, spot: Hotspot, loader: LoaderUse | None) -> bool:
    """Whether what makes the samples at a spot may draw random numbers: the functions it was reached through,
    what those name in their files, and a library's transforms.
    """
    if loader is not None and may_vary(map(str, loader.dataset.get("transforms") or ())):
        return True
    loop = evidence.steps.source_loop
    top = max(spot.lines, key=lambda line: line.seconds)
    for place in (top.place, *top.callers):
        text = text_of(evidence, place.file)
        tree = tree_of(text)
        if tree is None:
            continue
        at = loop.line if loop is not None and loop.file == place.file else 0
        for node in (one for _, one in _definitions(tree) if _contains(one, place.line)):
            reached = () if _contains(node, at) else _reached(text, tree, node)
            if any(is_random(one) or _DRAWS.search(one) for one in reached):
                return True
    return False


def advice(named: str) -> str:
    """What to do with the functions named, "" where there are none."""
    if not named:
        return ""
    first = named.split(",")[-1].rpartition(":")[2]
    return f" Where {first}() is given the same arguments again, keep what it gave: --apply {REMEDY}={named}"


def remedies(named: str) -> tuple[str, ...]:
    """The remedy, where functions are named."""
    return (REMEDY,) if named else ()


def data(named: str) -> dict[str, str]:
    """What a finding carries for it."""
    return {"function": named} if named else {}


def _holds(loop: Place | None, place: Place, name: str, evidence: Evidence) -> bool:
    """Whether the training loop is in this function."""
    if loop is None or loop.file != place.file:
        return False
    return _function(text_of(evidence, loop.file), loop.line) == name


@lru_cache(maxsize=1024)
def _function(text: str, line: int) -> str:
    """The function around a line as modules name it, where what it gives may follow from its arguments."""
    tree = tree_of(text)
    if tree is None:
        return ""
    for owner, node in _definitions(tree):
        if _contains(node, line) and _may_be_kept(text, tree, node, owner):
            return f"{owner}.{node.name}" if owner else node.name
    return ""


def _contains(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions of a module, and of its classes with the class's name."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            yield from ((node.name, one) for one in node.body if isinstance(one, ast.FunctionDef))


def _may_be_kept(text: str, tree: ast.Module, node: ast.FunctionDef, owner: str) -> bool:
    decorators = " ".join(map(ast.unparse, node.decorator_list))
    if node.name in _NEVER or _KEPT.search(decorators):
        return False
    taken = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    first = 1 if owner and "staticmethod" not in decorators else 0
    if len(taken) <= first and node.args.vararg is None:
        return False
    own = list(_own_nodes(node))
    if any(isinstance(one, ast.Yield | ast.YieldFrom | ast.Await) for one in own):
        return False
    if not any(isinstance(one, ast.Return) and one.value is not None for one in own):
        return False
    if any(isinstance(one, ast.Assign | ast.AugAssign) and _sets_attribute(one) for one in own):
        return False
    reached = _reached(text, tree, node)
    return not any(_DRAWS.search(one) or _DOES.search(one) for one in reached)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What is written in a function, without the functions within it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (*_FUNCTIONS, ast.Lambda)):
            yield from _own_nodes(child)


def _sets_attribute(node: ast.Assign | ast.AugAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(one, ast.Attribute) for one in targets)


def _reached(text: str, tree: ast.Module, node: ast.FunctionDef) -> Sequence[str]:
    """The text of a function and of those of its file that it names."""
    known: dict[str, list[ast.FunctionDef]] = {}
    for _, one in _definitions(tree):
        known.setdefault(one.name, []).append(one)
    found, todo = [node], [node]
    for _ in range(_DEPTH):
        names = {_name(part) for one in todo for part in ast.walk(one)}
        todo = [one for name in sorted(names) for one in known.get(name, ()) if one not in found]
        found += todo
    lines = text.splitlines()
    return ["\n".join(lines[one.lineno - 1 : one.end_lineno]) for one in found]


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
