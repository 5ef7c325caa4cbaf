"""The making of batches waits for reads from storage: by themselves, or because memory holds no epoch."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.diagnose.costs import Feed, feed_of
from hotloop.diagnose.evidence import Evidence, rule, spot
from hotloop.diagnose.groups import LineGroup, of_kind, quoted
from hotloop.diagnose.line_kinds import is_read
from hotloop.diagnose.making import of_making
from hotloop.findings import Finding
from hotloop.units import duration, share, size


@rule("input/slow-storage", costed=True)
def check(evidence: Evidence) -> Iterator[Finding]:
    """Speak where read lines are off the CPU and the process really read from storage."""
    feed = feed_of(evidence)
    part = waiting_reads(feed, evidence) if feed is not None else None
    if feed is None or part is None:
        return
    computing = part.on_cpu_ratio
    waiting = part.share * (1.0 - computing)
    yield of_making(
        evidence,
        feed,
        saved_s=feed.saved_by_make(waiting),
        message=(
            f"Making a batch waits for storage {share(waiting)} of its time, most at "
            f"{spot(part.place)}{quoted(part.lines[0])}."
        ),
        numbers=[
            f"read lines take {share(part.share)} of making and compute {share(computing)} of that",
            *_amounts(reading_stats(feed, evidence)),
        ],
        where=part.place,
        data={"waiting_share_of_make": waiting},
    )


def waiting_reads(feed: Feed, evidence: Evidence) -> LineGroup | None:
    """The read lines of the makers if they wait and bytes, faults or I/O wait bear it out."""
    loader, limits = feed.loader, evidence.limits
    part = of_kind(loader.lines, loader.lines_total_s, is_read)
    if part is None or part.share < limits.hot_line_ratio:
        return None
    if part.on_cpu_ratio >= limits.waiting_on_cpu_ratio:
        return None
    stats = reading_stats(feed, evidence)
    batches = max(1, loader.num_batches)
    read = max(stats.get("read_bytes", 0.0), stats.get("rchar_bytes", 0.0)) / batches
    waited = stats.get("io_wait_s", 0.0) > 0 or stats.get("major_faults", 0.0) >= batches
    return part if waited or read >= limits.min_read_bytes_per_batch else None


def reading_stats(feed: Feed, evidence: Evidence) -> dict[str, float]:
    """What the makers read: the workers' own counts, or those of the training process over the training
    span.
    """
    if feed.workers:
        return dict(feed.loader.worker_stats)
    names = ("read_bytes", "rchar_bytes", "major_faults", "io_wait_s")
    known = {name: evidence.sampled(evidence.steps.pid, name)[1] for name in names}
    return {name: float(values[-1] - values[0]) for name, values in known.items() if len(values) >= 2}


def _amounts(stats: dict[str, float]) -> Iterator[str]:
    if stats.get("read_bytes"):
        yield f"{size(stats['read_bytes'])} read from storage"
    elif stats.get("rchar_bytes"):
        yield f"{size(stats['rchar_bytes'])} read through system calls"
    if stats.get("io_wait_s"):
        yield f"{duration(stats['io_wait_s'])} of I/O wait"
    if stats.get("major_faults"):
        yield f"{stats['major_faults']:.0f} major page faults"
