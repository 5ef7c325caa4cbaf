"""The feeding library: the fast parts between a dataset and a training step. Torch and numpy only.

Names are loaded when they are first used, so that importing one part does not import the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hotloop.feed.accumulation import Accumulation as Accumulation
    from hotloop.feed.background import Background as Background
    from hotloop.feed.baking.baked import Baked as Baked
    from hotloop.feed.baking.writer import bake as bake
    from hotloop.feed.budget import memory_budget as memory_budget
    from hotloop.feed.budget import usable_cores as usable_cores
    from hotloop.feed.cache.cache import CacheStats as CacheStats
    from hotloop.feed.cache.cache import SampleCache as SampleCache
    from hotloop.feed.cache.dataset import CachedDataset as CachedDataset
    from hotloop.feed.cache.dataset import cached as cached
    from hotloop.feed.config import ConfigError as ConfigError
    from hotloop.feed.config import FeedConfig as FeedConfig
    from hotloop.feed.converting import stacked as stacked
    from hotloop.feed.determinism import check_deterministic as check_deterministic
    from hotloop.feed.errors import BakeError as BakeError
    from hotloop.feed.errors import CacheError as CacheError
    from hotloop.feed.errors import DamagedBakeError as DamagedBakeError
    from hotloop.feed.errors import FeedError as FeedError
    from hotloop.feed.errors import NotPlainError as NotPlainError
    from hotloop.feed.errors import StaleBakeError as StaleBakeError
    from hotloop.feed.errors import WorkerError as WorkerError
    from hotloop.feed.loader import Loader as Loader
    from hotloop.feed.planning import CachePlan as CachePlan
    from hotloop.feed.planning import plan_cache as plan_cache
    from hotloop.feed.prefetch import DevicePrefetcher as DevicePrefetcher
    from hotloop.feed.pretransforming import NotVectorizable as NotVectorizable
    from hotloop.feed.pretransforming import pretransform as pretransform
    from hotloop.feed.saving import async_save as async_save
    from hotloop.feed.saving import wait_for_saves as wait_for_saves
    from hotloop.feed.schedule import ScaledLR as ScaledLR
    from hotloop.feed.stages import split_after as split_after
    from hotloop.feed.throughput import expected_hit_rate as expected_hit_rate

#: Where every public name lives.
_EXPORTS = {
    name: f"hotloop.feed.{module}"
    for module, names in {
        "accumulation": "Accumulation",
        "background": "Background",
        "baking.baked": "Baked",
        "baking.writer": "bake",
        "budget": "memory_budget usable_cores",
        "cache.cache": "CacheStats SampleCache",
        "cache.dataset": "CachedDataset cached",
        "config": "ConfigError FeedConfig",
        "converting": "stacked",
        "determinism": "check_deterministic",
        "errors": "BakeError CacheError DamagedBakeError FeedError NotPlainError StaleBakeError WorkerError",
        "loader": "Loader",
        "planning": "CachePlan plan_cache",
        "prefetch": "DevicePrefetcher",
        "pretransforming": "NotVectorizable pretransform",
        "saving": "async_save wait_for_saves",
        "schedule": "ScaledLR",
        "stages": "split_after",
        "throughput": "expected_hit_rate",
    }.items()
    for name in names.split()
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_EXPORTS[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
