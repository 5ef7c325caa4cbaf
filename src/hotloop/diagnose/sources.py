"""The text of a dataset's own code, as far as the recording holds it."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.source import text_of
from hotloop.measure.steps import LoaderUse


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


def tree_of(text: str) -> ast.Module | None:
    """The syntax tree of a text, None where it does not parse."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


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
