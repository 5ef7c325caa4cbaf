"""``input/slow-sample``: one line or function makes the samples slow, and the step waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs, repeating, rollouts, says
from hotloop.diagnose.causes import in_framework
from hotloop.diagnose.collating import in_collate, per_sample_lines
from hotloop.diagnose.converting import by_rows
from hotloop.diagnose.costs import Feed
from hotloop.diagnose.cropping import crop
from hotloop.diagnose.crowding import crowd
from hotloop.diagnose.discovery import EDIT
from hotloop.diagnose.elementwise import by_elements
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.hotspots import Hotspot, drawing_lines, hottest, making_lines, seconds_of
from hotloop.diagnose.inline import Inline, filled, inline_input
from hotloop.diagnose.reading import decodes, opens, scales, sleeps
from hotloop.diagnose.rollouts import Rollout
from hotloop.diagnose.source import sampler_classes
from hotloop.findings import Finding
from hotloop.measure.environments import STEP_THEM
from hotloop.measure.lines import package_of
from hotloop.measure.steps import LineCost, LoaderUse

ID = "input/slow-sample"
EFFORT = EDIT
COSTED = True

#: Locks that processes share.
_LOCKS = "multiprocessing.synchronize"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Name the line that takes most of the making, at the part of the wait it causes."""
    feed = costs.feed(evidence)
    if feed is None:
        yield from _inline(evidence)
        return
    yield from _order(evidence, feed)
    loader = feed.loader
    spot = hottest(per_sample_lines(loader), loader.lines_total_s)
    if spot is None or spot.share < evidence.limits.hot_line_ratio:
        return
    if in_collate(loader, spot.lines[0], spot.share):
        return
    cost = feed.saved_by_make(spot.share) * costs.exposed_ratio(evidence.steps, "data_wait")
    cut = crop(evidence, loader, before=spot.place)
    lock = _lock(spot, evidence.limits.hot_line_ratio)
    again = repeating.repeated(evidence, spot, loader)
    kept = ("cache-samples",) if repeating.draws(evidence, spot, loader) else ("cache-samples", "bake")
    yield Finding(
        id=ID,
        message=(
            f"{spot.what} at {says.at(spot.place)} takes {units.share(spot.share)} of making a batch, "
            f"and each step waits {units.duration(feed.wait_s)} for data."
        ),
        advice=_of_lock(lock)
        if lock is not None and feed.workers > 1
        else _advice(evidence, spot, feed.crowd.computing(spot.on_cpu_ratio), loader)
        + repeating.advice(again),
        evidence=(
            says.waits(feed),
            says.makes(feed),
            says.spot(spot),
            *((cut.words,) if cut else ()),
            f"num_workers={feed.workers} on {units.rate(feed.cores)} cores",
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=spot.place,
        remedies=(
            *(
                ("pretransform",)
                if scales(spot.source)
                else (*by_elements(evidence, spot.place), *by_rows(evidence, spot.place))
            ),
            *costs.offers(loader, *kept),
            *repeating.remedies(again),
        ),
        data={
            "share_of_make": spot.share,
            "on_cpu_ratio": spot.on_cpu_ratio,
            "library": spot.library,
            **repeating.data(again),
        },
    )


def _order(evidence: Evidence, feed: Feed) -> Iterator[Finding]:
    """The user's sampler, where drawing the indices of every batch holds up the step."""
    steps = evidence.steps
    cost = feed.saved_by_drawing() * costs.exposed_ratio(steps, "data_wait")
    if cost < evidence.limits.worth_fixing_ratio * steps.step_s:
        return
    lines = drawing_lines(steps, sampler_classes(evidence, feed.loader))
    spot = hottest(lines, seconds_of(lines))
    if spot is None:
        return
    beside = ", in the training process beside its workers" if feed.workers else ""
    yield Finding(
        id=ID,
        message=(
            f"{spot.what} at {says.at(spot.place)} takes {units.share(spot.share)} of the "
            f"{units.duration(feed.draw_s)} in which the sampler draws the indices of each batch{beside}."
        ),
        advice=(
            "Draw the indices of a whole epoch at once, on arrays, and prepare once what does not change "
            "between batches."
        ),
        evidence=(
            f"drawing indices takes {units.duration(feed.draw_s)} of each step "
            f"({units.share(feed.draw_s / steps.step_s)})",
            says.waits(feed),
            says.makes(feed),
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(steps, cost, "data_wait"),
        where=spot.place,
        data={"on_cpu_ratio": spot.on_cpu_ratio, "library": spot.library},
    )


def _lock(spot: Hotspot, least: float) -> LineCost | None:
    """The line that waits for a lock of several processes, if it takes this share of the spot."""
    lines = [line for line in spot.lines if line.library.startswith(_LOCKS)]
    lock = max(lines, key=lambda line: line.seconds, default=None)
    return lock if lock is not None and lock.seconds >= least * seconds_of(spot.lines) else None


def _of_lock(lock: LineCost) -> str:
    return (
        f"The workers wait for each other at {says.at(lock.place)}: what the lock guards is done by one at a "
        "time. Open in each worker what it guards (when it is first asked for a sample), and take the lock "
        "out."
    )


def _advice(evidence: Evidence, spot: Hotspot, computing: float, loader: LoaderUse | None = None) -> str:
    if computing < 0.3 or sleeps(spot.source):
        return (
            f"Take the waiting out of {says.at(spot.place)}: fetch many samples at once, keep what was "
            "fetched, or prepare it "
            "before training; workers hide what remains."
        )
    if opens(spot.source):
        return (
            f"Open once what {says.at(spot.place)} opens for every sample: in each worker, when it is first "
            "asked for a sample, and keep it open."
        )
    if decodes(spot.source, spot.library):
        return (
            f"Decode less at {says.at(spot.place)}: store the images once at the size that is trained on, or "
            "decoded, as arrays; decode at a fraction of the size (PIL's draft(), "
            "cv2.IMREAD_REDUCED_COLOR_2); workers share what remains."
        )
    once = "do it once before training and store the result"
    if repeating.draws(evidence, spot, loader):
        once = "do once before training what comes before the first random draw"
    if spot.nature == "python":
        return (
            f"Replace the Python work at {says.at(spot.place)} by one array operation per batch, or {once}."
        )
    return (
        f"Make {says.at(spot.place)} cheaper: {once}, do it per batch instead of per sample, or do it on the "
        "device."
    )


def _inline(evidence: Evidence) -> Iterator[Finding]:
    inline = inline_input(evidence)
    if inline is None or inline.hot is None:
        return
    if inline.behind is not None:
        yield _behind_thread(evidence, inline, inline.behind, inline.hot)
        return
    spot = inline.hot
    rolled = inline.rollout
    share = max(rolled.inside_share, rolled.asking_share) if rolled is not None else spot.share
    cost = share * inline.wait_s
    plays = package_of(spot.lines[0].within) in STEP_THEM
    collects = inline.rollout is None and (plays or in_framework(evidence.steps, spot.place))
    ratio = units.share(inline.wait_s / evidence.steps.step_s)
    # Of a rollout nobody knows what more environments at once would save: a small one is left as it is.
    plain = not (inline.handed_over or inline.rollout or collects)
    again = repeating.repeated(evidence, spot, None) if plain else ""
    small = (rolled is not None or collects) and cost < evidence.limits.medium_ratio * evidence.steps.step_s
    yield Finding(
        id=ID,
        message=_collected(spot, inline.wait_s) if collects else _inline_message(inline, spot),
        advice=rollouts.ADVICE
        if collects
        else _inline_advice(evidence, inline, spot) + repeating.advice(again),
        evidence=(
            f"making batches takes {units.duration(inline.wait_s)} of each step ({ratio}), in the training "
            "process"
            if not inline.handed_over
            else f"the wait takes {units.duration(inline.wait_s)} of each step ({ratio})",
            says.spot(spot),
            *(
                (f"made in the background it would save {units.duration(inline.saved_s)} of each step",)
                if not inline.handed_over and inline.rollout is None and not collects
                else ()
            ),
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=spot.place,
        remedies=(
            *by_elements(evidence, spot.place),
            *by_rows(evidence, spot.place),
            *repeating.remedies(again),
            *(() if filled(evidence, inline) else ("background-batches",)),
        )
        if plain
        else (),
        severity="info" if small else "medium",
        data={
            "share_of_make": spot.share,
            "statement": str(inline.statement or ""),
            **repeating.data(again),
            **({"severity_fixed": True} if small else {}),
        },
    )


def _behind_thread(evidence: Evidence, inline: Inline, loader: LoaderUse, asking: Hotspot) -> Finding:
    """A loop that waits for a thread which takes the batches of a loader."""
    limits = evidence.limits
    workers, busy = int(loader.settings.get("num_workers") or 0), loader.busy_ratio or 0.0
    spot = hottest(making_lines(evidence.steps, loader), loader.lines_total_s)
    if busy < limits.busy_workers_ratio or (spot is not None and spot.share < limits.hot_line_ratio):
        spot = None
    idle = busy < limits.busy_workers_ratio / 2
    wait = units.duration(inline.wait_s)
    return Finding(
        id=ID,
        message=(
            f"Each step waits {wait} at {says.at(asking.place)} for the thread that takes the batches of the "
            f"DataLoader{f' built at {says.at(loader.where)}' if loader.where else ''}; its workers are busy "
            f"{units.share(busy)} of the time"
            + (f", most of it {spot.what} at {says.at(spot.place)}." if spot is not None else ".")
        ),
        advice=(f"{_advice(evidence, spot, spot.on_cpu_ratio, loader)} " if spot is not None else "")
        + ("" if idle else "Make a batch cheaper, or raise num_workers where cores are free. ")
        + _WITHOUT_THREAD,
        evidence=(
            f"the wait takes {wait} of each step ({units.share(inline.wait_s / evidence.steps.step_s)})",
            f"num_workers={workers}, each busy {units.share(busy)}; {units.rate(evidence.cores)} cores",
            *((says.spot(spot),) if spot is not None else ()),
        ),
        cost_s_per_step=inline.wait_s,
        cost_ci95=costs.phase_interval(evidence.steps, inline.wait_s, "data_wait"),
        where=asking.place if spot is None else spot.place,
        data={"num_workers": workers, "busy_ratio": busy},
    )


_WITHOUT_THREAD = (
    "Workers make batches ahead without a thread: take them in the training loop itself, and leave what "
    "the thread does with each to collate_fn."
)


def _collected(spot: Hotspot, wait_s: float) -> str:
    library = package_of(spot.lines[0].within) or "The framework"
    return (
        f"{library} plays its environment at {says.at(spot.place)} for {units.duration(wait_s)} of each "
        "step: the policy is asked for one action after the other."
    )


def _inline_message(inline: Inline, spot: Hotspot) -> str:
    wait = units.duration(inline.wait_s)
    if inline.handed_over:
        return (
            f"Each step waits {wait} at {says.at(spot.place)} for a batch that another thread or process "
            "makes too slowly."
        )
    if inline.rollout is not None:
        return _rollout_message(inline.rollout, spot, wait)
    return (
        f"{spot.what} at {says.at(spot.place)} takes {units.share(spot.share)} of making a batch, which the "
        f"training loop does itself for {wait} of each step."
    )


def _rollout_message(rollout: Rollout, spot: Hotspot, wait: str) -> str:
    stepped, hot = says.at(rollout.place), says.at(spot.place)
    whole = f"of the {wait} that each step's rollout takes"
    if rollout.in_environment:
        most = f", most of it {spot.what} at {hot}" if spot.place != rollout.place else ""
        return (
            f"The environment stepped at {stepped} takes {units.share(rollout.inside_share)} {whole}{most}."
        )
    return (
        f"The policy is asked for one answer after the other: {units.share(rollout.asking_share)} {whole}, "
        f"most of it {spot.what} at {hot}; the environment stepped at {stepped} takes "
        f"{units.share(rollout.inside_share)}."
    )


def _inline_advice(evidence: Evidence, inline: Inline, spot: Hotspot) -> str:
    if inline.handed_over:
        return (
            "Make what fills the queue cheaper, or use worker processes (a DataLoader with num_workers): "
            "threads of one process run Python code one at a time."
        )
    if inline.rollout is not None:
        return rollouts.ADVICE
    if buffer := filled(evidence, inline):
        return says.of_buffer(buffer)
    return _advice(evidence, spot, crowd(evidence, (evidence.steps.pid,)).computing(spot.on_cpu_ratio))
