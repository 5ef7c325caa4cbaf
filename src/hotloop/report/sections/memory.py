"""Where memory went: processes by part, the dataset by stage, what fits, what grows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hotloop import units
from hotloop.report import words
from hotloop.report.footprint import growth_words, held, mebibytes, size_gb
from hotloop.report.markup import Markup, section, table, tag
from hotloop.report.sections.time import bar

Report = Mapping[str, Any]
Memory = Mapping[str, Any]

_PEAKS = (
    ("main_peak_bytes", "training processes, peak"),
    ("workers_peak_bytes", "workers, peak"),
    ("device_peak_bytes", "device, peak"),
    ("ram_bytes", "memory of the machine"),
    ("limit_bytes", "limit of the container"),
)


def render(report: Report) -> Markup:
    """The section; a part of it only where the recording tells."""
    memory = report["memory"]
    found = [(words_, memory.get(key)) for key, words_ in _PEAKS]
    if not any(value for _, value in found[:3]):
        return Markup()
    cells = (
        tag("div", tag("dt", name), tag("dd", units.size(value)))
        for name, value in found
        if value is not None
    )
    return section(
        "memory",
        "Memory",
        tag("dl", *cells, class_="figures plain"),
        *(tag("p", line, class_="note") for line in memory.get("advice") or ()),
        _parts("The training process at its peak", memory.get("host")),
        _parts("The device at its peak", memory.get("device")),
        _dataset(memory),
        _workers(memory.get("workers")),
        _growing(memory, report.get("cwd")),
    )


def _titled(title: str, *children: str | None) -> Markup | None:
    return tag("div", tag("h3", title), *children, class_="file") if any(children) else None


def _parts(title: str, process: Memory | None) -> Markup | None:
    parts = (
        [(part["name"], part["bytes"]) for part in process["parts"] if part["bytes"] > 0] if process else []
    )
    total = sum(size for _, size in parts)
    if not total:
        return None
    shares = [(name, size / total, units.size(size)) for name, size in parts]
    rows = [[name, size, units.share(share)] for name, share, size in shares]
    return _titled(
        title, bar(shares, title), table(["part", "size", "share"], rows, numeric=(1, 2), caption=title)
    )


def _dataset(memory: Memory) -> Markup | None:
    dataset = memory.get("dataset")
    if not dataset or not dataset["stages"]:
        return None
    sizes = memory["budgets"]
    fits = {(fit["stage"], fit["budget"]): fit for fit in memory["fits"]}
    rows = [
        [
            tag("span", stage["name"], title=", ".join(stage["fields"]) or None),
            mebibytes(stage["sample_bytes"]),
            units.size(stage["total_bytes"]) if stage["total_bytes"] else "–",
            *(held(fits[key]) if (key := (stage["name"], one["name"])) in fits else "–" for one in sizes),
        ]
        for stage in dataset["stages"]
    ]
    head = [
        "after",
        "a sample",
        "the dataset",
        *(f"{one['name']}: {size_gb(one['num_bytes'])}" for one in sizes),
    ]
    return _titled(
        "The dataset, and what of it a cache would hold",
        table(head, rows, numeric=range(1, len(head)), caption="The dataset by stage"),
        tag("p", "One cache for all processes; in brackets the hit rate of an LRU.", class_="note")
        if fits
        else None,
    )


def _workers(workers: Memory | None) -> Markup | None:
    rows = [
        [
            str(one["pid"]),
            units.size(one["private_bytes"]),
            units.size(one["copied_bytes"]),
            units.size(one["own_bytes"]),
        ]
        for one in (workers["each"] if workers else ())
    ]
    head = ["worker", "private", "copied by reading", "own"]
    return _titled("Workers", table(head, rows, numeric=(1, 2, 3), caption="Memory of the workers"))


def _growing(memory: Memory, cwd: str | None) -> Markup | None:
    blocks: list[str | None] = []
    for grown in filter(None, (memory.get("growing"), memory.get("growing_worker"))):
        over, each = growth_words(grown)
        head = [over, f"each {each}", "in all"]
        blocks.append(table(head, _grown(grown, cwd), numeric=(1, 2), caption=f"Growing {over}"))
    return _titled("What grows", *blocks)


def _grown(grown: Memory, cwd: str | None) -> Iterator[Sequence[str]]:
    for one in grown["containers"]:
        holder = f" in {one['holder']}" if one["holder"] else ""
        name = f"{one['type']} {one['name'] or '(unnamed)'}{holder}"
        yield name, f"{one['items_per_step']:.3g} items", f"{one['length']:,} items"
    for one in grown["lines"]:
        place = tag("code", words.place(one, cwd))
        yield place, units.size(one["bytes_per_step"]), units.size(one["bytes"])
    for one in grown["types"]:
        size = units.size(one["bytes"]) if one["bytes"] else "–"
        yield one["name"], f"{one['count_per_step']:.3g} objects", size
