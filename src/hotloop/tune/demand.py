"""What making batches and stepping want of the cores, and whether it was others who took them.

Work that waits for a core wants one as much as work that has it. On a machine that others use part of that
waiting is theirs, but no worker more gets cores that are taken: what is wanted counts whole, so that
settings that want more than there are gain nothing, and a doubt says what the run's own wants do not explain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hotloop import units
from hotloop.diagnose import costs
from hotloop.diagnose.costs import Feed
from hotloop.diagnose.evidence import Evidence

#: Fewer samples of a process, of lines, or seconds of them, say nothing about what it wants of the cores.
_CPU_SAMPLES: Final = 2
_LINE_SAMPLES: Final = 5
_LINE_SECONDS: Final = 0.5
#: What waits for cores of others for this share of its time was slowed by them.
_CROWDED: Final = 0.25
#: How a doubt about it begins.
OTHERS: Final = "others used the machine"


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Cores wanted while making a batch (0 to 1) and during a step (of all its threads)."""

    make_cores: float
    step_cores: float
    doubts: tuple[str, ...]


def demand(evidence: Evidence, feed: Feed, busy_s: float) -> Demand:
    """Of a run whose step works ``busy_s`` seconds on average."""
    making, stepping = _making(feed), _stepping(evidence, feed, busy_s)
    wanted = feed.workers * making + stepping
    got = min(1.0, feed.cores / wanted) if wanted > 0 else 1.0  # with the machine to itself
    makers, main = min(1.0, feed.got / got), min(1.0, feed.main_got / got)
    maker = "workers" if feed.workers else "the thread that makes batches"
    doubts = [
        f"{OTHERS}: {who} got {units.share(part * got)} of the core time wanted"
        for who, wants, part in ((maker, making, makers), ("the step's threads", stepping, main))
        if wants * (1 - part) >= _CROWDED
    ]
    return Demand(make_cores=making, step_cores=stepping, doubts=tuple(doubts[:1]))


def _making(feed: Feed) -> float:
    """Share of making in which it has a core or waits for one."""
    loader = feed.loader
    counted, made = loader.worker_stats.get("cpu_s", 0.0), float(loader.make_s.sum())
    if feed.workers and loader.lines_total_s < _LINE_SECONDS and counted > 0 and made > 0:
        return min(1.0, counted / made / feed.got)
    return min(1.0, feed.computing_ratio)


def _stepping(evidence: Evidence, feed: Feed, busy_s: float) -> float:
    if busy_s <= 0:
        return 0.0
    torch = evidence.steps.facts.get("torch") or {}
    threads = min(evidence.cores, float(torch.get("threads") or evidence.cores))
    return min(max(1.0, threads), _wanted_s(evidence, feed, busy_s) / busy_s)


def _wanted_s(evidence: Evidence, feed: Feed, busy_s: float) -> float:
    """Core seconds that the training process wants per step, without making batches of its own."""
    steps = evidence.steps
    measured = costs.process_cores(evidence, steps.pid, least=_CPU_SAMPLES)
    if measured is not None:
        making = feed.make_cpu_s if feed.workers == 0 else 0.0
        return max(0.0, measured * (busy_s + feed.wait_s) - making) / feed.main_got
    sampled = [line for line in steps.lines if line.phase in costs.BUSY_PHASES]
    weight = sum(line.seconds for line in sampled)
    if sum(line.num_samples for line in sampled) >= _LINE_SAMPLES and weight > 0:
        return busy_s * sum(line.seconds * line.on_cpu_ratio for line in sampled) / weight
    return feed.step_cpu_s
