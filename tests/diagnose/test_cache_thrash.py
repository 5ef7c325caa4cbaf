"""What a dataset makes and throws away: entries of a cache that is too small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from synthetic import evidence, input_run

from hotloop.diagnose.diagnose import diagnose
from hotloop.findings import Finding
from hotloop.record.recording import ROW_DTYPE, Process

MIB = 1 << 20


def found(**world: Any) -> dict[str, Finding]:
    run = input_run(make_s=0.4, busy_s=0.02, workers=2, **world.pop("fields", {}))
    return {item.id: item for item in diagnose(evidence(run, **world))}


# -- a cache with counters of its own -----------------------------------------------------------------------


def worker(pid: int, *notes: dict[str, Any]) -> Process:
    rows = np.zeros(0, ROW_DTYPE)
    kept = {"kept": [{"note": "kept", **note} for note in notes]}
    return Process(
        pid=pid, ppid=100, role="worker", rank=0, start_ns=0, end_ns=1, rows=rows, notes=kept, workers=()
    )


def kept(new: range, *, hits: int, misses: int, entries: int = 11, **changed: Any) -> dict[str, Any]:
    note = {"dataset": "Windows", "holder": "LRUCache", "name": "cache", "place": ["/app/cache.py", 7]}
    counted = {"hits": hits, "misses": misses, "entries": entries, "bytes_each": 100 * MIB, "new": [*new]}
    return {**note, **counted, **changed}


def test_a_cache_that_hits_little_is_told_with_what_it_would_need() -> None:
    """Two workers, two looks each: 60 different entries in all, though no worker saw more than 40."""
    workers = (
        worker(1, kept(range(20), hits=1, misses=30), kept(range(20, 40), hits=6, misses=90)),
        worker(2, kept(range(30, 50), hits=0, misses=30), kept(range(50, 60), hits=4, misses=100)),
    )
    finding = found(workers=workers)["input/cache-thrash"]
    assert finding.where is not None and (finding.where.file, finding.where.line) == ("/app/cache.py", 7)
    assert finding.data["hit_ratio"] == pytest.approx(10 / 200)
    assert finding.data["needed_bytes"] == 60 * 100 * MIB
    assert "11 of at least 60 entries" in finding.message and "5.86 GiB, in every worker" in finding.message
    assert finding.cost_s_per_step > 0
    assert finding.remedies == ("share-cache",)


@pytest.mark.parametrize(
    "notes",
    [
        [kept(range(40), hits=150, misses=60)],  # it hits
        [kept(range(12), hits=2, misses=60)],  # what it was asked for fits: a first epoch
        [kept(range(40), hits=1, misses=20)],  # too few reads to tell
        [kept(range(0), hits=2, misses=200)],  # keys that nobody can number
        [kept(range(40), hits=2, misses=200, dataset="Validation")],  # another loader's
        [kept(range(40), hits=2, misses=200, bytes_each=0)],  # nothing known of its size
    ],
)
def test_a_cache_that_works_or_cannot_be_judged_is_left_alone(notes: list[dict[str, Any]]) -> None:
    assert "input/cache-thrash" not in found(workers=(worker(1, *notes),))
