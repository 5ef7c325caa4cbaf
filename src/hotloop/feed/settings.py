"""The settings of feeding, the names people give them, and what each accepts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from hotloop.feed import budget

_WORKERS: Final = "a whole number, 0 or more, 'auto', or a share of the cores as 'cpu*0.6'"
_SIZE: Final = "a size such as '50GB', a share such as 0.4 or '40%', or 'auto'"


class WrongValueError(ValueError):
    """What was expected of a value, in words."""


class Setting(NamedTuple):
    """A meaning: the argument it becomes, the names it goes by, what it does in words, and its reader."""

    argument: str
    names: tuple[str, ...]
    says: str
    read: Callable[[Any], Any]


def _is_int(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _checked(
    is_right: Callable[[Any], bool], expected: str, made: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not is_right(value):
            raise WrongValueError(expected)
        return made(value)

    return read


def _as_it_is(value: Any) -> Any:
    return value


def _choice(*choices: str) -> Callable[[Any], Any]:
    return _checked(lambda value: value in choices, " or ".join(map(repr, choices)), _as_it_is)


def _workers(value: Any) -> int | str:
    """Workers of one process."""
    if value == "auto" or _is_int(value, 0):
        return value  # type: ignore[no-any-return]
    share = re.fullmatch(r"cpu\s*\*\s*(\d*\.?\d+)", value) if isinstance(value, str) else None
    if share is None:
        raise WrongValueError(_WORKERS)
    return max(1, int(budget.usable_cores() * float(share[1])))


def _total_workers(value: Any) -> int | str:
    """Workers of one process, where the value is for all processes of this machine."""
    workers = _workers(value)
    if isinstance(value, str) or not workers:
        return workers
    return max(1, value // budget.local_world_size())  # type: ignore[no-any-return]


def _size(value: Any) -> Any:
    try:
        budget.memory_budget(value)
    except (ValueError, TypeError):
        raise WrongValueError(_SIZE) from None
    return value


_flag = _checked(lambda value: isinstance(value, bool), "true or false", _as_it_is)
_positive = _checked(lambda value: _is_int(value, 1), "a whole number, 1 or more", _as_it_is)
_seconds = _checked(lambda value: _is_number(value) and value >= 0, "a number of seconds", float)
_gib = _checked(
    lambda value: value == "auto" or (_is_number(value) and value > 0),
    "a number of GiB above 0, or 'auto'",
    lambda value: value if value == "auto" else int(value * 2**30),
)

#: Argument, names (the first is its own), meaning, reader; those of ``Loader`` first.
_TABLE: Final = (
    ("num_workers", "num_workers workers n_workers num_data_workers workers_per_gpu",
     "workers of each process; 'auto' measures", _workers),
    ("num_workers", "total_workers",
     "workers of all processes of this machine together, divided among them (LOCAL_WORLD_SIZE)",
     _total_workers),
    ("prefetch_factor", "prefetch_factor prefetch", "batches each worker makes ahead", _positive),
    ("pin_memory", "pin_memory", "batches in page-locked memory, so that copies overlap", _flag),
    ("persistent_workers", "persistent_workers", "workers stay from epoch to epoch", _flag),
    ("batch_size", "batch_size samples_per_gpu imgs_per_gpu batch_size_per_gpu",
     "samples of a batch of one process", _positive),
    ("drop_last", "drop_last",
     "leave out a last, smaller batch; of training, unless written under validation", _flag),
    ("shuffle", "shuffle", "a new order every epoch; of training, unless written under validation", _flag),
    ("timeout", "timeout", "seconds to wait for a batch, 0 for ever", _seconds),
    ("in_order", "in_order", "batches in the order of the sampler", _flag),
    ("seed_by", "seed_by", "what a sample's random numbers depend on", _choice("worker", "sample")),
    ("cache", "use_ram_cache cache_data use_cache ram_cache",
     "keep samples in memory: one cache for all workers and processes of the machine", _flag),
    ("max_bytes", "cache_size_gb max_memory_gb",
     "the most the cache may take in GiB (2^30 bytes), in all and not per process; or 'auto'", _gib),
    ("max_bytes", "cache_bytes max_bytes",
     "the most the cache may take: '50GB', 0.4, '40%', 'auto'", _size),
    ("accumulation_steps",
     "gradient_accumulation_steps accumulation_steps accumulative_counts accumulate_grad_batches",
     "micro-batches per optimizer step", _positive),
)  # fmt: skip

SETTINGS: Final = tuple(
    Setting(argument, tuple(names.split()), says, read) for argument, names, says, read in _TABLE
)
BY_NAME: Final = {name: setting for setting in SETTINGS for name in setting.names}
#: Arguments that are no loader's.
CACHE: Final = frozenset({"cache", "max_bytes"})
ACCUMULATION: Final = "accumulation_steps"
LOADER: Final = tuple(
    dict.fromkeys(s.argument for s in SETTINGS if s.argument not in CACHE and s.argument != ACCUMULATION)
)
