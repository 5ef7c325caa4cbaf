"""Loaders and sampled lines as the report carries them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hotloop.measure.steps import Floats, LineCost, LoaderUse, Steps
from hotloop.report.excerpts import Sources

_MAX_LINES: Final = 12


def line(item: LineCost, main: Steps, sources: Sources) -> dict[str, Any]:
    """A sampled line of the main thread; ``share`` is of the training span (of start-up for its lines)."""
    whole = main.totals.get("startup", 0.0) if item.phase == "startup" else main.span_s
    return {
        **_line(item, sources),
        "share": item.seconds / whole if whole > 0 else 0.0,
        "s_per_step": item.seconds / max(1, main.num_steps) if item.phase != "startup" else None,
    }


def loader(item: LoaderUse, main: Steps, sources: Sources) -> dict[str, Any]:
    """A loader: settings, how long the loop waited for it and its batches took to make, its hottest lines."""
    return {
        "id": item.id,
        "role": item.role,
        "where": item.where,
        "settings": item.settings,
        "dataset": item.dataset,
        "num_iterators": item.num_iterators,
        "num_batches": item.num_batches,
        "batches_per_epoch": item.batches_per_epoch,
        "num_worker_processes": item.num_worker_processes,
        "wait_s": _summary(item.wait_s),
        "make_s": _summary(item.make_s),
        "iterator_start_s": _summary(item.iter_s),
        "first_batch_s": _summary(item.first_batch_s),
        "shutdown_s": _summary(item.shutdown_s),
        "slowest_sample_s": _summary(item.slowest_sample_s),
        "ready_batches": _summary(item.ready),
        "sample_s": item.sample_s,
        "collate_s": item.collate_s,
        "deliver_s": item.deliver_s,
        "busy_ratio": item.busy_ratio,
        "make_on_cpu_ratio": item.make_on_cpu_ratio,
        "batch_bytes": item.batch_bytes,
        "batch_fields": item.batch_fields,
        "unused_fields": item.unused_fields,
        "worker_stats": item.worker_stats,
        "lines": [_worker_line(entry, item, sources) for entry in item.lines[:_MAX_LINES]],
    }


def _worker_line(item: LineCost, owner: LoaderUse, sources: Sources) -> dict[str, Any]:
    total = owner.lines_total_s
    return {**_line(item, sources), "share": item.seconds / total if total > 0 else 0.0}


def _line(item: LineCost, sources: Sources) -> dict[str, Any]:
    return {
        "place": item.place,
        "phase": item.phase,
        "seconds": item.seconds,
        "num_samples": item.num_samples,
        "role": item.role,
        "nature": item.nature,
        "on_cpu_ratio": item.on_cpu_ratio,
        "library": item.library,
        "statement": item.statement,
        "source": item.source or sources.line(item.place),
        "excerpt": sources.excerpt(item.place),
    }


def _summary(values: Floats) -> dict[str, float] | None:
    known = np.asarray(values, float)
    known = known[np.isfinite(known)]
    if not len(known):
        return None
    median, p95 = np.percentile(known, [50, 95])
    return {
        "count": len(known),
        "total": float(known.sum()),
        "mean": float(known.mean()),
        "median": float(median),
        "p95": float(p95),
        "max": float(known.max()),
    }
