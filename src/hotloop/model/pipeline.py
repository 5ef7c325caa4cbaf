"""The model's nouns: what a run's pipeline costs, a setup to ask about, and what is predicted for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Limit = Literal["input", "transfer", "device", "cores"]

#: Batches ahead in all that even few workers are thought of with.
AHEAD: Final = 64
#: Descriptors of a worker in the training process: a queue's two ends, and what its end is told by.
WORKER_FILES: Final = 4


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Settings of one rank's loader and of the machine; None leaves what the run had.

    ``cores`` and ``ranks`` are of the whole machine, ``step_s`` the mean of the step's own work (another
    device). ``hit_rate`` is the share of samples that come out of a cache of ``cache_bytes``.
    """

    num_workers: int | None = None
    prefetch_factor: int | None = None
    persistent_workers: bool | None = None
    in_order: bool | None = None
    cores: float | None = None
    ranks: int | None = None
    step_s: float | None = None
    hit_rate: float = 0.0
    cache_bytes: float = 0.0

    def __post_init__(self) -> None:
        for name, least in {"num_workers": 0, "prefetch_factor": 1, "ranks": 1}.items():
            if (value := getattr(self, name)) is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        for name in ("cores", "step_s"):
            if (amount := getattr(self, name)) is not None and not amount > 0:
                raise ValueError(f"{name} must be positive, not {amount}")
        if not 0 <= self.hit_rate <= 1:
            raise ValueError(f"hit_rate lies in [0, 1], not {self.hit_rate}")


@dataclass(frozen=True, kw_only=True)
class EpochCost:
    """What an epoch costs beside its batches, in seconds of the training thread.

    ``start_s`` and ``worker_start_s`` (for each worker) are constructing an iterator, ``wake_s`` is from then
    until a new worker begins its first batch (and what that takes beyond its others), ``stop_s`` shutting
    workers down. The first step beside new workers takes ``slow_s`` longer: pages shared with a forked
    process are copied when written. Persistent workers pay ``start_s`` only, no workers ``inline_s``.
    """

    start_s: float = 0.0005
    worker_start_s: float = 0.010  # fork; FIELDNOTES 3.5: 9, 14, 40 ms for 1, 2, 4 workers
    wake_s: float = 0.020
    stop_s: float = 0.010
    slow_s: float = 0.0
    inline_s: float = 0.0001  # benchmarks/recovery: 0.07 - 0.2 ms

    def woken_s(self, workers: int, cores: float, recorded: Setup) -> float:
        """``wake_s`` of so many workers, told by those ``recorded``: it computes (a spawned one imports),
        and those started first do while others are.
        """
        had, on = recorded.num_workers or 0, (recorded.cores or 1.0) / (recorded.ranks or 1)
        alone_s = self.wake_s
        if had > on:
            alone_s = min(alone_s, (self.wake_s + had * self.worker_start_s) * on / had)
        return max(alone_s, workers * (alone_s / cores - self.worker_start_s))

    def between_s(self, workers: int, persistent: bool) -> float:
        """Seconds of the training thread between two epochs."""
        if workers == 0:
            return self.inline_s
        if persistent:
            return self.start_s
        return self.start_s + workers * self.worker_start_s + self.stop_s + self.slow_s


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Host memory in bytes: the training process, one worker's own, one batch; per rank.

    ``room_bytes``: what a cache of samples may take that is given no size. ``shared_bytes`` and
    ``open_files`` are what batches on their way may take of shared memory and of a process's descriptors.
    """

    main_bytes: float
    worker_bytes: float
    batch_bytes: float
    measured: bool  # a worker's own was measured, not assumed
    room_bytes: float = np.inf
    shared_bytes: float = np.inf
    open_files: float = np.inf
    batch_tensors: int = 1

    def carries(self, workers: int, prefetch: int) -> bool:
        """Whether the batches that so many workers have ready at once find shared memory and descriptors."""
        ahead = workers * prefetch
        files = workers * WORKER_FILES + ahead * self.batch_tensors
        fit = (ahead + 1) * self.batch_bytes <= self.shared_bytes and files <= self.open_files
        return fit or not workers


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """What one rank's pipeline costs, with the cores to itself. Seconds per batch unless said otherwise.

    ``make_s`` is a worker's; ``ship_s`` of it is what a batch for another process costs, in shared memory
    that is new each time, and what the training thread saves where it makes its own. ``step_s`` is the
    step's own work.
    """

    make_s: Floats  # [n] as measured, in the order they were begun
    step_s: Floats  # [m] in order
    ship_s: float
    make_cores: float  # wanted of a core while making a batch: 0 waits, 1 computes
    step_cores: float  # wanted by all threads of a step
    collate_s: float
    cached_s: float | None = None  # what a batch takes whose samples are all cached; None: as collate_s
    receive_s: float  # of the training thread, for a batch that is ready
    latency_s: float  # from a finished batch until the training thread can have it
    overhead_s: float  # of a worker between two batches
    device_s: float = 0.0  # an accelerator's busy time, 0 where the step runs on the host
    transfer_s: float = 0.0  # host-to-device copies that the step waits for, part of step_s
    epoch: EpochCost = field(default_factory=EpochCost)
    batches_per_epoch: float = np.inf
    other_s: float = 0.0  # of a step: evaluation, checkpoint, epochs
    evaluation_wait_s: float = 0.0  # of other_s, what evaluation waits for batches that a cache would have
    batch_samples: float = 0.0
    num_samples: int = 0
    recorded: Setup  # every field set
    anew: bool = False  # the dataset changes between epochs: only fresh workers see it
    alone: bool = False  # the dataset is written to while it is gone through: no worker would see it
    iterable: bool = False  # the dataset is a stream: every worker runs all of it, or a share it chooses
    measured_s: float  # seconds per step of the run, everything between its first and last step
    waited_s: float = 0.0  # what a step of the run waited for its batch

    doubts: tuple[str, ...] = ()  # why predictions are less sure, in words
    memory: Memory

    def complete(self, setup: Setup) -> Setup:
        """The setup with what it leaves open as the run had it."""
        names = ("num_workers", "prefetch_factor", "persistent_workers", "in_order", "cores", "ranks")
        left = {name: getattr(self.recorded, name) for name in names if getattr(setup, name) is None}
        return replace(setup, **left)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a setup is predicted to do, per rank; epochs, evaluation and checkpoints included.

    ``low`` and ``high`` bound ``s_per_step`` with 95 %: how much the measured times vary, and how far the
    model was off where it was checked. ``confirm``: only the ranking is to be trusted, measure it; ``doubts``
    say why.
    """

    s_per_step: float
    low: float
    high: float
    samples_per_s: float  # of all ranks together; 0 where the batch size is not known
    host_bytes: float  # of all ranks together
    limit: Limit
    confirm: bool = False
    doubts: tuple[str, ...] = ()
