"""Live forms that put parts of ``hotloop.feed`` in the place of torch's. The only ones that import it."""

from __future__ import annotations

import importlib
import weakref
from typing import Any

from hotloop.probe.identity import Known
from hotloop.remedy.live.loader import LoaderForm, changes_of
from hotloop.remedy.live.persistent import state_of


class RingLoader(LoaderForm):
    """``hotloop.feed.Loader`` with the script's settings iterates in place of the script's DataLoader."""

    switchable = False

    def _join(self, module: Any) -> None:
        self._base = module.DataLoader
        self._loaders: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        changes_of(self.probe, module).make = self._make
        super()._join(module)

    def changes(self, loader: Any, settings: dict[str, Any]) -> dict[str, Any] | None:
        """No setting changes; whether another loader can stand in."""
        if type(loader).__iter__ is not self._base.__iter__ and type(loader) is not self._base:
            self.say(f"{type(loader).__name__} iterates in its own way")
            return None
        return {}

    def _make(self, loader: Any, original: Any) -> Any:
        if not self.active or self.failed or type(loader) is not self._base:
            return original(loader)
        other = self._loaders.get(loader)
        if other is None or other.num_workers != loader.num_workers:
            feed = importlib.import_module("hotloop.feed")
            other = self._loaders[loader] = feed.Loader(**_arguments(loader))
        iterator: Any = original(other)
        return iterator


class CacheSamples(LoaderForm):
    """``hotloop.feed.cached`` between the loader and its dataset; refused where samples are random.

    The dataset is looked at before each epoch: once the script changed it the cache is of no more use.
    """

    switchable = False  # a cache has to fill first

    def _join(self, module: Any) -> None:
        # Of each cache (it lives as long as its loader): the dataset, and how it was at that time.
        self._caches: Known[tuple[Any, list[Any]]] = Known()
        super()._join(module)

    def changes(self, loader: Any, settings: dict[str, Any]) -> dict[str, Any] | None:
        """The dataset behind a cache, made at the first iteration."""
        dataset = loader.dataset
        known = self._caches.get(dataset)
        if known is not None:
            plain, before = known
            if state_of(plain) == before:
                return {}
            self.fail("refused: the dataset changes between epochs")
            return {"dataset": plain}
        feed = importlib.import_module("hotloop.feed")
        try:
            found = feed.cached(dataset, **({} if self.value is None else {"max_bytes": self.value}))
        except (feed.FeedError, ValueError) as error:
            self.fail(f"not cached: {error}")
            return None
        self._caches.put(found, (dataset, state_of(dataset)))
        return {"dataset": found}


def _arguments(loader: Any) -> dict[str, Any]:
    """The arguments that make a loader with the same settings."""
    same = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "generator")
    more = ("prefetch_factor", "persistent_workers", "in_order", "multiprocessing_context")
    given = {name: getattr(loader, name) for name in (*same, *more) if hasattr(loader, name)}
    if loader._dataset_kind != 0:  # iterable: it has no sampler to hand over
        return {
            "dataset": loader.dataset,
            "batch_size": loader.batch_size,
            "drop_last": loader.drop_last,
            **given,
        }
    if loader._auto_collation:
        return {"dataset": loader.dataset, "batch_sampler": loader.batch_sampler, **given}
    return {"dataset": loader.dataset, "batch_size": None, "sampler": loader.sampler, **given}
