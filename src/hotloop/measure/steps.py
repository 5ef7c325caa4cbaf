"""Steps: one row per step, one column per phase, and the views that diagnosis reads beside the table.

Seconds everywhere unless the name says otherwise; times are since the process started. Views with nothing to
show are empty or None: a rule that finds its view empty stays silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from hotloop.findings import Place
from hotloop.phases import COLUMN, PHASES
from hotloop.record.recording import Process, Recording
from hotloop.record.samples import at_times, total
from hotloop.source.written import Written

Floats = npt.NDArray[np.float64]
Role = Literal["input", "forward", "targets", "logging", "checkpoint", "evaluation", "viewer", "other"]
Nature = Literal["python", "native", "waiting", "unknown"]


@dataclass(frozen=True, kw_only=True)
class StackCost:
    """What one stack took in a phase. Frames, outermost first: (function, file or module, line)."""

    phase: str
    frames: tuple[tuple[str, str, int], ...]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class LineCost:
    """Sampled time of one user source line, within one phase.

    ``seconds`` is the total over the training span (start-up lines: over start-up). ``library`` is the
    innermost library module nearly all of it was spent in (``sklearn.preprocessing._data``), "" where it
    was spent in the line itself. ``within`` is the innermost function of the package the line calls that at
    least half of it went through (``lightning.pytorch.trainer.trainer:Trainer._run``), "" unknown.
    ``statement`` is the line of the training loop it was reached from,
    ``callers`` are the user's lines that usually call its function, the nearest first. ``entered`` is the
    user's line first reached from ``statement``, by itself or through a framework.
    """

    place: Place
    phase: str
    seconds: float
    num_samples: int
    role: Role = "other"
    #: python: interpreter or many tiny calls; native: long calls on a CPU; waiting: off CPU
    nature: Nature = "unknown"
    on_cpu_ratio: float = 1.0
    library: str = ""
    within: str = ""
    statement: Place | None = None
    source: str = ""  # the text of the line
    callers: tuple[Place, ...] = ()
    entered: Place | None = None
    calls_module: bool = False  # most of it is in a module that it calls


@dataclass(frozen=True, kw_only=True)
class SiteCost:
    """Exact time of one call site of an observed operation."""

    place: Place | None
    operation: str  # e.g. "item", "torch.save", "image", "all_reduce", "to"
    count: int  # inside the training span
    seconds: float  # exclusive, inside the training span
    num_bytes: int = 0
    flags: Mapping[str, float] = field(default_factory=dict)  # e.g. {"pinned": share, "non_blocking": share}
    in_step: bool = True  # most of its calls fall inside training steps (not evaluation, checkpoint)


@dataclass(frozen=True, kw_only=True)
class Padding:
    """What an attention mask shows of sequences that are all padded to one length: means of noted batches."""

    length: int
    longest: float  # of a batch
    real: float  # tokens of a sequence
    num_batches: int


@dataclass(frozen=True, kw_only=True)
class LoaderUse:
    """One DataLoader and how it was used. Arrays and means are over its batches in the training span."""

    id: int
    role: Literal["train", "evaluation", "unused"]
    #: where its settings are given: where it was constructed, or what a library constructed it from
    where: Place | None
    #: in effect: batch_size, num_workers, prefetch_factor, pin_memory, persistent_workers, shuffle,
    #: drop_last, in_order, multiprocessing_context, sampler, collate_fn, class, iterable
    settings: Mapping[str, Any]
    dataset: Mapping[str, Any]  # class, module, len, file, line of __getitem__ where known
    #: attributes of the dataset that had changed from an iterator to the next: only fresh workers see that
    dataset_changes: tuple[str, ...] = ()
    #: those that changed while it was gone through, and that samples are made of: no worker would see that
    dataset_written: tuple[str, ...] = ()
    num_iterators: int = 0
    batches_per_epoch: float = 0.0
    length: int | None = None  # batches that an iterator would give, None where nobody knows
    anew: bool = False  # what its iterators read is not surely the same: it was built again, or grew
    num_batches: int = 0
    wait_s: Floats = field(default_factory=lambda: np.zeros(0))  # each fetch, seconds
    ready: Floats = field(default_factory=lambda: np.zeros(0))  # batches ready when asked (nan unknown)
    iter_s: Floats = field(default_factory=lambda: np.zeros(0))  # each iterator start
    first_batch_s: Floats = field(default_factory=lambda: np.zeros(0))  # first fetch of each iterator
    shutdown_s: Floats = field(default_factory=lambda: np.zeros(0))
    #: making one batch (in worker or main), seconds
    make_s: Floats = field(default_factory=lambda: np.zeros(0))
    sample_s: float = 0.0  # mean per sample, collate excluded
    slowest_sample_s: Floats = field(default_factory=lambda: np.zeros(0))  # slowest sample of each batch
    collate_s: float = 0.0  # mean per batch
    batch_bytes: float = 0.0
    batch_fields: tuple[Mapping[str, Any], ...] = ()  # {"path": "x", "dtype":, "shape":, "bytes":}
    padding: Padding | None = None  # of the mask with the longest padding; None where lengths differ
    unused_fields: tuple[str, ...] = ()
    make_on_cpu_ratio: float | None = None  # share of make time the maker was on a CPU; None unknown
    #: share of the training span a worker spends making batches; None without workers
    busy_ratio: float | None = None
    deliver_s: float | None = None  # median fetch when a batch was ready: transport on the receiving side
    lines: tuple[LineCost, ...] = ()  # hottest user lines while making batches; seconds are over all makers
    lines_total_s: float = 0.0  # sampled seconds in making batches, over all makers
    slowest_lines: tuple[LineCost, ...] = ()  # the same within the slowest sample of each batch
    #: read_bytes, rchar_bytes, major_faults, minor_faults, io_wait_s, cpu_s, summed
    worker_stats: Mapping[str, float] = field(default_factory=dict)
    num_worker_processes: int = 0  # distinct worker pids seen
    by: str = ""  # the function of an installed package that constructed it, "" where the user's code did
    maker: str = ""  # what the user's code calls there (``create_loader``), if ``where`` is that call
    own: bool = False  # no DataLoader of torch's: an object of another class that its iterators were given


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A span of time outside ordinary stepping: one evaluation, one checkpoint."""

    start_s: float
    end_s: float
    after_step: int
    place: Place | None = None
    builds_graphs: bool = False  # of an evaluation: most forwards of modules with parameters built graphs
    paused_s: float = 0.0  # between its pieces

    @property
    def seconds(self) -> float:
        """Length in seconds, of its pieces."""
        return self.end_s - self.start_s - self.paused_s


