"""Settings of a loader and its cache from what was measured and what the machine has: a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from hotloop import units
from hotloop.feed import budget as machine
from hotloop.feed import guide_rules, throughput
from hotloop.feed.throughput import INLINE, BatchCost, Setting

#: Tried in this order where the times of batches vary; else the first.
PREFETCH_FACTORS: Final = (2, 3, 4, 6, 8)
#: Loading that costs less than this share of an iteration is not worth memory.
_WORTH: Final = 0.02
_MOST_WORKERS: Final = 128


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What feeding one rank costs. Seconds are means; a batch is one rank's.

    ``batch_spread`` is the standard deviation of the seconds of a batch in a worker over their mean: above
    0.1 the batches' times vary enough that prefetching matters. ``receive_s`` and ``overhead_s`` are what a
    batch costs on its way through hotloop's Loader; torch's own takes about 1 ms and 0.5 s/GB more.
    """

    batch_size: int
    sample_s: float
    sample_cpu_s: float
    step_s: float
    collate_s: float = 0.0
    batch_bytes: int = 0
    num_samples: int = 0
    worker_bytes: int = 200 << 20
    batch_spread: float = 0.0
    step_cpu_s: float = 0.0
    receive_s: float = 1e-4
    overhead_s: float = 1e-4
    gil_free: bool = False
    accelerator: bool = False

    @property
    def cost(self) -> BatchCost:
        """The same for one batch."""
        return BatchCost(
            fetch_s=self.batch_size * self.sample_s + self.collate_s,
            fetch_cpu_s=self.batch_size * self.sample_cpu_s + self.collate_s,
            step_s=self.step_s,
            step_cpu_s=self.step_cpu_s,
            receive_s=self.receive_s,
            overhead_s=self.overhead_s,
            spread=self.batch_spread,
        )

    @property
    def dataset_bytes(self) -> int:
        """All samples, as large as in a batch."""
        return self.batch_bytes * self.num_samples // max(1, self.batch_size)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What the ranks of this machine share: cores (maybe a fraction) and bytes of memory."""

    cores: float
    memory_bytes: int
    ranks: int = 1

    @classmethod
    def here(cls) -> Budget:
        """This machine's, within its cgroups and limits, for the ranks torchrun started."""
        free = machine.usable_memory_bytes() - machine.headroom_bytes()
        return cls(
            cores=machine.usable_cores(world=1), memory_bytes=max(0, free), ranks=machine.local_world_size()
        )

    @property
    def rank_cores(self) -> float:
        """One rank's part of the cores."""
        return self.cores / self.ranks

    @property
    def rank_memory_bytes(self) -> int:
        """One rank's part of the memory."""
        return self.memory_bytes // self.ranks


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Settings of one rank's loader and the machine's cache, each with its reason in words."""

    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    persistent_workers: bool
    worker_method: str
    cache_bytes: int
    iteration_s: float
    reasons: Mapping[str, str]

    def arguments(self) -> dict[str, Any]:
        """The arguments of torch's DataLoader among them."""
        names = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        shown = {**self.arguments(), "worker_method": self.worker_method}
        shown["cache_bytes"] = units.size(self.cache_bytes)
        return "\n".join(f"{name:<18} {value!s:<10} {self.reasons[name]}" for name, value in shown.items())


def autosize(
    measured: Measured,
    budget: Budget,
    *,
    rule: str = "measured",
    prefetch_rule: str = "measured",
    cache_rule: str = "measured",
) -> Sizes:
    """Settings for a rank; ``"measured"`` computes them, other rules are those of ``guide_rules`` by name.

    Waiting datasets may get more workers than there are cores. Whatever the rule, workers and the batches
    ahead of them stay within the rank's memory.

    Raises:
        ValueError: a rule of that name does not exist, or a measurement is not positive where it must be.
    """
    _check(measured, budget)
    workers = _workers(measured, budget, rule)
    chosen, why_prefetch = _prefetch(measured, workers.setting, prefetch_rule)
    chosen, bounded = _within_memory(measured, budget, chosen)
    iteration_s = throughput.iteration_s(measured.cost, chosen, budget.rank_cores)
    cache_bytes, why_cache = _cache(measured, budget, chosen, iteration_s, cache_rule)
    processes = chosen.method == "process"
    pin, why_pin = _pin(measured)
    reasons = {
        "num_workers": workers.reason + bounded,
        "prefetch_factor": why_prefetch,
        "pin_memory": why_pin,
        "persistent_workers": "starting them again every epoch costs"
        if processes
        else "no processes to keep",
        "worker_method": _why_method(chosen),
        "cache_bytes": why_cache,
    }
    return Sizes(
        num_workers=chosen.num_workers,
        prefetch_factor=chosen.prefetch_factor if chosen.num_workers else None,
        pin_memory=pin,
        persistent_workers=processes,
        worker_method="thread" if chosen.method == "thread" else "process",
        cache_bytes=cache_bytes,
        iteration_s=iteration_s,
        reasons=MappingProxyType(reasons),
    )


