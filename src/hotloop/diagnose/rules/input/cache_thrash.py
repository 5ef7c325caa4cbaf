"""``input/cache-thrash``: a bounded cache in the dataset is too small for the epoch and hits next to
nothing: one with counters of its own, as the workers saw it, or an ``lru_cache``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hotloop.diagnose.costs import Feed, feed_of
from hotloop.diagnose.evidence import Evidence, at, rule, spot
from hotloop.diagnose.making import of_input, waits
from hotloop.diagnose.source import sources
from hotloop.feed.throughput import expected_hit_rate
from hotloop.findings import Finding, Place
from hotloop.measure.steps import LoaderUse
from hotloop.units import duration, share, size

#: Reads of a cache below which its hits say nothing, and how much more it was asked for than it holds.
_LEAST_READS, _BEYOND = 40, 1.5
#: A method or function under a bounded lru_cache (128 by default) that takes what tells samples apart.
_LRU = re.compile(
    r"^[ \t]*@(?:functools\.)?lru_cache(?:\((?:maxsize=)?(?P<size>\d+)?\))?\s*\n\s*def (?P<name>\w+)\("
    r"\s*(?:self\s*,\s*)?(?!self\b)\w",
    re.M,
)


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

    @property
    def thrashes(self) -> bool:
        few = self.reads >= _LEAST_READS and self.hit_ratio < 0.5
        return few and self.distinct >= _BEYOND * self.entries and self.entry_bytes > 0


@rule("input/cache-thrash", costed=True)
def check(evidence: Evidence) -> Iterator[Finding]:
    """Speak of what the cache's own counters say, else of an ``lru_cache`` on the making's path."""
    feed = feed_of(evidence)
    if feed is None:
        return
    seen = _seen(evidence, feed.loader)
    if seen is None:
        yield from _lru_cache(evidence, feed)
    elif seen.thrashes:
        yield _thrashes(evidence, feed, seen)


def _thrashes(evidence: Evidence, feed: Feed, seen: _Seen) -> Finding:
    needed, held = seen.distinct * seen.entry_bytes, seen.entries * seen.entry_bytes
    each = f"each of {feed.workers} workers keeps" if feed.workers > 1 else "the worker keeps"
    ending = feed.loader.num_iterators > 1 and not feed.loader.settings.get("persistent_workers")
    return of_input(
        evidence,
        saved_s=feed.saved_by_make(1.0 - seen.hit_ratio),
        message=(
            f"The cache {seen.holder}{at(seen.place)} hits {share(seen.hit_ratio)} of the time: {each} "
            f"{seen.entries:,} of at least {seen.distinct:,} entries. All of them take "
            f"{size(needed)}, in every worker."
        ),
        advice=(
            "Share one cache between the workers (hotloop.feed.cached), and keep in it what the files hold, "
            "before it is enlarged or converted. Where it cannot hold all, never evict: that hits what it "
            "holds."
        ),
        numbers=[
            waits(feed),
            f"{seen.hits:,} hits in {seen.reads:,} reads, by the cache's own counters in the workers",
            f"an entry takes {size(seen.entry_bytes)}, a worker keeps {size(held)} of them",
            *(["the workers, and their caches with them, end with every epoch"] if ending else []),
        ],
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
    workers = evidence.process.workers
    of_dataset = loader.dataset.get("class")
    notes = [[n for n in one.notes.get("kept", ()) if n.get("dataset") == of_dataset] for one in workers]
    known = [of_worker for of_worker in notes if of_worker]
    if not known:
        return None
    last = [of_worker[-1] for of_worker in known]
    place, holder = last[0].get("place"), str(last[0]["holder"])
    return _Seen(
        holder=holder,
        place=Place(file=place[0], line=place[1], function=holder) if place else None,
        hits=sum(note["hits"] for note in last),
        reads=max(1, sum(note["hits"] + note["misses"] for note in last)),
        entries=max(note["entries"] for note in last),
        entry_bytes=last[0]["bytes_each"],
        distinct=len({number for of_worker in known for note in of_worker for number in note["new"]}),
    )


def _lru_cache(evidence: Evidence, feed: Feed) -> Iterator[Finding]:
    """Compare the size of an ``lru_cache`` with the dataset's, and see whether making got faster.

    What it should keep must be a part of making: one that holds whole shards, or anything else than samples,
    may be small and always hit.
    """
    loader = feed.loader
    length, half = int(loader.dataset.get("len") or 0), len(loader.make_s) // 2
    found = [(place, held, _share_inside(loader, place)) for place, held in _caches(evidence, loader)]
    cache, held, ratio = max(found, key=lambda one: one[2], default=(None, 0, 0.0))
    if loader.num_iterators < 2 or cache is None or not held < length or half < 10:
        return
    first, second = float(np.median(loader.make_s[:half])), float(np.median(loader.make_s[half:]))
    # A cache that works makes later epochs faster.
    if ratio < evidence.limits.hot_line_ratio or second < 0.8 * first:
        return
    hits = expected_hit_rate("lru", held / length)
    yield of_input(
        evidence,
        saved_s=feed.saved_by_make(ratio),
        message=(
            f"The cache at {spot(cache)} holds {held:,} results, the dataset has {length:,} samples: "
            f"{share(ratio)} of making a batch is what it should keep."
        ),
        advice=(
            "Make the cache as large as what it is asked for (maxsize=None) where memory allows, or keep "
            "the first results and never evict: with one for each sample that hits "
            f"{share(held / length)}."
        ),
        numbers=[
            waits(feed),
            f"making a batch took {duration(first)} in the first half of the run and {duration(second)} in "
            "the second",
            "with one result for each sample, least-recently-used over a fraction c of them hits "
            f"c + (1 - c) ln(1 - c) = {share(hits)} in shuffled epochs",
        ],
        where=cache,
        remedies=("cache-samples",),
        data={"cache_size": held, "dataset_len": length, "hit_ratio": hits},
    )


def _caches(evidence: Evidence, loader: LoaderUse) -> Iterator[tuple[Place, int]]:
    files = {line.place.file for line in loader.lines} | {str(loader.dataset.get("file") or "")}
    for file, text in sources(evidence).items():
        for found in _LRU.finditer(text) if file in files else ():
            line = text.count("\n", 0, found.start()) + 1
            yield Place(file=file, line=line, function=found["name"]), int(found["size"] or 128)


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
