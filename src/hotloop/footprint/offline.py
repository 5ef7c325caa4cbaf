"""What a dataset takes and what fits, from shapes alone: no run, no torch, any machine's memory."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hotloop import units
from hotloop.footprint.budgets import budgets, chosen, fits
from hotloop.footprint.stages import Dataset


def document(dataset: Dataset, memory_bytes: int) -> dict[str, Any]:
    """Schema 1 of ``hotloop memory --stage ... --json``."""
    room = chosen(memory_bytes, taken_bytes=dataset.ahead_bytes)
    return {
        "schema": 1,
        "memory_bytes": memory_bytes,
        **tables(dataset, memory_bytes, dataset.ahead_bytes),
        "advice": _advice(dataset, room) if dataset.num_samples and dataset.stages else [],
    }


def tables(dataset: Dataset | None, memory_bytes: int, taken_bytes: float) -> dict[str, Any]:
    """A dataset, sizes for a cache on a machine, and what each would hold."""
    sizes = budgets(memory_bytes, taken_bytes=taken_bytes) if memory_bytes and dataset else ()
    found = fits(dataset.stages, dataset.num_samples, sizes) if dataset and dataset.num_samples else ()
    return {
        "dataset": _described(dataset) if dataset else None,
        "budgets": [asdict(size) for size in sizes],
        "fits": [asdict(fit) for fit in found],
    }


def _described(dataset: Dataset) -> dict[str, Any]:
    """A dataset as ``report.json`` carries it."""
    number = dataset.num_samples
    return {
        "num_samples": number,
        "num_workers": dataset.num_workers,
        "num_ranks": dataset.num_ranks,
        "num_processes": dataset.num_processes,
        "batch_size": dataset.batch_size,
        "batches_ahead": dataset.batches_ahead,
        "ahead_bytes": dataset.ahead_bytes,
        "held_bytes": dataset.held_bytes,
        "stages": [
            {
                "name": stage.name,
                "fields": [str(field) for field in stage.fields],
                "sample_bytes": stage.sample_bytes,
                "total_bytes": stage.total_bytes(number) if number else None,
            }
            for stage in dataset.stages
        ],
    }


def _advice(dataset: Dataset, room: int) -> list[str]:
    least = min(dataset.stages, key=lambda stage: stage.sample_bytes)
    last = dataset.stages[-1]
    lines = []
    copies = last.total_bytes(dataset.num_samples) * dataset.num_processes
    if dataset.num_processes > 1 and copies > room:
        lines.append(
            f"A cache of its own in each of {dataset.num_processes} processes would want "
            f"{units.size(copies)}: share one (hotloop.feed.cached), or cache nothing."
        )
    holding = [stage for stage in dataset.stages if stage.total_bytes(dataset.num_samples) <= room]
    if holding:
        # The later the stage, the less is left to do for a sample that is found.
        best = holding[-1]
        lines.append(
            f"Cached after «{best.name}» the whole dataset fits: "
            f"{units.size(best.total_bytes(dataset.num_samples))} of the {units.size(room)} for a cache."
        )
        return lines
    fraction = room / least.total_bytes(dataset.num_samples)
    lines.append(
        f"No stage fits whole: after «{least.name}» the {units.size(room)} that a cache may take hold "
        f"{fraction:.0%} of the dataset; keep those samples (policy keep, not LRU), or store less per sample."
    )
    return lines
