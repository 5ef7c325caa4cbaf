"""Every DataLoader: how it was set, how long the loop waited for it, how its batches were made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotloop import units
from hotloop.report import words
from hotloop.report.markup import Markup, section, table, tag
from hotloop.report.sections.lines import listing

Report = Mapping[str, Any]
Item = Mapping[str, Any]

#: Settings in the order people look for them; the others follow by name.
_FIRST = (
    "batch_size",
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "persistent_workers",
    "shuffle",
    "drop_last",
)


def render(report: Report) -> Markup:
    """One block per loader that was used."""
    used = [loader for loader in report["loaders"] if loader["role"] != "unused"]
    return section("loaders", "Data loaders", *(_loader(loader, report) for loader in used))


def _loader(loader: Item, report: Report) -> Markup:
    dataset = loader["dataset"].get("class") or "dataset"
    length = loader["dataset"].get("len")
    size = f" of {length:,} samples" if isinstance(length, int) else ""
    where = words.place(loader["where"], report.get("cwd")) if loader["where"] else ""
    return tag(
        "article",
        tag("h3", f"{loader['role']}: ", tag("code", str(dataset)), size),
        tag("p", "built at ", tag("code", where), class_="place") if where else None,
        tag("div", _times(loader), _settings(loader), class_="pair"),
        _fields(loader),
        tag("h4", "Lines that make the batches") if loader["lines"] else None,
        listing(loader["lines"], report),
        class_="loader",
    )


def _times(loader: Item) -> Markup:
    rows = [(name, value) for name, value in _facts(loader) if value]
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in rows), class_="facts")


def _facts(loader: Item) -> list[tuple[str, str]]:
    return [
        ("batches", f"{loader['num_batches']:,} in {loader['num_iterators']:,} iterators"),
        ("wait per batch", _spread(loader["wait_s"])),
        ("making a batch", _spread(loader["make_s"])),
        ("one sample", _duration(loader["sample_s"])),
        ("slowest sample of a batch", _spread(loader["slowest_sample_s"])),
        ("collate", _duration(loader["collate_s"])),
        ("shipping a ready batch", _duration(loader["deliver_s"])),
        ("bytes per batch", units.size(loader["batch_bytes"]) if loader["batch_bytes"] else ""),
        (
            "batches ready when asked",
            f"{loader['ready_batches']['mean']:.1f}" if loader["ready_batches"] else "",
        ),
        ("workers busy", units.share(loader["busy_ratio"]) if loader["busy_ratio"] is not None else ""),
        (
            "makers on a CPU",
            units.share(loader["make_on_cpu_ratio"]) if loader["make_on_cpu_ratio"] is not None else "",
        ),
        ("starting an iterator", _spread(loader["iterator_start_s"])),
        ("first batch of an iterator", _spread(loader["first_batch_s"])),
        ("shutting down", _spread(loader["shutdown_s"])),
        ("worker processes", f"{loader['num_worker_processes']:,}" if loader["num_worker_processes"] else ""),
        *_stats(loader["worker_stats"]),
    ]


def _stats(stats: Item) -> list[tuple[str, str]]:
    read, waiting = stats.get("read_bytes"), stats.get("io_wait_s")
    return [
        ("read from storage", units.size(read) if read else ""),
        ("waiting for storage", _duration(waiting)),
    ]


def _settings(loader: Item) -> Markup:
    settings = loader["settings"]
    others = sorted(name for name, value in settings.items() if name not in _FIRST and _telling(name, value))
    names = [name for name in _FIRST if settings.get(name) is not None] + others
    rows = [[tag("code", name), tag("code", words.value(settings[name]))] for name in names]
    return table(["argument", "in effect"], rows, caption="Arguments in effect")


def _telling(name: str, value: Any) -> bool:
    """Whether an argument says more than that torch's default holds."""
    return (
        bool(value) and name not in ("given", "in_order") and not str(value).startswith("torch.utils.data.")
    )


def _fields(loader: Item) -> Markup:
    unused = set(loader["unused_fields"])
    rows = [
        [
            tag("code", str(field.get("path", ""))),
            str(field.get("dtype", "")),
            tag("code", words.value(field.get("shape"))),
            units.size(field["bytes"]) if field.get("bytes") else "–",
            tag("span", "never read", class_="bad") if field.get("path") in unused else "",
        ]
        for field in loader["batch_fields"]
    ]
    return table(["field", "dtype", "shape", "bytes", ""], rows, numeric=(3,), caption="Fields of a batch")


def _spread(summary: Item | None) -> str:
    if not summary:
        return ""
    if summary["count"] < 4:
        return f"{units.duration(summary['mean'])} on average"
    return f"{units.duration(summary['median'])} median, {units.duration(summary['p95'])} at 95 %"


def _duration(seconds: float | None) -> str:
    return units.duration(seconds) if seconds else ""
