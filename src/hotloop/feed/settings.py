"""The settings of feeding, the names people give them, and what each accepts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from hotloop.feed import budget


class WrongValueError(ValueError):
    """What was expected of a value, in words."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A meaning: the argument it becomes, the names it goes by, what it does in words, and its reader."""

    argument: str
    names: tuple[str, ...]
    says: str
    read: Callable[[Any], Any]


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongValueError("true or false")
    return value


def _integer(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise WrongValueError(f"a whole number, {least} or more")
        return value

    return read


def _choice(*choices: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise WrongValueError(" or ".join(map(repr, choices)))
        return value

    return read


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _seconds(value: Any) -> float:
    if not _is_number(value) or value < 0:
        raise WrongValueError("a number of seconds")
    return float(value)


def _workers(value: Any) -> int | str:
    """Workers of one process."""
    return _share_of_cores(value) if isinstance(value, str) else _integer_workers(value)


def _total_workers(value: Any) -> int | str:
    """Workers of one process, where the value is for all processes of this machine."""
    if isinstance(value, str):
        return _share_of_cores(value)
    total = _integer_workers(value)
    return max(1, total // budget.local_world_size()) if total else 0


def _integer_workers(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise WrongValueError("a whole number, 0 or more, 'auto', or a share of the cores as 'cpu*0.6'")
    return value


def _share_of_cores(value: str) -> int | str:
    if value == "auto":
        return "auto"
    share = re.fullmatch(r"cpu\s*\*\s*(\d*\.?\d+)", value)
    if share is None:
        raise WrongValueError("a whole number, 'auto', or a share of the cores as 'cpu*0.6'")
    return max(1, int(budget.usable_cores() * float(share[1])))


def _gib(value: Any) -> int | str:
    if value == "auto":
        return "auto"
    if not _is_number(value) or value <= 0:
        raise WrongValueError("a number of GiB above 0, or 'auto'")
    return int(value * 2**30)


def _size(value: Any) -> Any:
    try:
        budget.memory_budget(value)
    except (ValueError, TypeError):
        raise WrongValueError("a size such as '50GB', a share such as 0.4 or '40%', or 'auto'") from None
    return value


def _of(argument: str, names: str, says: str, read: Callable[[Any], Any]) -> Setting:
    return Setting(argument=argument, names=tuple(names.split()), says=says, read=read)


#: Every setting; the first name is its own. Those of ``Loader`` first.
SETTINGS: Final = (
    _of(
        "num_workers",
        "num_workers workers n_workers num_data_workers workers_per_gpu",
        "workers of each process; 'auto' measures",
        _workers,
    ),
    _of(
        "num_workers",
        "total_workers",
        "workers of all processes of this machine together, divided among them (LOCAL_WORLD_SIZE)",
        _total_workers,
    ),
    _of("prefetch_factor", "prefetch_factor prefetch", "batches each worker makes ahead", _integer(1)),
    _of("pin_memory", "pin_memory", "batches in page-locked memory, so that copies overlap", _flag),
    _of("persistent_workers", "persistent_workers", "workers stay from epoch to epoch", _flag),
    _of(
        "batch_size",
        "batch_size samples_per_gpu imgs_per_gpu batch_size_per_gpu",
        "samples of a batch of one process",
        _integer(1),
    ),
    _of(
        "drop_last",
        "drop_last",
        "leave out a last, smaller batch; of training, unless written under validation",
        _flag,
    ),
    _of("shuffle", "shuffle", "a new order every epoch; of training, unless written under validation", _flag),
    _of("timeout", "timeout", "seconds to wait for a batch, 0 for ever", _seconds),
    _of("in_order", "in_order", "batches in the order of the sampler", _flag),
    _of("worker_method", "worker_method", "what a worker is", _choice("auto", "process", "thread", "beside")),
    _of("seed_by", "seed_by", "what a sample's random numbers depend on", _choice("worker", "sample")),
    _of(
        "cache",
        "use_ram_cache cache_data use_cache ram_cache",
        "keep samples in memory: one cache for all workers and processes of the machine",
        _flag,
    ),
    _of(
        "max_bytes",
        "cache_size_gb max_memory_gb",
        "the most the cache may take in GiB (2^30 bytes), in all and not per process; or 'auto'",
        _gib,
    ),
    _of(
        "max_bytes", "cache_bytes max_bytes", "the most the cache may take: '50GB', 0.4, '40%', 'auto'", _size
    ),
    _of(
        "policy",
        "cache_policy policy",
        "which samples the cache keeps",
        _choice("keep", "lru", "cost", "clairvoyant"),
    ),
    _of(
        "accumulation_steps",
        "gradient_accumulation_steps accumulation_steps accumulative_counts accumulate_grad_batches",
        "micro-batches per optimizer step",
        _integer(1),
    ),
)

BY_NAME: Final[Mapping[str, Setting]] = MappingProxyType(
    {name: setting for setting in SETTINGS for name in setting.names}
)
#: Arguments that are no loader's.
CACHE: Final = frozenset({"cache", "max_bytes", "policy"})
ACCUMULATION: Final = "accumulation_steps"
LOADER: Final = tuple(
    dict.fromkeys(s.argument for s in SETTINGS if s.argument not in CACHE and s.argument != ACCUMULATION)
)
