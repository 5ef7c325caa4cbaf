"""A crop of each sample that is cut after whole frames were read: the rest of them was read for nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from hotloop import units
from hotloop.diagnose import says
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.source import text_of
from hotloop.findings import Place
from hotloop.measure.steps import LoaderUse
from hotloop.written import tree_of

#: Bytes read from files, over those in the batch, above which most of what was read is thrown away. Files are
#: compressed and batches are not: the true ratio is larger.
_MUCH = 4.0


@dataclass(frozen=True, kw_only=True)
class Crop:
    """Where it is cut, and the bytes a batch reads and keeps."""

    place: Place
    read_bytes: float
    kept_bytes: float

    @property
    def words(self) -> str:
        """For a list of evidence."""
        return (
            f"{units.size(self.read_bytes)} of files are read for a batch of {units.size(self.kept_bytes)}, "
            f"the crop cut at {says.at(self.place)}"
        )


def crop(evidence: Evidence, loader: LoaderUse, before: Place) -> Crop | None:
    """The crop of the dataset's samples, None where none is known or little is thrown away.

    ``before``: a place that makes samples. Where it stands in the function of the crop, at its line or below,
    it works on the crop already.
    """
    read = loader.worker_stats.get("rchar_bytes", 0.0) / max(1, len(loader.make_s))
    if not loader.batch_bytes or read < _MUCH * loader.batch_bytes:
        return None
    wanted = {line.place.function.rsplit(".", 1)[-1] for line in loader.lines}
    file = str(loader.dataset.get("file") or "")
    tree = tree_of(text_of(evidence, file))
    if tree is None:
        return None
    for function in _functions(tree, str(loader.dataset.get("class") or ""), wanted):
        line = _cut_at(function)
        after = file == before.file and line is not None and line <= before.line <= (function.end_lineno or 0)
        if line is not None and not after:
            place = Place(file=file, line=line, function=function.name)
            return Crop(place=place, read_bytes=read, kept_bytes=loader.batch_bytes)
    return None


def _functions(tree: ast.Module, cls: str, wanted: set[str]) -> Iterator[ast.FunctionDef]:
    """Methods of the dataset, and functions that were seen making samples."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == cls:
            yield from (item for item in node.body if isinstance(item, ast.FunctionDef))
        elif isinstance(node, ast.FunctionDef) and node.name in wanted:
            yield node


def _cut_at(function: ast.FunctionDef) -> int | None:
    """The line of ``x[a:b, c:d]`` with computed bounds, or of ``x[rows, columns]`` with two slices."""
    slices = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target, value in _pairs(node)
        if isinstance(target, ast.Name) and _is_slice(value)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            cuts = [one for one in node.slice.elts if _is_range(one, slices)]
            if len(cuts) >= 2:
                return node.lineno
    return None


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    target = node.targets[0]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        yield from zip(target.elts, node.value.elts, strict=False)
    else:
        yield target, node.value


def _is_slice(node: ast.expr) -> bool:
    """``slice(top, top + size)``."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "slice" and len(node.args) >= 2


def _is_range(node: ast.expr, slices: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in slices
    if not isinstance(node, ast.Slice):
        return _is_slice(node)
    return node.upper is not None and not isinstance(node.lower, ast.Constant | None)
