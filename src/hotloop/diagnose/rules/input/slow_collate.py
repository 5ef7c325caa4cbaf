"""``input/slow-collate``: putting samples together takes much of making a batch."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs, repeating, says
from hotloop.diagnose.collating import DEFAULT_COLLATE, collate_name, collate_share, in_collate
from hotloop.diagnose.converting import ADVICE as OF_ROWS
from hotloop.diagnose.converting import by_rows
from hotloop.diagnose.costs import Feed
from hotloop.diagnose.discovery import EDIT
from hotloop.diagnose.elementwise import ADVICE, by_elements
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.hotspots import Hotspot, hottest
from hotloop.findings import Finding

ID = "input/slow-collate"
EFFORT = EDIT
COSTED = True


def check(evidence: Evidence) -> Iterator[Finding]:
    """Speak where collate is a large part of making and the step waits for it."""
    feed = costs.feed(evidence)
    if feed is None or len(feed.loader.make_s) == 0:
        return
    made = float(feed.loader.make_s.mean())
    share = collate_share(feed.loader)
    if share < evidence.limits.hot_line_ratio:
        return
    name = collate_name(feed.loader.settings)
    if feed.workers and name in DEFAULT_COLLATE:
        return  # writing into shared memory: shipping, not collating
    cost = feed.saved_by_make(share) * costs.exposed_ratio(evidence.steps, "data_wait")
    spot = _inside(feed, name)
    place = spot.place if spot is not None else None
    remedies, rows = by_elements(evidence, place), by_rows(evidence, place)
    again = repeating.repeated(evidence, spot, feed.loader, collate=True)
    yield Finding(
        id=ID,
        message=(
            f"{name or 'collate'}() takes {units.duration(feed.loader.collate_s)} of the "
            f"{units.duration(made)} it takes to make a batch."
        ),
        advice=_advice(name)
        + (ADVICE if remedies else "")
        + (OF_ROWS if rows else "")
        + repeating.advice(again),
        evidence=(
            says.waits(feed),
            says.makes(feed),
            f"collate takes {units.share(share)} of making a batch",
            *((says.spot(spot),) if spot is not None else ()),
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=spot.place if spot is not None else feed.loader.where,
        remedies=("batched-get",)
        if name in DEFAULT_COLLATE
        else (*remedies, *rows, *repeating.remedies(again), "batched-collate"),
        data={"collate_share_of_make": share, **repeating.data(again)},
    )


def _inside(feed: Feed, name: str) -> Hotspot | None:
    """The hottest line of the user's own collate function or object, or of what it calls."""
    loader = feed.loader
    spot = hottest(loader.lines, loader.lines_total_s)
    if spot is not None and in_collate(loader, spot.lines[0], spot.share):
        return spot
    lines = [line for line in loader.lines if name in line.place.function.split(".")]
    return hottest(lines, loader.lines_total_s)


def _advice(name: str) -> str:
    if name in DEFAULT_COLLATE:
        return (
            "Give the dataset a __getitems__ that gathers a whole batch in one indexing operation, so that "
            "collate "
            "has nothing to stack; keep samples small (uint8) until they are on the device."
        )
    return (
        f"Replace the per-sample work in {name}() by one operation on the batch (one allocation, one copy); "
        "move "
        "what depends on a single sample into the dataset, or do it once before training."
    )
