"""One line or function makes the samples slow, or putting them together does, and the step waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.diagnose import repeating
from hotloop.diagnose.collating import (
    DEFAULT_COLLATE,
    collate_name,
    collate_share,
    in_collate,
    per_sample_lines,
)
from hotloop.diagnose.costs import Feed, feed_of, offers
from hotloop.diagnose.evidence import Evidence, rule, spot
from hotloop.diagnose.groups import LineGroup, hottest
from hotloop.diagnose.inline import own_input
from hotloop.diagnose.line_kinds import by_rows
from hotloop.diagnose.making import of_making, takes
from hotloop.diagnose.repeating import cheaper
from hotloop.findings import Finding
from hotloop.units import duration, rate, share


@rule("input/slow-sample", costed=True)
def slow_sample(evidence: Evidence) -> Iterator[Finding]:
    """Name the line that takes most of the making, at the part of the wait it causes."""
    feed = feed_of(evidence)
    if feed is None:
        yield from own_input(evidence)
        return
    loader = feed.loader
    hot = hottest(per_sample_lines(loader), loader.lines_total_s)
    if hot is None or hot.share < evidence.limits.hot_line_ratio:
        return
    if in_collate(loader, hot.lines[0], hot.share):
        return
    again = repeating.repeated(evidence, hot, loader)
    draws = repeating.draws(evidence, hot.lines, loader)
    kept = ("cache-samples",) if draws else ("cache-samples", "bake")
    yield of_making(
        evidence,
        feed,
        saved_s=feed.saved_by_make(hot.share),
        message=(
            f"{hot.what} at {spot(hot.place)} takes {share(hot.share)} of making a batch{hot.parts}, "
            f"and each step waits {duration(feed.wait_s + feed.held_up_s)} for data."
        ),
        advice=cheaper(evidence, hot, loader) + repeating.advice(again),
        numbers=[takes(hot), f"num_workers={feed.workers} on {rate(feed.cores)} cores"],
        where=hot.place,
        remedies=(*by_rows(hot.source), *offers(loader, *kept), *repeating.remedies(again)),
        data={
            "share_of_make": hot.share,
            "on_cpu_ratio": hot.on_cpu_ratio,
            "library": hot.library,
            **({"draws": True} if draws else {}),
            **repeating.data(again),
        },
    )


@rule("input/slow-collate", costed=True)
def slow_collate(evidence: Evidence) -> Iterator[Finding]:
    """Speak where collate is a large part of making and the step waits for it."""
    feed = feed_of(evidence)
    if feed is None or len(feed.loader.make_s) == 0:
        return
    ratio, name = collate_share(feed.loader), collate_name(feed.loader.settings)
    own = name not in DEFAULT_COLLATE
    if ratio < evidence.limits.hot_line_ratio or (feed.workers and not own):
        return  # torch's own in a worker writes into shared memory: shipping, not collating
    spot = _inside(feed, name)
    if own and spot is None:
        return  # a library's: no line of the user's is in it
    rows = by_rows(spot.source) if spot is not None else ()
    again = repeating.repeated(evidence, spot, feed.loader, collate=True)
    yield of_making(
        evidence,
        feed,
        saved_s=feed.saved_by_make(ratio),
        message=(
            f"{name or 'collate'}() takes {duration(feed.loader.collate_s)} of the "
            f"{duration(float(feed.loader.make_s.mean()))} it takes to make a batch."
        ),
        advice=_advice(name if own else "") + repeating.advice(again),
        numbers=[
            f"collate takes {share(ratio)} of making a batch",
            *([takes(spot)] if spot is not None else []),
        ],
        where=spot.place if spot is not None else feed.loader.where,
        remedies=(*rows, *repeating.remedies(again), "batched-collate") if own else ("batched-get",),
        data={"collate_share_of_make": ratio, **repeating.data(again)},
    )


def _inside(feed: Feed, name: str) -> LineGroup | None:
    """The hottest line of the user's own collate function or object, or of what it calls."""
    loader = feed.loader
    spot = hottest(loader.lines, loader.lines_total_s)
    if spot is not None and in_collate(loader, spot.lines[0], spot.share):
        return spot
    lines = [line for line in loader.lines if name in line.place.function.split(".")]
    return hottest(lines, loader.lines_total_s)


def _advice(name: str) -> str:
    if not name:
        return (
            "Give the dataset a __getitems__ that gathers a whole batch in one indexing operation, so that "
            "collate has nothing to stack; keep samples small (uint8) until they are on the device."
        )
    return (
        f"Replace the per-sample work in {name}() by one operation on the batch (one allocation, one copy); "
        "move what depends on a single sample into the dataset, or do it once before training."
    )
