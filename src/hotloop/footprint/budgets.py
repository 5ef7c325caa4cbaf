"""What a dataset takes, how large a cache may be on a machine, and what of the dataset it would hold.

The guide's table (S1-15: 256 GB of memory: a cache of 50 to 80 GB, 128: 20 to 40, 64: 10 to 20) as a formula:
at most 5/16 of the memory, which is its upper end in every row, and never more than half (S1-68). It does not
know what else runs: ``left`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hotloop import units
from hotloop.feed.budget import headroom_of
from hotloop.feed.hitrate import expected_hit_rate
from hotloop.footprint.stages import Dataset, Stage


def document(dataset: Dataset, memory_bytes: int) -> dict[str, Any]:
    """Schema 1 of ``hotloop memory --stage ... --json``: from shapes alone, for any machine's memory."""
    room = chosen(memory_bytes, taken_bytes=dataset.ahead_bytes)
    return {
        "schema": 1,
        "memory_bytes": memory_bytes,
        **tables(dataset, memory_bytes, dataset.ahead_bytes),
        "advice": _advice(dataset, room) if dataset.num_samples and dataset.stages else [],
    }


def tables(dataset: Dataset | None, memory_bytes: int, taken_bytes: float) -> dict[str, Any]:
    """A dataset, sizes for a cache on a machine, and what each would hold."""
    sizes = budgets(memory_bytes, taken_bytes=taken_bytes) if memory_bytes and dataset else []
    found = fits(dataset.stages, dataset.num_samples, sizes) if dataset and dataset.num_samples else []
    return {"dataset": _described(dataset) if dataset else None, "budgets": sizes, "fits": found}


def budgets(memory_bytes: int, *, taken_bytes: float = 0.0) -> list[dict[str, Any]]:
    """The sizes to choose from on a machine with so much memory, of which a run takes ``taken_bytes``."""
    left = "memory less a tenth for the system" + (", less what the run takes" if taken_bytes else "")
    rows = [
        ("guide", memory_bytes * 5 // 16, "5/16 of the memory"),
        ("half", memory_bytes // 2, "of the memory: the most"),
        ("left", max(0, int(memory_bytes - headroom_of(memory_bytes) - taken_bytes)), left),
    ]
    return [{"name": name, "num_bytes": size, "says": says} for name, size, says in rows]


def chosen(memory_bytes: int, *, taken_bytes: float = 0.0) -> int:
    """The largest cache that fits: what is left, and no more than half of the memory."""
    return min(int(one["num_bytes"]) for one in budgets(memory_bytes, taken_bytes=taken_bytes)[1:])


def fits(stages: Sequence[Stage], num_samples: int, sizes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The part of each stage's output that one cache for all workers and ranks holds, by budget.

    Rates are of shuffled epochs after the first.
    """
    pairs = [
        (stage.name, size["name"], min(1.0, size["num_bytes"] / (stage.sample_bytes * num_samples)))
        for stage in stages
        for size in sizes
    ]
    return [
        {
            "stage": stage,
            "budget": budget,
            "fraction": fraction,
            "keep_hit_rate": fraction,
            "lru_hit_rate": expected_hit_rate("lru", fraction),
        }
        for stage, budget, fraction in pairs
    ]


def _described(dataset: Dataset) -> dict[str, Any]:
    """A dataset as ``report.json`` carries it."""
    number = dataset.num_samples
    names = (
        "num_samples", "num_workers", "num_ranks", "num_processes", "batch_size", "batches_ahead",
        "ahead_bytes", "held_bytes",
    )  # fmt: skip
    return {
        **{name: getattr(dataset, name) for name in names},
        "stages": [
            {**vars(stage), "total_bytes": stage.sample_bytes * number or None} for stage in dataset.stages
        ],
    }


def _advice(dataset: Dataset, room: int) -> list[str]:
    totals = {stage.name: stage.sample_bytes * dataset.num_samples for stage in dataset.stages}
    *_, last = totals.values()
    lines = []
    if dataset.num_processes > 1 and last * dataset.num_processes > room:
        lines.append(
            f"A cache of its own in each of {dataset.num_processes} processes would want "
            f"{units.size(last * dataset.num_processes)}: share one (hotloop.feed.cached), or cache nothing."
        )
    # The later the stage, the less is left to do for a sample that is found.
    best = next((name for name in reversed(totals) if totals[name] <= room), None)
    if best is not None:
        lines.append(
            f"Cached after «{best}» the whole dataset fits: {units.size(totals[best])} of the "
            f"{units.size(room)} for a cache."
        )
        return lines
    least = min(totals, key=lambda name: totals[name])
    lines.append(
        f"No stage fits whole: after «{least}» the {units.size(room)} that a cache may take hold "
        f"{room / totals[least]:.0%} of the dataset; keep those samples (policy keep, not LRU), or store "
        "less per sample."
    )
    return lines
