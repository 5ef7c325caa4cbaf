"""``memory/page-cache-thrash``: the dataset is read from storage again and again because it does not fit in
memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.crowding import span_since_command
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.rules.input.slow_storage import computing, waiting_reads
from hotloop.findings import Finding

ID = "memory/page-cache-thrash"
COSTED = True

_PAGE = 4096.0


def check(evidence: Evidence) -> Iterator[Finding]:
    """Speak where makers wait for reads, pages are read again soon after they were evicted, and epochs
    repeat.
    """
    feed = costs.feed(evidence)
    if feed is None or feed.loader.num_iterators < 2:
        return
    part = waiting_reads(feed, evidence)
    refaults = evidence.recording.system.get("refaults_per_s")
    if part is None or refaults is None:
        return
    start, end = span_since_command(evidence)
    seconds = np.asarray(evidence.recording.system["t_s"], float)
    inside = refaults[(seconds >= start) & (seconds <= end) & np.isfinite(refaults)]
    again = float(inside.mean()) * _PAGE if len(inside) >= 4 else 0.0
    read = feed.loader.worker_stats.get("read_bytes", 0.0) / max(1e-9, evidence.steps.span_s)
    if (
        read <= 0
        or again < evidence.limits.refault_ratio * read
        or again < evidence.limits.refault_bytes_per_s
    ):
        return
    waiting = part.share * (1.0 - computing(part, feed))
    cost = feed.saved_by_make(waiting) * costs.exposed_ratio(evidence.steps, "data_wait")
    yield Finding(
        id=ID,
        message=(
            f"Every epoch reads the dataset from storage again ({units.size(read)}/s): the page cache loses "
            "it before "
            "the next epoch."
        ),
        advice=(
            "Make the data smaller (uint8, compressed, cropped once) so that it fits in memory, give the "
            "run more "
            "memory, or keep a part of the samples in a cache that does not evict."
        ),
        evidence=(
            says.waits(feed),
            f"{units.size(again)}/s are read again soon after they were evicted",
            f"read lines wait {units.share(waiting)} of making a batch, most at {says.at(part.place)}",
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=part.place,
        remedies=("bake", "cache-samples"),
        data={"refault_bytes_per_s": again, "read_bytes_per_s": read},
    )
