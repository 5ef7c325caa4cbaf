"""``input/single-process``: batches are made in the training process while nothing else runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hotloop.diagnose import repeating
from hotloop.diagnose.costs import Feed, feed_of, offers, one_batch_each
from hotloop.diagnose.evidence import Evidence, cause, rule
from hotloop.diagnose.groups import hottest, sampled_interval, seconds_of
from hotloop.diagnose.inline import Inline, inline_input
from hotloop.diagnose.making import at_best, of_making, takes
from hotloop.diagnose.rules.input.workers import worker_limit
from hotloop.diagnose.source import text_of
from hotloop.findings import Finding
from hotloop.units import duration, rate, share


@rule("input/single-process", costed=True)
def check(evidence: Evidence) -> Iterator[Finding]:
    """Speak where worker processes would hide the wait, as far as cores and transport allow."""
    feed = feed_of(evidence)
    if feed is not None:
        # With an iterator for each batch workers would make others that nobody takes.
        if feed.workers == 0 and not one_batch_each(feed.loader):
            yield from _loader(evidence, feed)
        return
    inline = inline_input(evidence)
    # Batches made in less are not worth handing over from another thread or process.
    ahead = inline is not None and inline.hot is None and not inline.rollout
    if inline is not None and ahead and inline.wait_s >= evidence.limits.hand_over_s:
        yield _inline(evidence, inline)


def _loader(evidence: Evidence, feed: Feed) -> Iterator[Finding]:
    workers = feed.best_workers(worker_limit(feed, evidence))
    saved = feed.saved_by_workers(workers)
    if saved * evidence.steps.exposed("data_wait") < evidence.limits.mention_ratio * evidence.steps.step_s:
        return
    spot = hottest(feed.loader.lines, feed.loader.lines_total_s)
    seen = [line for line in evidence.steps.lines if line.role == "input"]  # of a stream they are not its own
    hot = spot or hottest(seen, seconds_of(seen))
    again = repeating.repeated(evidence, hot, feed.loader)
    yield of_making(
        evidence,
        feed,
        saved_s=saved,
        message=(
            f"The DataLoader has num_workers=0: the step waits {duration(feed.wait_s)} while the training "
            "process makes each batch itself."
        ),
        advice=_written(feed.loader.dataset_written, workers)
        or (
            f"{_opening(feed)} {_asked(feed, workers)}; with them {at_best(feed, workers)}."
            f"{_sharding(evidence, feed)}"
        ),
        numbers=[f"{rate(feed.cores)} cores to use", *([takes(spot)] if spot is not None else [])],
        where=feed.loader.where,
        remedies=(*offers(feed.loader, "num-workers"), *repeating.remedies(again)),
        data={
            "num_workers": workers,
            "predicted_step_s": feed.at(workers),
            "make_s": feed.make_s,
            **repeating.data(again),
            **({"function_saves_s": feed.saved_by_make(hot.share)} if hot is not None and again else {}),
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


def _opening(feed: Feed) -> str:
    """Set it, once what the dataset holds open is not shared by workers: a file's position, a connection."""
    held = feed.loader.dataset.get("open_file")
    if not held:
        return "Set"
    return (
        f"What the dataset holds open ({held}) must not be shared by processes: open it in each worker, when "
        "it is first asked for a sample, and set"
    )


def _inline(evidence: Evidence, inline: Inline) -> Finding:
    steps = evidence.steps
    return cause(
        evidence,
        message=(
            f"Batches are made in the training process, one after the other, while nothing else runs: "
            f"{duration(inline.wait_s)} of each step."
        ),
        advice=(
            "Make the next batch while the model computes: a torch Dataset behind a DataLoader with "
            "workers, or a thread with a short queue (hotloop.feed.Background) where the work waits or "
            "releases the GIL. What the loop itself fills (a replay buffer) cannot be "
            "made ahead: hold it in arrays, and take a batch by one index of each."
        ),
        numbers=[
            f"making batches takes {duration(inline.wait_s)} of each step "
            f"({share(inline.wait_s / steps.step_s)})",
            f"no DataLoader feeds the training loop; the statement is {inline.statement}",
            *inline.top,
        ],
        cost_s=inline.saved_s,
        ci95=sampled_interval(inline.saved_s, inline.num_samples),
        where=inline.statement,
        remedies=(),
    )
