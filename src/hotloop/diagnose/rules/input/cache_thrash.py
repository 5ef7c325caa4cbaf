"""``input/cache-thrash``: a bounded cache in the dataset is too small for the epoch and hits next to
nothing: one with counters of its own, as the workers saw it, or an ``lru_cache``.
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
from hotloop.measure.steps import LoaderUse
from hotloop.written import tree_of

ID = "input/cache-thrash"
EFFORT = ARGUMENT
COSTED = True


#: Reads of a cache below which its hits say nothing, and how much more it was asked for than it holds.
_LEAST_READS, _BEYOND = 40, 1.5


@dataclass(frozen=True, kw_only=True)
class _Cache:
    place: Place
    size: int
    share_of_make: float


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """The same cache in all workers: what it hit, what it holds in a worker, what it held at some time."""

    holder: str
    place: Place | None
    hits: int
    reads: int
    entries: int
    entry_bytes: int
    distinct: int

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.reads


def check(evidence: Evidence) -> Iterator[Finding]:
    """Speak of what the cache's own counters say, else of an ``lru_cache`` on the making's path."""
    feed = costs.feed(evidence)
    if feed is None:
        return
    seen = _seen(evidence, feed.loader)
    if seen is None:
        yield from _lru_cache(evidence, feed)
    elif (
        seen.reads >= _LEAST_READS
        and seen.hit_ratio < 0.5
        and seen.distinct >= _BEYOND * seen.entries
        and seen.entry_bytes
    ):
        yield _thrashes(evidence, feed, seen)


def _thrashes(evidence: Evidence, feed: costs.Feed, seen: _Seen) -> Finding:
    cost = feed.saved_by_make(1.0 - seen.hit_ratio) * costs.exposed_ratio(evidence.steps, "data_wait")
    needed, held = seen.distinct * seen.entry_bytes, seen.entries * seen.entry_bytes
    at = f" at {says.at(seen.place)}" if seen.place else ""
    each = f"each of {feed.workers} workers keeps" if feed.workers > 1 else "the worker keeps"
    ending = feed.loader.num_iterators > 1 and not feed.loader.settings.get("persistent_workers")
    return Finding(
        id=ID,
        message=(
            f"The cache {seen.holder}{at} hits {units.share(seen.hit_ratio)} of the time: {each} "
            f"{seen.entries:,} of at least {seen.distinct:,} entries. All of them take "
            f"{units.size(needed)}, in every worker."
        ),
        advice=(
            "Share one cache between the workers (hotloop.feed.cached), and keep in it what the files hold, "
            "before it is enlarged or converted. Where it cannot hold all, never evict: that hits what it "
            "holds."
        ),
        evidence=(
            says.waits(feed),
            f"{seen.hits:,} hits in {seen.reads:,} reads, by the cache's own counters in the workers",
            f"an entry takes {units.size(seen.entry_bytes)}, a worker keeps {units.size(held)} of them",
            *(("the workers, and their caches with them, end with every epoch",) if ending else ()),
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=seen.place,
        remedies=("share-cache",),
        data={
            "hit_ratio": seen.hit_ratio,
            "entries": seen.entries,
            "distinct": seen.distinct,
            "entry_bytes": seen.entry_bytes,
            "needed_bytes": needed,
        },
    )


def _seen(evidence: Evidence, loader: LoaderUse) -> _Seen | None:
    """What the workers noted of the training dataset's cache, None where nothing was."""
    notes = [
        [note for note in worker.notes.get("kept", ()) if note.get("dataset") == loader.dataset.get("class")]
        for rank in evidence.recording.ranks
        if rank.pid == evidence.steps.pid
        for worker in rank.workers
    ]
    known = [of_worker for of_worker in notes if of_worker]
    if not known:
        return None
    last = [of_worker[-1] for of_worker in known]
    reads = sum(note["hits"] + note["misses"] for note in last)
    place = last[0].get("place")
    return _Seen(
        holder=str(last[0]["holder"]),
        place=Place(file=place[0], line=place[1], function=str(last[0]["holder"])) if place else None,
        hits=sum(note["hits"] for note in last),
        reads=max(1, reads),
        entries=max(note["entries"] for note in last),
        entry_bytes=last[0]["bytes_each"],
        distinct=len({number for of_worker in known for note in of_worker for number in note["new"]}),
    )


def _lru_cache(evidence: Evidence, feed: costs.Feed) -> Iterator[Finding]:
    """Compare the size of an ``lru_cache`` with the dataset's, and see whether making got faster.

    What it should keep must be a part of making: one that holds whole shards, or anything else than samples,
    may be small and always hit.
    """
    if feed.loader.num_iterators < 2:
        return
    loader = feed.loader
    length = int(loader.dataset.get("len") or 0)
    cache = max(_caches(evidence, loader), key=lambda one: one.share_of_make, default=None)
    if cache is None or length == 0 or not cache.size < length:
        return
    if cache.share_of_make < evidence.limits.hot_line_ratio:
        return
    # A cache that works makes later epochs faster.
    half = len(loader.make_s) // 2
    if half < 10 or np.median(loader.make_s[half:]) < 0.8 * np.median(loader.make_s[:half]):
        return
    hits = lru_hit_ratio(cache.size / length)
    cost = feed.saved_by_make(cache.share_of_make) * costs.exposed_ratio(evidence.steps, "data_wait")
    yield Finding(
        id=ID,
        message=(
            f"The cache at {says.at(cache.place)} holds {cache.size:,} results, the dataset has {length:,} "
            f"samples: {units.share(cache.share_of_make)} of making a batch is what it should keep."
        ),
        advice=(
            "Make the cache as large as what it is asked for (maxsize=None) where memory allows, or keep "
            "the first results and never evict: with one for each sample that hits "
            f"{units.share(cache.size / length)}."
        ),
        evidence=(
            says.waits(feed),
            f"making a batch took {units.duration(float(np.median(loader.make_s[:half])))} in the first "
            "half of the "
            f"run and {units.duration(float(np.median(loader.make_s[half:])))} in the second",
            "with one result for each sample, least-recently-used over a fraction c of them hits "
            f"c + (1 - c) ln(1 - c) = {units.share(hits)} in shuffled epochs",
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


def _caches(evidence: Evidence, loader: LoaderUse) -> Iterator[_Cache]:
    files = {line.place.file for line in loader.lines} | {str(loader.dataset.get("file") or "")}
    for file in sorted(files - {""}):
        tree = tree_of(text_of(evidence, file))
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    size = _lru_size(decorator)
                    if size is not None and _sample_argument(node):
                        place = Place(file=file, line=decorator.lineno, function=node.name)
                        yield _Cache(place=place, size=size, share_of_make=_share_inside(loader, place))


def _share_inside(loader: LoaderUse, function: Place) -> float:
    """The share of making that is spent in a function, or in what it calls."""
    seconds = sum(
        line.seconds
        for line in loader.lines
        if any(
            (place.file, place.function.rpartition(".")[2]) == (function.file, function.function)
            for place in (line.place, *line.callers)
        )
    )
    return seconds / loader.lines_total_s if loader.lines_total_s > 0 else 0.0


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