@dataclass(frozen=True, kw_only=True)
class ModuleCost:
    """A submodule's share of forward and backward in the module window."""

    name: str
    cls: str
    forward_share: float
    backward_share: float
    depth: int
    num_params: int = 0


@dataclass(frozen=True, kw_only=True)
class DeviceUse:
    """An accelerator's time over the training span, from events (and kernels, where ``--profile`` ran)."""

    busy_ratio: float
    idle_s_by_phase: Mapping[str, float]  # idle time charged to the host phase that caused it
    launch_bound_ratio: float | None = None
    kernels: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting in effect, beside what was configured."""

    name: str
    in_effect: Any
    configured: Any = None
    where: str | None = None  # "configs/a.yaml:12", "--num-workers", or the place in source
    differs: bool = False  # the configured value was meant for this and is not in effect
    by: Written | None = None  # what decided otherwise, where it is known
    sources: tuple[Configured, ...] = ()  # every configured value of this meaning


@dataclass(frozen=True, kw_only=True)
class Configured:
    """One value that a file, an argument or a module of constants gave a setting."""

    source: str  # "argparse", "yaml", "json", "toml", "python", "hydra"
    key: str
    value: Any
    where: str
    default: bool = False  # an argument's default that nobody gave
    differs: bool = False  # it is not in effect


@dataclass(frozen=True, kw_only=True)
class Steps:
    """One training process, measured."""

    rank: int
    pid: int
    start_s: Floats  # [n] step starts
    end_s: Floats  # [n]
    phases: Floats  # [n, len(PHASES)] exclusive seconds; a row sums to end - start
    samples: Floats  # [n] samples per step, nan unknown
    steady: npt.NDArray[np.bool_]  # [n] False for warm-up and for steps with a compile in them
    totals: Mapping[str, float]  # phase -> seconds over the whole process; sums to wall_s less unaccounted_s
    #: phase -> seconds over the training span (first batch asked for -> last step done)
    span_totals: Mapping[str, float]
    wall_s: float
    span: tuple[float, float]  # training span
    unaccounted_s: float = 0.0
    num_updates: int = 0
    num_epochs: int = 0
    backwards_per_update: float = 1.0
    #: "interpreter", "import torch", "import NAME", "other imports", "setup", "first batch", "compile"
    startup: Mapping[str, float] = field(default_factory=dict)
    stacks: tuple[StackCost, ...] = ()
    lines: tuple[LineCost, ...] = ()  # sampled lines of the main thread, sorted by seconds
    loaders: tuple[LoaderUse, ...] = ()
    evaluations: tuple[Interval, ...] = ()
    checkpoints: tuple[Interval, ...] = ()
    #: "sync", "transfer", "collective", "logging", "checkpoint", "socket", "again", each sorted by seconds
    sites: Mapping[str, tuple[SiteCost, ...]] = field(default_factory=dict)
    #: of the core time the training thread wanted, what it got; every on_cpu_ratio is divided by its own
    core_ratio: float = 1.0
    gc_s: float = 0.0  # of collections from the first steady step on
    gc_count: int = 0
    gc_s_by_phase: Mapping[str, float] = field(default_factory=dict)  # gc_s by the phase it fell into
    compile_s: float = 0.0  # inside the training span; without a step, in all
    left_out_s: float = 0.0  # of the span and of wall_s, counted nowhere: see measure.stepping
    partly: bool = False  # most of its rows were not read: figures per step are true, counts are not
    compiles_at: tuple[int, ...] = ()  # steps in which a compile ran
    graph_breaks: int = 0
    modules: tuple[ModuleCost, ...] = ()
    device: DeviceUse | None = None
    losses: Floats = field(default_factory=lambda: np.zeros(0))  # seen loss values, nan/inf kept
    loss_steps: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    scaler_steps: int = 0
    scaler_skips: int = 0
    settings: tuple[Setting, ...] = ()
    #: merged notes: torch, modules, optimizers, flags (see recording.md)
    facts: Mapping[str, Any] = field(default_factory=dict)
    collective_in_backward_s: float = 0.0  # per step, DDP's own: communication not hidden behind backward
    source_loop: Place | None = None  # the training loop: function and line where the steps are driven
    framework_call: Place | None = None  # the user's line in which a framework runs the whole training

    @property
    def num_steps(self) -> int:
        """How many steps were seen."""
        return len(self.start_s)

    @property
    def span_s(self) -> float:
        """Length of the training span in seconds, without what is left out."""
        return self.span[1] - self.span[0] - self.left_out_s

    @property
    def step_s(self) -> float:
        """Seconds per step over the training span, everything between steps included."""
        return self.span_s / max(1, self.num_steps)

    @property
    def columns(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """The table of steps: start, end and every phase in seconds, samples, whether a step is steady."""
        return {
            "start_s": self.start_s,
            "end_s": self.end_s,
            "samples": np.nan_to_num(self.samples).astype(np.int32),
            "steady": self.steady,
            **{phase: self.phases[:, i] for i, phase in enumerate(PHASES)},
        }

    def phase(self, name: str) -> Floats:
        """[n] seconds of one phase in each step."""
        return self.phases[:, COLUMN[name]]

    def per_step(self, name: str) -> float:
        """Seconds per step of one phase over the training span."""
        return self.span_totals.get(name, 0.0) / max(1, self.num_steps)

    def share(self, name: str) -> float:
        """Share of one phase in the training span."""
        return self.span_totals.get(name, 0.0) / self.span_s if self.span_s > 0 else 0.0

    def exposed(self, phase: str) -> float:
        """Share of a phase's host time that the device did not hide; 1 on a CPU or without a device clock."""
        seconds = self.span_totals.get(phase, 0.0)
        if not self.facts.get("accelerator") or self.device is None or seconds <= 0:
            return 1.0
        return float(np.clip(self.device.idle_s_by_phase.get(phase, 0.0) / seconds, 0.0, 1.0))

    @property
    def waits_inside(self) -> tuple[str, ...]:
        """Phases in which a rank may be waiting for others: DistributedDataParallel's ranks meet in backward,
        those that gather sharded parameters in forward too.
        """
        sharded = any(module.get("sharded") for module in self.facts.get("modules", ()))
        return ("forward", "backward", "collective") if sharded else ("backward", "collective")

    @property
    def own_s(self) -> float:
        """Seconds per step outside the phases in which ranks meet: a rank's own work."""
        return max(0.0, self.step_s - sum(map(self.per_step, self.waits_inside)))

    @cached_property
    def driving(self) -> tuple[Place, ...]:
        """The training loop, and every line of the user's that torch's optimizers are reached through."""
        updates = [one for one in self.lines if one.library.startswith("torch.optim")]
        through = (at for one in updates for at in (one.place, *one.callers))
        return tuple(at for at in (self.source_loop, *dict.fromkeys(through)) if at)

    def train_loader(self) -> LoaderUse | None:
        """The loader that drives training: the training loader with the most batches."""
        used = [loader for loader in self.loaders if loader.role == "train"]
        return max(used, key=lambda loader: loader.num_batches, default=None)