def candidates(measured: Measured, budget: Budget) -> list[Setting]:
    """Every setting worth a thought, what takes least first."""
    found = [INLINE]
    if measured.gil_free:
        most = max(1, int(budget.rank_cores))
        found += [Setting("thread", workers, 2) for workers in range(1, most + 1)]
    most = max(1, min(_MOST_WORKERS, budget.rank_memory_bytes // max(1, measured.worker_bytes)))
    found += throughput.process_settings(measured.cost, most=most, prefetch_factors=PREFETCH_FACTORS)
    return [s for s in found if _memory(measured, s) <= budget.rank_memory_bytes or s == INLINE]


class _Workers(NamedTuple):
    setting: Setting
    reason: str


def _workers(measured: Measured, budget: Budget, rule: str) -> _Workers:
    if rule != "measured":
        return _by_rule(measured, budget, rule)
    cost, cores = measured.cost, budget.rank_cores
    chosen, predicted_s = throughput.best(cost, cores, candidates(measured, budget))
    inline_s = throughput.iteration_s(cost, INLINE, cores)
    batch, step = units.duration(cost.fetch_s), units.duration(cost.step_s)
    if chosen == INLINE:
        reason = f"a batch takes {batch}, a step {step}: passing batches on would cost more than it saves"
        return _Workers(chosen, reason)
    reason = f"a batch takes {batch}, a step {step}: {units.duration(predicted_s)} an iteration"
    reason += f" instead of {units.duration(inline_s)} without workers"
    if cost.fetch_cpu_s + cost.step_cpu_s > 0.98 * cores * predicted_s:
        reason += f"; more cannot help, {cores:g} cores are busy"
    return _Workers(chosen, reason)


def _by_rule(measured: Measured, budget: Budget, rule: str) -> _Workers:
    if rule not in guide_rules.WORKERS:
        raise ValueError(f"no rule {rule!r} for workers: {_names(guide_rules.WORKERS)}")
    named = guide_rules.WORKERS[rule]
    workers = max(0, named.workers(int(budget.cores), budget.ranks))
    setting = Setting("process", workers, named.prefetch_factor) if workers else INLINE
    return _Workers(setting, f"rule {rule!r} ({named.source}): {named.says}")


def _prefetch(measured: Measured, setting: Setting, rule: str) -> tuple[Setting, str]:
    if setting == INLINE:
        return setting, "nothing is made ahead without workers"
    if rule != "measured":
        if rule not in guide_rules.PREFETCH:
            raise ValueError(f"no rule {rule!r} for prefetching: {_names(guide_rules.PREFETCH)}")
        named = guide_rules.PREFETCH[rule]
        factor = named.factor(measured.num_samples, setting.num_workers)
        return setting._replace(prefetch_factor=factor), f"rule {rule!r} ({named.source}): {named.says}"
    if setting.prefetch_factor > PREFETCH_FACTORS[0]:
        return setting, f"batches vary by {units.share(measured.batch_spread)}: more ahead evens them out"
    return setting, "more ahead would only take memory"


def _within_memory(measured: Measured, budget: Budget, setting: Setting) -> tuple[Setting, str]:
    fitting = setting.within(budget.rank_memory_bytes, measured.worker_bytes, measured.batch_bytes)
    if fitting == setting:
        return setting, ""
    return fitting, f"; {setting} would not fit {units.size(budget.rank_memory_bytes)}"


def _memory(measured: Measured, setting: Setting) -> int:
    return setting.memory_bytes(measured.worker_bytes, measured.batch_bytes)


def _cache(
    measured: Measured, budget: Budget, setting: Setting, iteration_s: float, rule: str
) -> tuple[int, str]:
    if rule != "measured":
        if rule not in guide_rules.CACHE:
            raise ValueError(f"no rule {rule!r} for the cache: {_names(guide_rules.CACHE)}")
        named = guide_rules.CACHE[rule]
        return named.cache_bytes(budget.memory_bytes), f"rule {rule!r} ({named.source}): {named.says}"
    # What hits must deliver: c* = 1 - what misses sustain / what the step consumes (FIELDNOTES 1.3).
    enough = 1 - (measured.step_s + measured.receive_s) / iteration_s if iteration_s else 0.0
    if enough <= _WORTH:
        return 0, "loading keeps pace with the step: a cache would save no time"
    if not measured.dataset_bytes:
        return 0, "the sizes of batch and dataset are not known"
    room = max(0, budget.memory_bytes - budget.ranks * _memory(measured, setting))
    wanted = min(measured.dataset_bytes, int(measured.dataset_bytes * min(1.0, enough + _WORTH)))
    share = units.share(enough)
    if wanted <= room:
        return wanted, f"with {share} of the dataset cached, loading keeps pace with the step"
    return (
        room,
        f"{share} of the dataset ({units.size(wanted)}) would be needed to keep pace; this is the room",
    )


def _pin(measured: Measured) -> tuple[bool, str]:
    if measured.accelerator:
        return True, "page-locked batches are copied to the device beside the step"
    return False, "no accelerator to copy to"


def _why_method(setting: Setting) -> str:
    if setting.method == "inline":
        return "made in the training thread"
    if setting.method == "thread":
        return "making a batch leaves the interpreter free: threads need no copy between processes"
    return "making a batch holds the interpreter: only processes run beside training"


def _check(measured: Measured, budget: Budget) -> None:
    if measured.batch_size < 1 or budget.ranks < 1 or not budget.cores > 0:
        raise ValueError("batch_size, ranks and cores must be positive")
    seconds = ("sample_s", "sample_cpu_s", "step_s", "collate_s", "step_cpu_s", "receive_s", "overhead_s")
    negative = [name for name in seconds if not getattr(measured, name) >= 0]
    if negative:
        raise ValueError(f"{', '.join(negative)} must not be negative")


def _names(rules: Mapping[str, object]) -> str:
    return ", ".join(["measured", *rules])
