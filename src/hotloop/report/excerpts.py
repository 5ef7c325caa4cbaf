"""Source lines around a place, from the texts the recording keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from hotloop.findings import Place
from hotloop.measure.steps import Floats, LineCost, LoaderUse, Steps
from hotloop.record.recording import Recording

_LONGEST_LINE = 240


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Texts of the user's files as they were during the run."""

    lines: Mapping[str, list[str]]

    @classmethod
    def of(cls, recording: Recording) -> Sources:
        """All ``source`` notes of all processes."""
        texts: dict[str, list[str]] = {}
        for process in recording.processes:
            for note in process.notes.get("source", []):
                text = note.get("text")
                if isinstance(text, str):
                    texts.setdefault(str(note.get("file", "")), text.splitlines())
        return cls(lines=texts)

    def excerpt(self, place: Place | None, around: int = 3) -> dict[str, Any] | None:
        """``{"first": line number, "lines": [...]}`` around a place; None where the text is not known."""
        if place is None:
            return None
        lines = self.lines.get(place.file, [])
        if not 1 <= place.line <= len(lines):
            return None
        first = max(1, place.line - around)
        return {"first": first, "lines": [_clipped(line) for line in lines[first - 1 : place.line + around]]}

    def line(self, place: Place) -> str:
        """The text of one line, stripped; "" where it is not known."""
        lines = self.lines.get(place.file, [])
        return _clipped(lines[place.line - 1].strip()) if 1 <= place.line <= len(lines) else ""


def _clipped(line: str) -> str:
    line = line.expandtabs(4)
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"


# Loaders and sampled lines as the report carries them


_MAX_LINES: Final = 12
#: Fields of a loader that the report carries unchanged, and those of which it has count, mean and quantiles.
_PLAIN: Final = (
    "id", "role", "where", "settings", "dataset", "num_iterators", "num_batches", "batches_per_epoch",
    "num_worker_processes", "sample_s", "collate_s", "deliver_s", "busy_ratio", "make_on_cpu_ratio",
    "batch_bytes", "batch_fields", "unused_fields", "worker_stats",
)  # fmt: skip
_OF_LINE: Final = (
    "place", "phase", "seconds", "num_samples", "role", "nature", "on_cpu_ratio", "library", "statement"
)  # fmt: skip
_SUMMARIZED: Final = ("wait_s", "make_s", "first_batch_s", "shutdown_s", "slowest_sample_s")


def line(item: LineCost, main: Steps, sources: Sources) -> dict[str, Any]:
    """A sampled line of the main thread; ``share`` is of the training span (of start-up for its lines)."""
    whole = main.totals.get("startup", 0.0) if item.phase == "startup" else main.span_s
    return {
        **_line(item, sources),
        "share": item.seconds / whole if whole > 0 else 0.0,
        "s_per_step": item.seconds / max(1, main.num_steps) if item.phase != "startup" else None,
    }


def loader(item: LoaderUse, sources: Sources) -> dict[str, Any]:
    """A loader: settings, how long the loop waited for it and its batches took to make, its hottest lines."""
    total = item.lines_total_s
    return {
        **{name: getattr(item, name) for name in _PLAIN},
        **{name: _summary(getattr(item, name)) for name in _SUMMARIZED},
        "iterator_start_s": _summary(item.iter_s),
        "ready_batches": _summary(item.ready),
        "lines": [
            {**_line(entry, sources), "share": entry.seconds / total if total > 0 else 0.0}
            for entry in item.lines[:_MAX_LINES]
        ],
    }


def _line(item: LineCost, sources: Sources) -> dict[str, Any]:
    return {
        **{name: getattr(item, name) for name in _OF_LINE},
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
