"""``memory/unbounded-cache``: the dataset keeps every sample it made, in every process that makes them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.memory_use import in_span, limit_bytes
from hotloop.diagnose.rules.memory.worker_copies import worker_growth
from hotloop.diagnose.source import text_of
from hotloop.findings import Finding, Place, Severity
from hotloop.measure.steps import LoaderUse
from hotloop.written import tree_of

ID = "memory/unbounded-cache"

#: Calls that make an array.
_ARRAY = re.compile(r"^(np|numpy|torch)\.|\.(float|double|half|long|int|numpy|clone|copy|to)$")
#: Words in a class that show some bound on what it keeps.
_BOUNDED = ("popitem", ".pop(", "del ", "len(", "maxsize", "clear(")


def check(evidence: Evidence) -> Iterator[Finding]:
    """Needs both: the source keeps samples by index without a bound, and memory really grew."""
    feed = costs.feed(evidence)
    if feed is None:
        return
    cache = _cache(evidence, feed.loader)
    if cache is None:
        return
    grown = _grown(evidence, feed.workers)
    if grown < evidence.limits.growth_bytes:
        return
    limit = limit_bytes(evidence)
    whole = _whole_epoch(feed.loader) * max(1, feed.workers)
    share = max(grown, whole) / limit if limit else 0.0
    severity: Severity = "high" if share > 0.9 else "medium" if share > 0.25 else "low"
    makers = (
        f"each of {feed.workers} workers keeps its own"
        if feed.workers > 1
        else "in the process that makes them"
    )
    yield Finding(
        id=ID,
        message=(
            f"The cache at {says.at(cache)} keeps every sample without a bound, {makers}: "
            f"{units.size(grown)} so far."
        ),
        advice=(
            "Bound the cache, share one between the workers (a memory-mapped file, shared memory), or keep "
            "the "
            "workers over epochs so that what they kept is used at all."
        ),
        evidence=(
            f"memory of the makers grew by {units.size(grown)}",
            *((f"a whole epoch in every worker would take {units.size(whole)}",) if whole else ()),
            *(
                (f"persistent_workers={feed.loader.settings.get('persistent_workers')}",)
                if feed.workers
                else ()
            ),
        ),
        severity=severity,
        where=cache,
        data={"grown_bytes": grown, "whole_bytes": whole},
    )


def _grown(evidence: Evidence, workers: int) -> float:
    if workers:
        return float(sum(worker_growth(evidence)))
    _, values = in_span(evidence, evidence.steps.pid)
    known = values[np.isfinite(values)]
    return float(known[-1] - known[0]) if len(known) >= 4 else 0.0


def _whole_epoch(loader: LoaderUse) -> float:
    return loader.batch_bytes * loader.batches_per_epoch


def _cache(evidence: Evidence, loader: LoaderUse) -> Place | None:
    """``self.kept[index] = ...`` in a dataset class (or ``functools.cache``), where nothing is ever thrown
    out.
    """
    files = {line.place.file for line in loader.lines} | {str(loader.dataset.get("file") or "")}
    for file in sorted(files - {""}):
        text = text_of(evidence, file)
        tree = tree_of(text)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.ClassDef) and any(f.name == "__getitem__" for f in _functions(node)):
                bounded = _is_bounded(ast.get_source_segment(text, node) or "")
                found = _kept(node, _preallocated(node)) if not bounded else None
                if found is not None:
                    return Place(file=file, line=found[0], function=f"{node.name}.{found[1]}")
    return None


def _is_bounded(text: str) -> bool:
    body = text.split("def __len__", 1)
    rest = body[0] + (body[1].split("def ", 1)[1] if len(body) > 1 and "def " in body[1] else "")
    return any(word in rest for word in _BOUNDED)


def _functions(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [item for item in node.body if isinstance(item, ast.FunctionDef)]


def _preallocated(node: ast.ClassDef) -> set[str]:
    """Attributes that are arrays of numbers (``self.weights = np.ones(n)``): they keep their size."""
    return {
        ast.unparse(target)
        for part in ast.walk(node)
        if isinstance(part, ast.Assign) and isinstance(part.value, ast.Call)
        for target in part.targets
        if _ARRAY.search(ast.unparse(part.value.func)) and "object" not in ast.unparse(part.value)
    }


def _kept(node: ast.ClassDef, preallocated: set[str]) -> tuple[int, str] | None:
    for function in _functions(node):
        if function.name == "__init__":
            continue
        for decorator in function.decorator_list:
            if ast.unparse(decorator) in (
                "cache",
                "functools.cache",
                "lru_cache(maxsize=None)",
                "functools.lru_cache(maxsize=None)",
                "lru_cache(None)",
            ):
                return decorator.lineno, function.name
        keys = _keys(function)
        for statement in ast.walk(function):
            if not isinstance(statement, ast.Assign):
                continue
            for target in statement.targets:
                if (
                    isinstance(target, ast.Subscript)
                    and ast.unparse(target.value).startswith("self.")
                    and ast.unparse(target.value) not in preallocated
                    and _speaks_of(target.slice, keys)
                ):
                    return statement.lineno, function.name
    return None


def _keys(function: ast.FunctionDef) -> set[str]:
    """What a function is called with, and what it makes of that: ``key = (index, self.epoch)``."""
    found = {argument.arg for argument in function.args.args} - {"self"}
    for part in ast.walk(function):
        if isinstance(part, ast.Assign) and _speaks_of(part.value, found):
            found |= {
                target.id
                for target in part.targets
                if isinstance(target, ast.Name) and isinstance(part.value, ast.Tuple | ast.JoinedStr)
            }
    return found


def _speaks_of(key: ast.expr, names: set[str]) -> bool:
    """Whether a key has one of these in it; those modulo a number are no more than that number."""
    if isinstance(key, ast.BinOp) and isinstance(key.op, ast.Mod):
        return False
    return any(isinstance(name, ast.Name) and name.id in names for name in ast.walk(key))
