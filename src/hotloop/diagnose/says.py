"""The words findings share, so that the same number is said the same way everywhere."""

from __future__ import annotations

from pathlib import PurePath

from hotloop import units
from hotloop.diagnose.costs import Feed
from hotloop.diagnose.hotspots import Hotspot
from hotloop.diagnose.reading import sleeps
from hotloop.findings import Place


def waits(feed: Feed) -> str:
    """How long the step waits for data."""
    ratio = feed.wait_s / feed.step_s if feed.step_s > 0 else 0.0
    return f"each step waits {units.duration(feed.wait_s)} for data ({units.share(ratio)} of the step)"


def makes(feed: Feed) -> str:
    """What making a batch takes, beside the step's own work."""
    crowded = (
        f"; the machine was crowded: makers ran {units.share(feed.crowd.got)} of the time they could"
        if feed.crowd.got < 0.8
        else ""
    )
    return (
        f"making a batch takes {units.duration(feed.make_s)} ({units.share(feed.computing_ratio)} of it "
        "computing), "
        f"the step itself {units.duration(feed.busy_s)}{crowded}"
    )


def at(place: Place) -> str:
    """A place inside a sentence: the file's name is enough there, the finding's ``where`` has the path."""
    return f"{PurePath(place.file).name}:{place.line}"


def paced(spot: Hotspot | None) -> str:
    """What workers mean for a line that sleeps, perhaps to keep a rate; "" where none does."""
    if spot is None or not sleeps(spot.source):
        return ""
    return f" Each worker then sleeps for itself at {at(spot.place)}: together they exceed a rate kept there."


def spot(spot: Hotspot) -> str:
    """Where the making of batches spends its time."""
    inside = f", in {spot.library}" if spot.library else ""
    kind = "line" if spot.is_line else "function"
    return (
        f"the {kind} {spot.what} at {at(spot.place)} takes {units.share(spot.share)} of making a "
        f"batch{inside}"
    )


def of_buffer(name: str) -> str:
    """What makes batches of a buffer cheaper that the loop fills itself: none can be made ahead or stored."""
    return (
        f"The loop fills {name} itself, so that no batch can be made before it is asked for. Hold what it "
        "keeps in arrays of the full length, one for each field, written in place by index, and take a batch "
        "by one index of each (states[indices])."
    )
