"""Runs of other batch sizes, precisions and models in a terminal, and what is chosen from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from hotloop import units
from hotloop.report import words
from hotloop.report.footprint import Section, advice, table


def choices(rows: Sequence[Mapping[str, Any]], width: int) -> Section:
    """The runs side by side."""
    said = [["choice", "plan", "batch", "samples/s", "host", "device", "loss"]]
    for number, row in enumerate(rows):
        other = words.command(PurePath(word).name for word in row["words"]) or f"run {number + 1}"
        name = other if number else "this run"
        speed, sizes = units.rate(row["samples_per_s"] or 0.0), (row["host_bytes"], row["device_bytes"])
        known = [units.size(size) if size else "-" for size in sizes]
        loss = "-" if row["loss"] is None else f"{row['loss']:.3g}"
        cut = name if words.cells(name) <= width - 62 else "…" + name[61 - width :]  # names differ at the end
        said.append([cut, row["name"], f"{row['batch_samples']:g}", speed, *known, loss])
    return table(said, width, left=(0, 1)) if rows else []


def chosen(document: Mapping[str, Any] | None, width: int) -> Section:
    """Balanced, fast and small; or what fits."""
    if document is None:
        return []
    said = [["batch size", "precision", "batch", "samples/s", "gain", "memory", "updates"]]
    for row in document["rows"]:
        mark = "" if row["sure"] else "?"
        gain = "-" if row["name"] == "now" or row["gain"] is None else f"{row['gain']:.2f}x{mark}"
        batch = f"{row['batch_samples']:g}" + "*" * (not row["ran"])
        numbers = [units.rate(row["samples_per_s"]), gain, units.size(row["memory_bytes"])]
        said.append([row["name"], row["precision"] or "-", batch, *numbers, f"{row['updates']:.2f}x"])
    return [*(table(said, width, left=(0, 1)) if document["rows"] else []), *advice(document["notes"], width)]