# What other programs did on the machine while a process trained


#: Less sampled time that a thread could run says nothing of the share in which it did.
_CORE_TIME_LEAST_S: Final = 0.1
#: Fewer samples of the machine say nothing.
_LEAST_SAMPLES: Final = 3


def core_time_got(
    sampled: Iterable[Mapping[str, Floats]], start: float = -np.inf, end: float = np.inf
) -> float:
    """Of the time between two times in which the first threads of sampled processes could run, the share in
    which they did; 1 where that was not sampled.
    """
    ran = waited = 0.0
    for columns in sampled:
        if "main_cpu_s" in columns and "core_wait_s" in columns:
            seconds = np.asarray(columns["t_s"], float)
            inside = (seconds >= start) & (seconds <= end) & np.isfinite(columns["core_wait_s"])
            if inside.any():
                ran += float(np.ptp(columns["main_cpu_s"][inside]))
                waited += float(np.ptp(columns["core_wait_s"][inside]))
    return ran / (ran + waited) if ran + waited > _CORE_TIME_LEAST_S else 1.0


def span_s(recording: Recording, process: Process, steps: Steps) -> tuple[float, float]:
    """The training span of a process in seconds since the command started."""
    offset = (process.start_ns - recording.start_ns) / 1e9
    return steps.span[0] + offset, steps.span[1] + offset


def others_cores(recording: Recording, start: float, end: float) -> float | None:
    """Cores that others than this command kept busy between two times; None with too few samples."""
    at, used = recording.system.get("t_s"), recording.system.get("cpu_ratio")
    if at is None or used is None:
        return None
    own = at_times(total(recording.process_system.values(), "cpu_ratio", whole=False), at)
    cores = float(recording.machine.get("cpu_count") or 1)
    inside = (at >= start) & (at <= end) & np.isfinite(used)
    if inside.sum() < _LEAST_SAMPLES:
        return None
    return max(0.0, float((used[inside] * cores - own[inside]).mean()))


def others_beside(recording: Recording, start: float, end: float) -> float | None:
    """Of these the cores that this run would surely have had: not those beyond its affinity and quota. None
    where workers lived too shortly to be sampled: what they used would count as others'.
    """
    taken = others_cores(recording, start, end)
    workers = {worker.pid for rank in recording.ranks for worker in rank.workers}
    if taken is None or not workers <= set(recording.process_system):
        return None
    there = float(recording.machine.get("cpu_count") or 1)
    elsewhere = max(0.0, there - float(recording.machine.get("cores") or there))
    return max(0.0, taken - elsewhere)
