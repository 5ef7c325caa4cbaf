"""Workers that grow: each copies the dataset page by page, or keeps every sample it made."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop.diagnose.costs import feed_of
from hotloop.diagnose.evidence import Evidence, cause, rule, spot
from hotloop.diagnose.memory_use import in_span, limit_of
from hotloop.diagnose.source import sources
from hotloop.diagnose.worker_memory import worker_memory
from hotloop.findings import Finding, Place
from hotloop.measure.steps import LoaderUse
from hotloop.source.caches import kept_samples
from hotloop.units import share, size


@rule("memory/unbounded-cache")
def unbounded_cache(evidence: Evidence) -> Iterator[Finding]:
    """Needs both: the source keeps samples by index without a bound, and memory really grew."""
    feed = feed_of(evidence)
    place = _cache(evidence, feed.loader) if feed is not None else None
    if feed is None or place is None:
        return
    grown = float(sum(worker_growth(evidence))) if feed.workers else _grown(evidence)
    if grown < evidence.limits.growth_bytes:
        return
    limit = limit_of(evidence.machine)
    whole = feed.loader.batch_bytes * feed.loader.batches_per_epoch * max(1, feed.workers)
    full = max(grown, whole) / limit if limit else 0.0
    each = f"each of {feed.workers} workers keeps its own"
    persistent = feed.loader.settings.get("persistent_workers")
    yield cause(
        evidence,
        message=(
            f"The cache at {spot(place)} keeps every sample without a bound, "
            f"{each if feed.workers > 1 else 'in the process that makes them'}: {size(grown)} so far."
        ),
        numbers=[
            f"memory of the makers grew by {size(grown)}",
            *([f"a whole epoch in every worker would take {size(whole)}"] if whole else []),
            *([f"persistent_workers={persistent}"] if feed.workers else []),
        ],
        severity="high" if full > 0.9 else "medium" if full > 0.25 else "low",
        where=place,
        data={"grown_bytes": grown, "whole_bytes": whole},
    )


@rule("memory/worker-copies")
def worker_copies(evidence: Evidence) -> Iterator[Finding]:
    """Speak where two workers or more each grow their private memory by a large amount over their life."""
    feed, limits = feed_of(evidence), evidence.limits
    grown = worker_growth(evidence) if feed is not None and feed.workers >= 2 else []
    typical = float(np.median(grown)) if grown else 0.0
    if feed is None or len(grown) < 2 or typical < limits.worker_growth_bytes:
        return
    total, limit = typical * feed.workers, limit_of(evidence.machine)
    pids = {worker.pid for worker in evidence.process.workers}
    copied = [one.copied_bytes for one in worker_memory(evidence.recording) if one.pid in pids]
    counted = bool(copied) and float(np.median(copied)) >= limits.worker_growth_bytes
    full = total / limit if limit else 0.0
    yield cause(
        evidence,
        message=(
            f"Each of {feed.workers} workers grows by {size(typical)} of memory of its own while it reads "
            f"the dataset: {size(total)} together."
        ),
        numbers=[
            "private memory grown per worker: " + ", ".join(size(value) for value in grown[:4]),
            *([f"{share(full)} of the {size(limit)} this run may use"] if limit else []),
        ],
        severity="medium" if full > 0.25 else "low" if counted or full > 0.05 else "info",
        where=feed.loader.where,
        data={"bytes_per_worker": typical, "workers": feed.workers},
    )


def worker_growth(evidence: Evidence) -> list[float]:
    """Bytes each worker's private memory grew, its start (imports, the first batches) left out.

    Where private pages were counted, what it no longer shares with the process it was forked from counts too:
    resident memory does not show that.
    """
    copied = {one.pid: one.copied_bytes for one in worker_memory(evidence.recording)}
    grown = []
    for pid in (worker.pid for worker in evidence.process.workers):
        _, known = in_span(evidence, pid)
        known = known[max(1, len(known) // 5) :]
        if len(known) >= 4:
            grown.append(max(float(known[-1] - known[0]), copied.get(pid, 0.0)))
    return grown


def _grown(evidence: Evidence) -> float:
    _, known = in_span(evidence, evidence.steps.pid)
    return float(known[-1] - known[0]) if len(known) >= 4 else 0.0


def _cache(evidence: Evidence, loader: LoaderUse) -> Place | None:
    """Where a class of samples keeps every sample."""
    files = {line.place.file for line in loader.lines} | {str(loader.dataset.get("file") or "")}
    for file, text in sources(evidence).items():
        for line, function in kept_samples(text) if file in files else ():
            return Place(file=file, line=line, function=function)
    return None
