"""``input/single-process``: batches are made in the training process while nothing else runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs, repeating, says
from hotloop.diagnose.costs import Feed
from hotloop.diagnose.discovery import ARGUMENT
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.hotspots import hottest, seconds_of
from hotloop.diagnose.inline import Inline, filled, inline_input
from hotloop.diagnose.source import kept_open, text_of
from hotloop.findings import Finding

ID = "input/single-process"
EFFORT = ARGUMENT
COSTED = True


def check(evidence: Evidence) -> Iterator[Finding]:
    """Speak where worker processes would hide the wait, as far as cores and transport allow."""
    feed = costs.feed(evidence)
    if feed is not None:
        yield from _loader(evidence, feed)
        return
    inline = inline_input(evidence)
    # Batches made in less are not worth handing over from another thread or process.
    if inline is not None and inline.hot is None and inline.wait_s >= evidence.limits.hand_over_s:
        yield _inline(evidence, inline)


def _loader(evidence: Evidence, feed: Feed) -> Iterator[Finding]:
    if feed.workers > 0:
        return
    workers = feed.best_workers(worker_limit(feed, evidence))
    cost = feed.saved_by_workers(workers) * costs.exposed_ratio(evidence.steps, "data_wait")
    if cost < evidence.limits.mention_ratio * evidence.steps.step_s:
        return
    spot = hottest(feed.loader.lines, feed.loader.lines_total_s)
    seen = [line for line in evidence.steps.lines if line.role == "input"]  # of a stream they are not its own
    again = repeating.repeated(evidence, spot or hottest(seen, seconds_of(seen)), feed.loader)
    yield Finding(
        id=ID,
        message=(
            f"The DataLoader has num_workers=0: the step waits {units.duration(feed.wait_s)} while the "
            "training "
            "process makes each batch itself."
        ),
        advice=_written(feed.loader.dataset_written, workers)
        or (
            f"{_opening(evidence, feed)} {_asked(feed, workers)}; with them a step "
            "without its pauses is "
            f"predicted to take {units.duration(max(feed.at(workers), feed.busy_s))} instead of "
            f"{units.duration(feed.step_s)}.{_sharding(evidence, feed)}{says.paced(spot)}"
        ),
        evidence=(
            says.waits(feed),
            says.makes(feed),
            f"{units.rate(feed.cores)} cores to use",
            *((says.spot(spot),) if spot is not None else ()),
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=feed.loader.where,
        remedies=(*costs.offers(feed.loader, "num-workers"), *repeating.remedies(again)),
        data={
            "num_workers": workers,
            "predicted_step_s": feed.at(workers),
            "make_s": feed.make_s,
            **repeating.data(again),
        },
    )


def _asked(feed: Feed, workers: int) -> str:
    """The arguments; only torch's own DataLoader keeps its workers, while nothing changes that they see."""
    if feed.loader.own:
        return f"num_workers={workers} on the loader"
    if changes := feed.loader.dataset_changes:
        return (
            f"num_workers={workers} on the DataLoader, and leave persistent_workers away "
            f"({', '.join(changes)} of the dataset changed between epochs, which only fresh workers see)"
        )
    return f"num_workers={workers} and persistent_workers=True on the DataLoader"


def _written(names: tuple[str, ...], workers: int) -> str:
    """Of a dataset that changes while it is gone through: workers would make other samples."""
    if not names:
        return ""
    return (
        f"Leave num_workers=0 as long as samples are made of {', '.join(names)} of the dataset, which "
        "changes while it is gone through: each worker would have its own. Make a sample of its index alone, "
        "or hold what the loop writes in shared memory (tensor.share_memory_()); then "
        f"num_workers={workers} would help."
    )


def _sharding(evidence: Evidence, feed: Feed) -> str:
    """What an IterableDataset needs before it may have workers."""
    if not feed.loader.settings.get("iterable"):
        return ""
    dataset = feed.loader.dataset
    if "get_worker_info" in text_of(evidence, str(dataset.get("file") or "")):
        return " Its stream is then split between them as its get_worker_info() does, in another order."
    if re.search(r"/(site|dist)-packages/", str(dataset.get("file"))):
        return f" See that {dataset.get('class')} splits its stream between them, or each reads all of it."
    return (
        " Split the stream between them by torch.utils.data.get_worker_info(), or every worker reads all of "
        "it."
    )


def _opening(evidence: Evidence, feed: Feed) -> str:
    """Set it, once what the dataset holds open is not shared by workers: a file's position, a connection."""
    kept, held = kept_open(evidence, feed.loader), feed.loader.dataset.get("open_file")
    if held == "" or (kept is None and not held):
        return "Set"
    what = f"What {says.at(kept)} opens" if kept is not None else f"What the dataset holds open ({held})"
    return (
        f"{what} must not be shared by processes: open it in each worker, when it is first asked for a "
        "sample, and set"
    )


def _inline(evidence: Evidence, inline: Inline) -> Finding:
    buffer = filled(evidence, inline)
    return Finding(
        id=ID,
        message=(
            f"Batches are made in the training process, one after the other, while nothing else runs: "
            f"{units.duration(inline.wait_s)} of each step."
        ),
        advice=says.of_buffer(buffer)
        if buffer
        else (
            "Make the next batch while the model computes: a torch Dataset behind a DataLoader with "
            "workers, or a thread with a short queue where the work waits or releases the GIL. What needs "
            "the model's answers (a rollout) cannot be made ahead: step all environments at once instead."
        ),
        evidence=(
            f"making batches takes {units.duration(inline.wait_s)} of each step "
            f"({units.share(inline.wait_s / evidence.steps.step_s)})",
            f"no DataLoader feeds the training loop; the statement is {inline.statement}",
            *inline.top,
        ),
        cost_s_per_step=inline.saved_s,
        cost_ci95=costs.phase_interval(evidence.steps, inline.saved_s, "data_wait"),
        where=inline.statement,
        remedies=() if buffer else ("background-batches",),
    )


def worker_limit(feed: Feed, evidence: Evidence) -> int:
    """The most workers worth thinking of: the cores, or for waiting work more, up to the limit."""
    limits = evidence.limits
    cores = max(1, int(feed.cores))
    if feed.computing_ratio > limits.waiting_on_cpu_ratio:
        return cores
    return max(cores, min(limits.max_workers, limits.max_workers_per_core * cores))
