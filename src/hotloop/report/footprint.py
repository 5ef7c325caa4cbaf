"""``hotloop memory`` in a terminal: where memory goes, what a dataset takes, what fits, what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hotloop import units
from hotloop.language import said
from hotloop.report import words

Section = list[str]


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
    workers, ranks = _count(dataset["num_workers"], "worker"), _count(dataset["num_ranks"], "rank")
    samples = f"{number:,} samples" if number else "samples not counted"
    head = [
        said("dataset  ") + said(f"{samples}, made by {_count(processes, 'process')} ({workers} x {ranks})"),
        "",
    ]
    rows = [["stage", "a sample", "the dataset", f"in {processes} copies" if processes > 1 else ""]]
    for stage in dataset["stages"]:
        total = stage["total_bytes"]
        rows.append(
            [
                words.cut(words.clean(stage["name"]), width - 48),
                mebibytes(stage["sample_bytes"]),
                units.size(total) if total else "-",
                units.size(total * processes) if total and processes > 1 else "",
            ]
        )
    tail = []
    if dataset["ahead_bytes"]:
        tail = words.wrap(
            f"up to {_count(dataset['batches_ahead'], 'batch')} of {dataset['batch_size']} wait or are used: "
            f"{units.size(dataset['ahead_bytes'])}",
            width,
        )
    return head + table(rows, width) + tail


def _count(number: int, noun: str) -> str:
    plural = "es" if noun.endswith(("s", "h")) else "s"
    return f"{number} {noun}{'' if number == 1 else plural}" if number else f"no {noun}s"


def fit_table(document: Mapping[str, Any], width: int) -> Section:
    """Sizes for a cache, and which part of the dataset each holds after each stage."""
    sizes, fits = document["budgets"], document["fits"]
    head = [
        said(f"cache    of {units.size(document['memory_bytes'])} of memory, one cache for all processes"),
        "",
    ]
    stages = list(dict.fromkeys(fit["stage"] for fit in fits))
    if not stages:
        rows = [["budget", "size", ""]] + [
            [one["name"], units.size(one["num_bytes"]), one["says"]] for one in sizes
        ]
        return head + table(rows, width, left=(0, 2))
    shown = stages[: max(1, (width - 24) // 18)]
    rows = [["budget", "size", *(words.cut(words.clean(name), 16) for name in shown)]]
    found = {(fit["stage"], fit["budget"]): fit for fit in fits}
    for one in sizes:
        cells = [held(found[name, one["name"]]) for name in shown]
        rows.append([one["name"], units.size(one["num_bytes"]), *cells])
    tail = words.wrap(
        "share of the dataset that the budget holds = hit rate when nothing is evicted (LRU's in brackets)",
        width,
    )
    return head + table(rows, width) + tail


def held(fit: Mapping[str, Any]) -> str:
    """How much of the dataset a cache holds, and in brackets how often an LRU of that size hits."""
    if fit["fraction"] >= 1:
        return "all"
    return f"{units.share(fit['keep_hit_rate'])} ({units.share(fit['lru_hit_rate'])})"


def advice(lines: Sequence[str], width: int) -> Section:
    """What to do, one sentence a paragraph."""
    return [line for text in lines for line in words.hanging("> ", text, width)]


def table(rows: Sequence[Sequence[str]], width: int, *, left: Sequence[int] = (0,)) -> Section:
    """Columns two cells apart under the first row; those in ``left`` are flush left, the others right."""
    rows = [[*map(said, rows[0])], *([said(row[0]), *row[1:]] for row in rows[1:])]
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


def render(report: Mapping[str, Any], *, width: int = 80) -> str:
    """The memory of a run, from its report."""
    memory = report["memory"]
    command = words.command(report["command"])
    head = ["hotloop memory  " + words.cut(command, width - 16)]
    if not memory.get("host"):
        return page([head, words.wrap(str(report["verdict"]), width), *_findings(report, width)])
    limit = memory["limit_bytes"] or memory["ram_bytes"]
    return page(
        [
            head,
            _process("host", memory["host"], limit, width),
            _process("device", memory["device"], None, width),
            _workers(memory["workers"], memory["dataset"], width),
            dataset_table(memory["dataset"], width) if memory["dataset"] else [],
            fit_table({**memory, "memory_bytes": limit}, width) if memory["fits"] else [],
            _growing(memory["growing"], report.get("cwd"), width),
            _growing(memory.get("growing_worker"), report.get("cwd"), width),
            *_findings(report, width),
            advice(memory["advice"], width),
        ]
    )


def _process(kind: str, held: Mapping[str, Any] | None, limit: float | None, width: int) -> Section:
    if held is None:
        return []
    limit = held["capacity_bytes"] or limit
    of = f" of {units.size(limit)} ({units.share(held['peak_bytes'] / limit)})" if limit else ""
    who = "training process" if kind == "host" else "tensors"
    lines = [said(f"{kind:<8} {who} {units.size(held['peak_bytes'])} at the peak{of}"), ""]
    parts = sorted((part for part in held["parts"] if part["bytes"] > 0), key=lambda part: -part["bytes"])
    total = sum(part["bytes"] for part in parts)
    rows = [[part["name"], units.size(part["bytes"]), units.share(part["bytes"] / total)] for part in parts]
    lines += table(rows, width) if rows else []
    if held["reserved_bytes"]:
        spare = held["reserved_bytes"] - held["peak_bytes"]
        lines += words.wrap(
            f"held by the allocator without a tensor: {units.size(spare)}; by CUDA and other processes: "
            f"{units.size(held['outside_bytes'])}",
            width,
        )
    return lines


def _workers(workers: Mapping[str, Any] | None, dataset: Mapping[str, Any] | None, width: int) -> Section:
    if workers is None:
        return []
    each = workers["each"]
    forked = sum(one["forked"] for one in each)
    most = workers.get("at_once", len(each))
    together = f", at most {most} of them at once" if most < len(each) else ""
    held = units.size(workers["private_bytes"])
    lines = [said(f"workers  {len(each)} ({forked} forked{together}), {held} private in all"), ""]
    rows = [["worker", "private", "copied by reading", "own", "seen for"]]
    for one in each[:8]:
        private, copied, own = (units.size(one[f"{kind}_bytes"]) for kind in ("private", "copied", "own"))
        seen = "one sample"
        if one["seconds"]:
            copied += f" (+{units.size(one['copied_bytes'] - one['copied_first_bytes'])})"
            seen = units.duration(one["seconds"])
        rows.append([f"{one['pid']}", private, copied, own, seen])
    lines += table(rows, width)
    if len(each) > 8:
        lines.append(f"and {len(each) - 8} more")
    if forked and dataset and dataset["held_bytes"]:
        lines += words.wrap(
            f"the dataset object holds about {units.size(dataset['held_bytes'])}; once every worker has "
            f"touched all of it: {units.size(workers['worst_copied_bytes'])}",
            width,
        )
    return lines


def _growing(grown: Mapping[str, Any] | None, cwd: str | None, width: int) -> Section:
    if grown is None:
        return []
    over, each = growth_words(grown)
    head = f"growing  {over}"
    if not (grown["lines"] or grown["types"] or grown["containers"]):
        return [f"{head}: nothing that Python knows of"]
    lines = [head]
    for one in grown["containers"]:
        holder = f" in {one['holder']}" if one["holder"] else ""
        lines += _item(
            f"{one['type']} {one['name'] or '(unnamed)'}{holder}",
            f"+{one['items_per_step']:.3g} items/{each}, {one['length']:,} now",
            width,
        )
    for one in grown["lines"]:
        place = words.place(one, cwd, limit=width - 36)
        lines += _item(
            place, f"+{units.size(one['bytes_per_step'])}/{each}, {units.size(one['bytes'])}", width
        )
    for one in grown["types"]:
        size = f", {units.size(one['bytes'])}" if one["bytes"] else ""
        lines += _item(one["name"], f"+{one['count_per_step']:.3g} objects/{each}{size}", width)
    return lines


def growth_words(grown: Mapping[str, Any]) -> tuple[str, str]:
    """Over how long something was seen to grow, and the word for one of these."""
    if "pid" in grown:
        return f"in worker {grown['pid']}, over {grown['steps']:,} batches of its own", "batch"
    return f"over {grown['steps']:,} steps", "step"


def _item(left: str, right: str, width: int) -> Section:
    left = words.cut(words.clean(left), width - words.cells(right) - 4)
    return ["  " + left + " " * (width - 2 - words.cells(left) - words.cells(right)) + right]


def _findings(report: Mapping[str, Any], width: int) -> list[Section]:
    return [
        words.finding(finding, report.get("cwd"), width=width)
        for finding in report["findings"]
        if finding["id"].startswith("memory/")
    ]
