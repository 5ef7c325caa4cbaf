"""What batches cost under a setting: taken in one by one, summed up, compared."""

from __future__ import annotations

import math
import statistics
from typing import Final, NamedTuple

from hotloop.feed.throughput import BatchCost, Method, Setting

#: Costs changed when an iteration takes this share longer.
_SLOWER: Final = 0.1


class Fed(NamedTuple):
    """One batch as the training thread met it. Seconds."""

    wait_s: float  # from asking for the batch to having it
    step_s: float  # from having the batch before to asking for this one
    fetch_s: float  # wall time of whoever made it
    fetch_cpu_s: float
    num_bytes: int
    method: Method  # how it was made
    num_workers: int  # that are at work: started, not retired
    main_cpu_s: float = 0.0  # CPU time of the training process during ``step_s``


class Block:
    """Batches under one setting."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.fed: list[Fed] = []
        self.seconds = 0.0

    def add(self, fed: Fed) -> None:
        """Take one more in."""
        self.fed.append(fed)
        self.seconds += fed.wait_s + fed.step_s

    @property
    def wait_s(self) -> float:
        """Mean seconds the training thread waited."""
        return statistics.fmean(fed.wait_s for fed in self.fed)

    @property
    def step_s(self) -> float:
        """Median seconds between batches: a checkpoint or an evaluation in between is not the step."""
        return statistics.median(fed.step_s for fed in self.fed)

    @property
    def iteration_s(self) -> float:
        """Seconds from batch to batch."""
        return self.wait_s + self.step_s

    @property
    def fetch_s(self) -> float:
        """Mean seconds to make a batch."""
        return statistics.fmean(fed.fetch_s for fed in self.fed)

    @property
    def error(self) -> float:
        """Standard error of :attr:`iteration_s`, as a share of it; batches of one round count as one."""
        each = max(1, self.setting.num_workers)
        rounds = [
            sum([fed.wait_s for fed in self.fed[begin : begin + each]]) / each
            for begin in range(0, len(self.fed) - each + 1, each)
        ]
        if len(rounds) < 3:
            return 1.0
        return statistics.stdev(rounds) / math.sqrt(len(rounds)) / max(self.iteration_s, 1e-9)

    def cost(self) -> BatchCost:
        """What a batch costs, for the closed form."""
        fetch_s, step_s = self.fetch_s, self.step_s
        waits = sorted(fed.wait_s for fed in self.fed)
        # Where batches stood ready, the shortest waits are what taking one costs.
        ready = self.setting.method == "process" and fetch_s < 0.8 * step_s * self.setting.num_workers
        times = tuple(fed.fetch_s / max(fetch_s, 1e-12) for fed in self.fed)
        return BatchCost(
            fetch_s=fetch_s,
            fetch_cpu_s=statistics.fmean(fed.fetch_cpu_s for fed in self.fed),
            step_s=step_s,
            step_cpu_s=statistics.median(fed.main_cpu_s for fed in self.fed),
            receive_s=waits[len(waits) // 10] if ready else BatchCost.receive_s,
            spread=statistics.pstdev(times),
            seen=times if len(times) >= 48 else (),
        )


def has_changed(settled: Block, block: Block) -> bool:
    """Whether an iteration takes clearly longer than when the setting was chosen."""
    slower = block.iteration_s / max(settled.iteration_s, 1e-9) - 1
    return slower > _SLOWER + 2 * math.hypot(settled.error, block.error)
