"""``input/unused-fields``: parts of the batch are made and shipped, and nothing reads them."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.collating import DEFAULT_COLLATE, collate_name
from hotloop.diagnose.costs import Feed
from hotloop.diagnose.dead_fields import dead_lines
from hotloop.diagnose.discovery import EDIT
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.reading import Part, part_of
from hotloop.findings import Finding

ID = "input/unused-fields"
EFFORT = EDIT


def check(evidence: Evidence) -> Iterator[Finding]:
    """Name fields that were never read; price shipping by their bytes and making by lines that are for them
    alone.
    """
    feed = costs.feed(evidence)
    if feed is None or not feed.loader.unused_fields:
        return
    loader = feed.loader
    names = loader.unused_fields
    byte_share = _byte_share(feed)
    dead = dead_lines(evidence, loader)
    part = part_of(
        loader.lines, loader.lines_total_s, lambda line: (line.place.file, line.place.line) in dead
    )
    named = part.share if part is not None else 0.0
    make_share = min(1.0, named + _collate_share(feed) * byte_share)
    shipping = feed.deliver_s * byte_share if feed.workers else 0.0
    moved = evidence.steps.per_step("transfer") * byte_share if evidence.on_accelerator else 0.0
    cost = _hidden(evidence, feed.saved_by_make(make_share) + min(shipping, feed.wait_s)) + moved
    listed = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
    yield Finding(
        id=ID,
        message=(
            f"{'The field' if len(names) == 1 else 'The fields'} {listed} of every batch "
            f"{'is' if len(names) == 1 else 'are'} made and shipped, and never read in training."
        ),
        advice=f"Leave {listed} out of what __getitem__ returns, or load it only where it is used.",
        evidence=(
            f"{units.share(byte_share)} of the batch's bytes"
            + (f" ({units.size(loader.batch_bytes * byte_share)})" if loader.batch_bytes else ""),
            *_made(part),
            says.waits(feed),
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=part.place if part is not None else loader.where,
        remedies=("drop-unused-fields",),
        data={
            "fields": list(names),
            "unused": ",".join(names),
            "byte_share": byte_share,
            "share_of_make": make_share,
        },
    )


def _collate_share(feed: Feed) -> float:
    """Collate's share of making: it goes with the bytes, where it is torch's own."""
    made = float(feed.loader.make_s.mean()) if len(feed.loader.make_s) else 0.0
    plain = collate_name(feed.loader.settings) in DEFAULT_COLLATE
    return min(1.0, feed.loader.collate_s / made) if made > 0 and plain else 0.0


def _byte_share(feed: Feed) -> float:
    fields = feed.loader.batch_fields
    total = sum(float(field.get("bytes") or 0) for field in fields)
    unused = sum(
        float(f.get("bytes") or 0)
        for f in fields
        if _is_one(str(f.get("path") or ""), feed.loader.unused_fields)
    )
    return unused / total if total > 0 else 0.0


def _is_one(path: str, names: tuple[str, ...]) -> bool:
    """Whether a field's path is one of the unread keys or lies below one."""
    return any(path == name or path.startswith((f"{name}.", f"{name}[")) for name in names)


def _made(part: Part | None) -> Iterator[str]:
    if part is not None:
        yield (
            f"lines for them alone take {units.share(part.share)} of making a batch, most at "
            f"{says.at(part.place)}"
        )


def _hidden(evidence: Evidence, cost: float) -> float:
    return cost * costs.exposed_ratio(evidence.steps, "data_wait")
