"""The user's source as the run carried it: text and syntax of what a rule speaks about."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Place
from hotloop.measure.steps import LoaderUse
from hotloop.record.recording import Process
from hotloop.written import tree_of


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A ``for`` or ``while`` in the user's source. ``over`` is what it runs over, "" for ``while``.

    ``structural``: it runs over parts of an object (``self.layers``) or calls them (``layer(x)``).
    """

    line: int
    end_line: int
    over: str
    text: str  # the whole loop
    structural: bool = False


def texts(evidence: Evidence) -> Iterator[str]:
    """The text of every user file that was seen."""
    for process in _processes(evidence):
        for note in process.notes.get("source", ()):
            yield str(note.get("text") or "")


def text_of(evidence: Evidence, file: str) -> str:
    """The text of a user file as it was when it ran, "" when the recording does not hold it."""
    for process in _processes(evidence):
        for note in process.notes.get("source", ()):
            if note.get("file") == file:
                return str(note.get("text") or "")
    return ""


def line_text(evidence: Evidence, place: Place | None) -> str:
    """The text of one line without its indent, "" when unknown."""
    if place is None:
        return ""
    lines = text_of(evidence, place.file).splitlines()
    return lines[place.line - 1].strip() if 0 < place.line <= len(lines) else ""


def loops_around(evidence: Evidence, place: Place) -> tuple[Loop, ...]:
    """The loops of the line's own function that contain the line, innermost first."""
    return tuple(_loops_at(text_of(evidence, place.file), place.line))


def function_text(evidence: Evidence, place: Place) -> str:
    """The text of the innermost function around a line, "" at module level or when unknown."""
    return _function_at(text_of(evidence, place.file), place.line)


def dataset_text(evidence: Evidence, loader: LoaderUse) -> str:
    """The class of the dataset and every function its making was seen in, "" where the source is not
    known.
    """
    wanted = {(line.place.file, line.place.function.rsplit(".", 1)[-1]) for line in loader.lines}
    dataset_file = str(loader.dataset.get("file") or "")
    cls = str(loader.dataset.get("class") or "")
    files = {file for file, _ in wanted} | ({dataset_file} if dataset_file else set())
    parts: list[str] = []
    for file in sorted(files):
        text = text_of(evidence, file)
        names = {name for other, name in wanted if other == file}
        parts += _definitions(text, names | ({cls} if cls else set()))
    return "\n".join(parts)


def _processes(evidence: Evidence) -> Iterator[Process]:
    for process in evidence.recording.ranks:
        yield process
        yield from process.workers


def _around(text: str, line: int) -> list[ast.stmt]:
    """Statements that contain a line, outermost first."""
    found: list[ast.stmt] = []
    tree = tree_of(text)
    if tree is None:
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            found.append(node)
    return sorted(found, key=lambda node: (node.lineno, -(node.end_lineno or node.lineno)))


@lru_cache(maxsize=1024)
def _loops_at(text: str, line: int) -> tuple[Loop, ...]:
    loops: list[Loop] = []
    in_class, owner = False, ""
    for node in _around(text, line):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            loops.clear()  # only the loops inside the innermost function
            owner = _first_parameter(node) if in_class else owner
            in_class = isinstance(node, ast.ClassDef)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            over = "" if isinstance(node, ast.While) else ast.unparse(node.iter)
            end = node.end_lineno or node.lineno
            body = "\n".join(text.splitlines()[node.lineno - 1 : end])
            structural = _is_structural(node, owner)
            loops.append(Loop(line=node.lineno, end_line=end, over=over, text=body, structural=structural))
    return tuple(reversed(loops))


def _first_parameter(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    """What a method calls ``self``."""
    parameters = [] if isinstance(node, ast.ClassDef) else [*node.args.posonlyargs, *node.args.args]
    return parameters[0].arg if parameters else ""


def _is_structural(node: ast.For | ast.AsyncFor | ast.While, owner: str) -> bool:
    if isinstance(node, ast.While):
        return False
    if owner and any(isinstance(child, ast.Name) and child.id == owner for child in ast.walk(node.iter)):
        return True
    targets = {child.id for child in ast.walk(node.target) if isinstance(child, ast.Name)}
    calls = (child.func for part in node.body for child in ast.walk(part) if isinstance(child, ast.Call))
    return any(isinstance(called, ast.Name) and called.id in targets for called in calls)


@lru_cache(maxsize=1024)
def _function_at(text: str, line: int) -> str:
    inner = ""
    for node in _around(text, line):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])
    return inner


def _definitions(text: str, names: Iterable[str]) -> list[str]:
    """The source of classes and functions of these names; of a class the whole of it."""
    tree = tree_of(text)
    if tree is None:
        return []
    wanted = set(names)
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name in wanted:
            found.append(ast.get_source_segment(text, node) or "")
    return found
