"""``input/slow-storage``: the making of batches waits for reads from storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.costs import Feed
from hotloop.diagnose.crowding import span_since_command
from hotloop.diagnose.discovery import EDIT
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.hotspots import quoted
from hotloop.diagnose.reading import Part, is_read, part_of
from hotloop.findings import Finding

ID = "input/slow-storage"
EFFORT = EDIT
COSTED = True


def check(evidence: Evidence) -> Iterator[Finding]:
    """Speak where read lines are off the CPU and the process really read from storage."""
    feed = costs.feed(evidence)
    if feed is None:
        return
    part = waiting_reads(feed, evidence)
    if part is None:
        return
    waiting = part.share * (1.0 - computing(part, feed))
    cost = feed.saved_by_make(waiting) * costs.exposed_ratio(evidence.steps, "data_wait")
    yield Finding(
        id=ID,
        message=(
            f"Making a batch waits for storage {units.share(waiting)} of its time, most at "
            f"{says.at(part.place)}{quoted(part.lines[0])}."
        ),
        advice=(
            "Copy the data to local fast storage or memory before training, pack small files into one large "
            "file "
            "read in order, or keep decoded samples in a cache; more workers overlap reads as long as the "
            "storage "
            "can serve them."
        ),
        evidence=(
            says.waits(feed),
            says.makes(feed),
            f"read lines take {units.share(part.share)} of making and compute "
            f"{units.share(computing(part, feed))} of that",
            *_amounts(reading_stats(feed, evidence)),
            *_kind(evidence),
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=part.place,
        remedies=("cache-samples", "bake"),
        data={"waiting_share_of_make": waiting},
    )


def waiting_reads(feed: Feed, evidence: Evidence) -> Part | None:
    """The read lines of the makers if they wait and bytes, faults or I/O wait bear it out."""
    loader = feed.loader
    part = part_of(loader.lines, loader.lines_total_s, is_read)
    limits = evidence.limits
    if part is None or part.share < limits.hot_line_ratio:
        return None
    if computing(part, feed) >= limits.waiting_on_cpu_ratio:
        return None
    stats = reading_stats(feed, evidence)
    batches = max(1, loader.num_batches)
    read = max(stats.get("read_bytes", 0.0), stats.get("rchar_bytes", 0.0)) / batches
    waited = stats.get("io_wait_s", 0.0) > 0 or stats.get("major_faults", 0.0) >= batches
    proof = waited or read >= limits.min_read_bytes_per_batch
    return part if proof else None


def computing(part: Part, feed: Feed) -> float:
    """The share of these lines' time that wants a core."""
    return feed.crowd.computing(part.on_cpu_ratio)


def reading_stats(feed: Feed, evidence: Evidence) -> dict[str, float]:
    """What the makers read: the workers' own counts, or those of the training process over the training
    span.
    """
    if feed.workers:
        return dict(feed.loader.worker_stats)
    columns = evidence.recording.process_system.get(evidence.steps.pid, {})
    if "t_s" not in columns:
        return {}
    start, end = span_since_command(evidence)
    inside = (columns["t_s"] >= start) & (columns["t_s"] <= end)
    names = ("read_bytes", "rchar_bytes", "major_faults", "io_wait_s")
    known = {name: columns[name][inside & np.isfinite(columns[name])] for name in names if name in columns}
    return {name: float(values[-1] - values[0]) for name, values in known.items() if len(values) >= 2}


def _kind(evidence: Evidence) -> Iterator[str]:
    storage = evidence.machine.get("storage")
    kind = storage.get("kind") if isinstance(storage, Mapping) else storage
    if kind:
        yield f"the working folder lies on {kind}"


def _amounts(stats: dict[str, float]) -> Iterator[str]:
    if stats.get("read_bytes"):
        yield f"{units.size(stats['read_bytes'])} read from storage"
    elif stats.get("rchar_bytes"):
        yield f"{units.size(stats['rchar_bytes'])} read through system calls"
    if stats.get("io_wait_s"):
        yield f"{units.duration(stats['io_wait_s'])} of I/O wait"
    if stats.get("major_faults"):
        yield f"{stats['major_faults']:.0f} major page faults"
