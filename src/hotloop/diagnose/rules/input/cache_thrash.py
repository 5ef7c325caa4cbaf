"""``input/cache-thrash``: a bounded cache in the dataset is too small for the epoch and hits next to
nothing.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.discovery import ARGUMENT
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.source import text_of
from hotloop.findings import Finding, Place
from hotloop.written import tree_of

ID = "input/cache-thrash"
EFFORT = ARGUMENT
COSTED = True


@dataclass(frozen=True, kw_only=True)
class _Cache:
    place: Place
    size: int


def check(evidence: Evidence) -> Iterator[Finding]:
    """Compare the size of an ``lru_cache`` on the making's path with the dataset's, and see whether making
    got faster.
    """
    feed = costs.feed(evidence)
    if feed is None or feed.loader.num_iterators < 2:
        return
    loader = feed.loader
    length = int(loader.dataset.get("len") or 0)
    cache = _cache(
        evidence, {line.place.file for line in loader.lines} | {str(loader.dataset.get("file") or "")}
    )
    if cache is None or length == 0 or not cache.size < length:
        return
    # A cache that works makes later epochs faster.
    half = len(loader.make_s) // 2
    if half < 10 or np.median(loader.make_s[half:]) < 0.8 * np.median(loader.make_s[:half]):
        return
    hits = lru_hit_ratio(cache.size / length)
    cost = feed.saved_by_make(1.0 - hits) * costs.exposed_ratio(evidence.steps, "data_wait")
    yield Finding(
        id=ID,
        message=(
            f"The cache at {says.at(cache.place)} holds {cache.size:,} of {length:,} samples: in shuffled "
            "epochs it hits "
            f"{units.share(hits)} of the time."
        ),
        advice=(
            "Make the cache as large as the dataset (maxsize=None) where memory allows, or keep the first "
            "samples "
            f"and never evict: that hits {units.share(cache.size / length)}."
        ),
        evidence=(
            says.waits(feed),
            f"making a batch took {units.duration(float(np.median(loader.make_s[:half])))} in the first "
            "half of the "
            f"run and {units.duration(float(np.median(loader.make_s[half:])))} in the second",
            "least-recently-used over a fraction c of the samples hits c + (1 - c) ln(1 - c) = "
            f"{units.share(hits)}",
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=cache.place,
        remedies=("cache-samples",),
        data={"cache_size": cache.size, "dataset_len": length, "hit_ratio": hits},
    )


def lru_hit_ratio(fraction: float) -> float:
    """The hit ratio of a least-recently-used cache over shuffled epochs, for the fraction of samples it
    holds.
    """
    if fraction >= 1:
        return 1.0
    return max(0.0, fraction + (1 - fraction) * math.log(1 - fraction))


def _cache(evidence: Evidence, files: set[str]) -> _Cache | None:
    for file in sorted(files - {""}):
        tree = tree_of(text_of(evidence, file))
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    size = _lru_size(decorator)
                    if size is not None and _sample_argument(node):
                        return _Cache(
                            place=Place(file=file, line=decorator.lineno, function=node.name), size=size
                        )
    return None


def _lru_size(decorator: ast.expr) -> int | None:
    """``maxsize`` of an lru_cache decorator; 128 where it is not given, None for another or an unbounded
    one.
    """
    call = decorator if isinstance(decorator, ast.Call) else None
    name = ast.unparse(call.func if call is not None else decorator)
    if name.rsplit(".", 1)[-1] != "lru_cache":
        return None
    if call is None:
        return 128
    given = [keyword.value for keyword in call.keywords if keyword.arg == "maxsize"] + call.args[:1]
    if not given:
        return 128
    value = given[0]
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, int) else None


def _sample_argument(node: ast.FunctionDef) -> bool:
    """Whether the cached function takes something that can tell samples apart."""
    return any(argument.arg != "self" for argument in node.args.args)
