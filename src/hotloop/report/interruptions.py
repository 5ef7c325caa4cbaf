"""What interrupts the steps, summed up: evaluations, checkpoints, garbage collections, compilations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from hotloop.measure.steps import Interval, Steps


def interruptions(main: Steps) -> list[dict[str, Any]]:
    """One entry per kind that occurred: count, seconds in all, ``every_steps`` (median distance), place."""
    found = [
        _intervals("evaluation", main.evaluations),
        _intervals("checkpoint", main.checkpoints),
        _plain("garbage collection", main.gc_count, main.gc_s),
        _plain("compilation", len(main.compiles_at), main.compile_s),
    ]
    return [entry for entry in found if entry["count"] and entry["seconds"] > 0]


def _intervals(kind: str, items: Sequence[Interval]) -> dict[str, Any]:
    distances = [
        after - before for before, after in pairwise(item.after_step for item in items) if after > before
    ]
    return {
        **_plain(kind, len(items), sum(item.seconds for item in items)),
        "every_steps": median(distances) if distances else None,
        "place": next((item.place for item in items if item.place), None),
    }


def _plain(kind: str, count: int, seconds: float) -> dict[str, Any]:
    return {"kind": kind, "count": count, "seconds": seconds, "every_steps": None, "place": None}
