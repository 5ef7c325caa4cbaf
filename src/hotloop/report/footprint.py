"""``hotloop memory`` in a terminal: where memory goes, what a dataset takes, what fits, what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hotloop import units
from hotloop.report import words
from hotloop.report.terminal import bar_columns

Section = list[str]
_LETTERS: Final = "PGOLDAWXRSTU"


def render_dataset(document: Mapping[str, Any], *, width: int = 80) -> str:
    """What a dataset takes and what fits, from its shapes alone."""
    dataset = document["dataset"]
    sections = [dataset_table(dataset, width), fit_table(document, width), advice(document["advice"], width)]
    return page(sections)


def page(sections: Sequence[Section]) -> str:
    """Sections as one text, an empty line between them."""
    return "\n\n".join("\n".join(line.rstrip() for line in lines) for lines in sections if lines) + "\n"


def dataset_table(dataset: Mapping[str, Any], width: int) -> Section:
    """Bytes after each stage: a sample, the whole dataset, and a copy of it in every process."""
    if not dataset["stages"]:
        return []
    number, processes = dataset["num_samples"], dataset["num_processes"]
    makers = (
        f"{dataset['num_workers']} workers x {dataset['num_ranks']} ranks"
        if dataset["num_workers"]
        else f"{dataset['num_ranks']} ranks, no workers"
    )
    samples = f"{number:,} samples" if number else "samples not counted"
    head = [f"dataset  {samples}, {processes} processes make them ({makers})", ""]
    rows = [["stage", "a sample", "the dataset", f"in {processes} copies"]]
    for stage in dataset["stages"]:
        total = stage["total_bytes"]
        rows.append(
            [
                words.cut(words.clean(stage["name"]), width - 48),
                mebibytes(stage["sample_bytes"]),
                units.size(total) if total else "-",
                units.size(total * processes) if total else "-",
            ]
        )
    tail = []
    if dataset["ahead_bytes"]:
        tail = words.wrap(
            f"up to {dataset['batches_ahead']} batches of {dataset['batch_size']} wait or are in use: "
            f"{units.size(dataset['ahead_bytes'])}",
            width,
        )
    return head + table(rows, width) + tail


def fit_table(document: Mapping[str, Any], width: int) -> Section:
    """Sizes for a cache, and which part of the dataset each holds after each stage."""
    sizes, fits = document["budgets"], document["fits"]
    head = [f"cache    of {units.size(document['memory_bytes'])} of memory, one cache for all processes", ""]
    stages = list(dict.fromkeys(fit["stage"] for fit in fits))
    if not stages:
        rows = [["budget", "size", ""]] + [
            [one["name"], size_gb(one["num_bytes"]), one["says"]] for one in sizes
        ]
        return head + table(rows, width, left=(0, 2))
    shown = stages[: max(1, (width - 24) // 18)]
    rows = [["budget", "size", *(words.cut(words.clean(name), 16) for name in shown)]]
    held = {(fit["stage"], fit["budget"]): fit for fit in fits}
    for one in sizes:
        cells = [_held(held[name, one["name"]]) for name in shown]
        rows.append([one["name"], size_gb(one["num_bytes"]), *cells])
    tail = words.wrap(
        "share of the dataset that the budget holds = hit rate when nothing is evicted (LRU's in brackets)",
        width,
    )
    return head + table(rows, width) + tail


def _held(fit: Mapping[str, Any]) -> str:
    if fit["fraction"] >= 1:
        return "all"
    return f"{percent(fit['keep_hit_rate'])} ({percent(fit['lru_hit_rate'])})"


def advice(lines: Sequence[str], width: int) -> Section:
    """What to do, one sentence a paragraph."""
    return [
        (("> " if i == 0 else "  ") + line)
        for text in lines
        for i, line in enumerate(words.wrap(text, width - 2))
    ]


def bar(parts: Sequence[tuple[str, float]], width: int) -> Section:
    """One line of letters as wide as the page, and what each letter stands for."""
    shown = [(name, size) for name, size in parts if size > 0]
    letters = _letters([name for name, _ in shown])
    counts = dict(bar_columns(shown, width))
    total = sum(size for _, size in shown)
    lines = ["".join(letters[name] * counts.get(name, 0) for name, _ in shown)]
    rows = [
        [f"{letters[name]} {name}", units.size(size), units.share(size / total)]
        for name, size in sorted(shown, key=lambda part: -part[1])
    ]
    return lines + table(rows, width)


def _letters(names: Sequence[str]) -> dict[str, str]:
    """A letter for each name: its own first one where that is free."""
    taken: dict[str, str] = {}
    for name in names:
        wanted = [letter for letter in name.upper() if letter.isalpha()]
        free = [letter for letter in [*wanted, *_LETTERS] if letter not in taken.values()]
        taken[name] = free[0] if free else "."
    return taken


def table(rows: Sequence[Sequence[str]], width: int, *, left: Sequence[int] = (0,)) -> Section:
    """Columns two cells apart; those in ``left`` are flush left, the others right."""
    widths = [max(words.cells(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell + " " * (size - words.cells(cell)) if i in left else " " * (size - words.cells(cell)) + cell
            for i, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(words.cut(("  ".join(cells)).rstrip(), width))
    return lines


def mebibytes(num_bytes: float) -> str:
    """A sample's size to two places, as guides give it: ``133.59 MiB``."""
    return f"{num_bytes / 2**20:,.2f} MiB" if num_bytes >= 2**20 else units.size(num_bytes)


def size_gb(num_bytes: float) -> str:
    """A budget in the decimal unit that configurations are written in: ``80.0 GB``."""
    return f"{num_bytes / 1e9:,.1f} GB"


def percent(ratio: float) -> str:
    """A rate with a decimal below ten percent."""
    return f"{ratio * 100:.1f} %" if 0 < ratio < 0.0995 else f"{ratio * 100:.0f} %"
