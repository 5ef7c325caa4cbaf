"""``input/unused-fields``: parts of the batch are made and shipped, and nothing reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from hotloop.diagnose.collating import DEFAULT_COLLATE, collate_name, collate_share
from hotloop.diagnose.costs import feed_of, phase_interval
from hotloop.diagnose.evidence import Evidence, cause, rule, spot
from hotloop.diagnose.groups import of_kind
from hotloop.diagnose.making import waits
from hotloop.diagnose.source import dataset_text, line_text
from hotloop.findings import Finding
from hotloop.measure.steps import LineCost, LoaderUse
from hotloop.units import share, size

_WORD = re.compile(r"[^\W_]+")


@rule("input/unused-fields")
def check(evidence: Evidence) -> Iterable[Finding]:
    """Name fields that were never read; price shipping by their bytes and making by the lines that name
    them and no other field.
    """
    feed = feed_of(evidence)
    if feed is None or not feed.loader.unused_fields:
        return
    loader, names = feed.loader, feed.loader.unused_fields
    tensors = [field for field in loader.batch_fields if _is_one(_path(field), names)]
    unused = sum(map(_bytes, tensors))
    total = sum(map(_bytes, loader.batch_fields))
    byte_share = unused / total if total > 0 else 0.0
    plain = collate_name(loader.settings) in DEFAULT_COLLATE
    alone = _alone(dataset_text(evidence, loader), loader) if plain else set()
    part = of_kind(loader.lines, loader.lines_total_s, lambda line: _makes(evidence, line, alone))
    if loader.batch_fields and not tensors and part is None:
        return  # names and the like
    # Collate's share of making goes with the bytes, where it is torch's own.
    collating = min(1.0, collate_share(loader)) if plain else 0.0
    make_share = min(1.0, (part.share if part is not None else 0.0) + collating * byte_share)
    shipping = min(feed.deliver_s * byte_share, feed.wait_s) if feed.workers else 0.0
    moved = evidence.steps.per_step("transfer") * byte_share if evidence.on_accelerator else 0.0
    saved = feed.saved_by_make(make_share) + shipping
    cost = saved * evidence.steps.exposed("data_wait") + moved
    listed = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
    of_bytes = f" ({size(loader.batch_bytes * byte_share)})" if loader.batch_bytes else ""
    numbers = [f"{share(byte_share)} of the batch's bytes{of_bytes}", waits(feed)]
    if part is not None:
        lines = f"lines for them alone take {share(part.share)} of making a batch"
        numbers.append(f"{lines}, most at {spot(part.place)}")
    yield cause(
        evidence,
        message=(
            f"{'The field' if len(names) == 1 else 'The fields'} {listed} of every batch "
            f"{'is' if len(names) == 1 else 'are'} made and shipped, and never read in training."
        ),
        advice=f"Leave {listed} out of what __getitem__ returns, or load it only where it is used.",
        numbers=numbers,
        cost_s=cost,
        ci95=phase_interval(evidence.steps, cost, "data_wait"),
        where=part.place if part is not None else loader.where,
        data={
            "fields": list(names),
            "unused": ",".join(names),
            "byte_share": byte_share,
            "share_of_make": make_share,
        },
    )


def _bytes(field: Mapping[str, Any]) -> float:
    return float(field.get("bytes") or 0)


def _path(field: Mapping[str, Any]) -> str:
    return str(field.get("path") or "")


def _is_one(path: str, names: Iterable[str]) -> bool:
    """Whether a field's path is one of the unread keys or lies below one."""
    return any(path == name or path.startswith((f"{name}.", f"{name}[")) for name in names)


def _alone(text: str, loader: LoaderUse) -> set[str]:
    """The unread fields that no line of the dataset names together with one that is read, but the last."""
    unread = set(loader.unused_fields)
    read = {path for path in map(_path, loader.batch_fields) if not _is_one(path, unread)}
    lines = [set(_WORD.findall(line)) for line in text.splitlines() if "return" not in line]
    return {name for name in unread if not any(name in words and words & read for words in lines)}


def _makes(evidence: Evidence, line: LineCost, names: set[str]) -> bool:
    """Whether a line, or one that its function is called from, makes one of the fields and nothing else."""
    texts = [line.source, *(line_text(evidence, place) for place in line.callers)]
    return any(
        re.match(rf"(\w+\[)?[\"']?{name}[\"']?\]? ?[=:](?!=)", text) for name in names for text in texts
    )
