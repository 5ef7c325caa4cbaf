"""How rules of the input state a cause, and the words for what making a batch takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hotloop import units
from hotloop.diagnose.costs import Feed, alike, phase_interval
from hotloop.diagnose.evidence import Evidence, cause, spot
from hotloop.diagnose.groups import LineGroup
from hotloop.findings import Finding
from hotloop.measure.steps import LoaderUse


def of_input(evidence: Evidence, *, saved_s: float, **said: Any) -> Finding:
    """A cause in the input, at the part of ``saved_s`` seconds per step that the device does not hide."""
    cost = saved_s * evidence.steps.exposed("data_wait")
    interval = phase_interval(evidence.steps, cost, "data_wait")
    return cause(evidence, cost_s=cost, ci95=interval, **said)


def of_making(
    evidence: Evidence,
    feed: Feed,
    *,
    saved_s: float,
    numbers: Iterable[str] = (),
    **said: Any,
) -> Finding:
    """A cause in the making of batches, beside what the step waits and what making takes."""
    numbers = (waits(feed), makes(feed), *numbers)
    if not {"num-workers", "no-workers"}.isdisjoint(said.get("remedies", ())):
        said["advice"] += beside(evidence, feed.loader)
    return of_input(evidence, saved_s=saved_s, numbers=numbers, **said)


def at_best(feed: Feed, workers: int) -> str:
    """What a step would take at least, instead of what it does: slower where it shares cores with workers."""
    left = max(feed.busy_s, min(feed.at(workers), feed.step_s - feed.saved_by_workers(workers)))
    now = units.duration(feed.step_s)
    return f"a step without its pauses is predicted to take {units.duration(left)} at best instead of {now}"


def beside(evidence: Evidence, loader: LoaderUse) -> str:
    """What else a change of the call that built a loader would change, and which calls need the same."""
    others = [one for one in evidence.steps.loaders if one.where is not None and one.id != loader.id]
    more = [one.role for one in others if one.where == loader.where and one.role != "unused"]
    words = ""
    if more:
        roles = ", ".join(sorted(set(more)))
        words = f" The same call builds {len(more)} more ({roles}), which change with it."
    if places := sorted({spot(one.where) for one in alike(evidence.steps, loader)} - {spot(loader.where)}):
        words += f" Change {', '.join(places)} too: what is built there trains with as many workers."
    return words


def waits(feed: Feed) -> str:
    """How long the step waits for data, and for cores that making it takes."""
    held, waited = feed.held_up_s, feed.wait_s + feed.held_up_s
    ratio = waited / feed.step_s if feed.step_s > 0 else 0.0
    cores = f", {units.duration(held)} of it for cores that its workers keep busy" if held else ""
    return f"each step waits {units.duration(waited)} for data ({units.share(ratio)} of the step){cores}"


def makes(feed: Feed) -> str:
    """What making a batch takes, beside the step's own work."""
    words = (
        f"making a batch takes {units.duration(feed.make_s)} ({units.share(feed.computing_ratio)} of it "
        f"computing), the step itself {units.duration(feed.busy_s)}"
    )
    if 2 * feed.make_alone_s > feed.make_s:
        return words
    return f"{words}; alone the training thread would make one in {units.duration(feed.make_alone_s)}"


def takes(hot: LineGroup) -> str:
    """Where the making of batches spends its time."""
    inside = f", in {hot.library}" if hot.library else ""
    kind = "line" if hot.is_line else "function"
    return (
        f"the {kind} {hot.what} at {spot(hot.place)} takes {units.share(hot.share)} of making a batch{inside}"
    )
