"""Live forms that put parts of ``hotloop.feed`` in the place of torch's."""

from __future__ import annotations

import importlib
import math
import sys
import weakref
from typing import Any, Final

from hotloop.remedy.live.form import Pace
from hotloop.remedy.live.loader import LoaderForm, changes_of
from hotloop.state.snapshot import EXACT, snapshot

#: Samples that are read again before an epoch.
_READ_AGAIN: Final = 3
_CHANGES: Final = "refused: the dataset, or what it reads, changes between epochs"


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
        other, given = self._loaders.get(loader), _arguments(loader)
        same = ("num_workers", "dataset")
        if other is None or any(getattr(other, name) is not given[name] for name in same):
            feed = importlib.import_module("hotloop.feed")
            other = self._loaders[loader] = feed.Loader(**given)
        iterator: Any = original(other)
        return iterator


class CacheSamples(LoaderForm):
    """``hotloop.feed.cached`` between the loader and its dataset; refused where samples are random.

    What the dataset has at hand is looked at before each epoch; all of it, and some samples, where that is
    another and as often as 2 % of the time allow each. Once they are others the cache is of no more use.
    A random sample that is met later ends it at once. Where torch itself would collate, a batch is gathered
    from the cache in one go. A loader that evaluates gets a cache of its own once there is training, or when
    it is gone through again, unless the memory was given.
    """

    switchable = False  # a cache has to fill first

    def _join(self, module: Any) -> None:
        self._collate = module.default_collate
        self._caches: weakref.WeakKeyDictionary[Any, _Kept] = weakref.WeakKeyDictionary()
        self._latest: _Kept | None = None  # for scripts with a new loader in each epoch
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()  # loaders that evaluate
        self._refused: weakref.WeakSet[Any] = weakref.WeakSet()
        super()._join(module)

        changes = changes_of(self.probe, module)
        changes.make = self._make if changes.make is None else changes.make

    def _make(self, loader: Any, original: Any) -> Any:
        iterator = original(loader)
        if isinstance(loader.dataset, Gathered) and not loader.num_workers:
            importlib.import_module("hotloop.feed.memory").keep_freed_memory()
        return iterator

    def changes(self, loader: Any, settings: dict[str, Any]) -> dict[str, Any] | None:
        """The dataset behind a cache, made at the first iteration."""
        kept = self._caches.get(loader) or self._latest
        if kept is None or kept.dataset is not settings["dataset"]:
            made = self._made(settings["dataset"])
        else:
            made = kept.stopped() or (kept if kept.holds() else _CHANGES)
        if isinstance(made, str):
            self.fail(made)
            self._caches.clear()
            self._latest = None
            return None
        self._caches[loader] = self._latest = made
        return self._behind(made, loader, settings)

    def elsewhere(self, loader: Any, settings: dict[str, Any]) -> dict[str, Any] | None:
        """The same for a loader that evaluates; what speaks against it is said nowhere."""
        again = loader in self._seen or self._latest is not None
        self._seen.add(loader)
        if loader in self._refused or self.value is not None or not again:
            return None
        kept, latest = self._caches.get(loader), self._latest
        if kept is None and latest is not None and latest.dataset is settings["dataset"]:
            kept = latest
        made = self._made(settings["dataset"]) if kept is None else kept
        if not isinstance(made, str) and made.stopped():
            self.say(made.stopped())
        if isinstance(made, str) or made.dataset is not settings["dataset"] or not made.holds():
            self._refused.add(loader)
            self._caches.pop(loader, None)
            return None
        self._caches[loader] = made
        return self._behind(made, loader, settings)

    def status(self) -> str:
        """Also where it ended on the way."""
        kept = [one for one in (self._latest, *self._caches.values()) if one is not None]
        return next(filter(None, map(_Kept.stopped, kept)), "") or super().status()

    def _behind(self, kept: _Kept, loader: Any, settings: dict[str, Any]) -> dict[str, Any]:
        changes: dict[str, Any] = {"dataset": kept.cached}
        if loader._auto_collation and settings["collate_fn"] is self._collate:
            as_it_is = importlib.import_module("hotloop.feed.reading").as_it_is
            changes = {"dataset": Gathered(kept.cached), "collate_fn": as_it_is}
        if settings["worker_init_fn"] is not None:
            changes["worker_init_fn"] = Prepared(settings["worker_init_fn"])
        return changes

    def _made(self, dataset: Any) -> _Kept | str:
        """A cache of a dataset, or why there is none."""
        feed, dist = importlib.import_module("hotloop.feed"), self.torch.distributed
        ranks = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        options = {} if self.value is None else {"max_bytes": self.value}
        try:
            found = feed.cached(dataset, shared=ranks, on_random=_say, **options)
        except (feed.FeedError, ValueError) as error:
            return "not cached: " + str(error).removeprefix("not cached: ")
        except Exception as error:  # the user's: a sampler may hand out more than numbers
            return f"not cached: a sample cannot be read by its number: {type(error).__name__}: {error}"
        return _Kept(dataset, found)


class _Kept:
    """A dataset, how it and some of its samples were when its cache was made, and that cache."""

    def __init__(self, dataset: Any, cached: Any) -> None:
        self.dataset, self.cached = dataset, cached
        self._guard = importlib.import_module("hotloop.feed.determinism")
        self._indices = self._guard.spread(dataset, _READ_AGAIN)
        self._samples = self._guard.read_apart(dataset, self._indices)
        self._state, self._at_hand = snapshot(dataset, EXACT), snapshot(dataset)
        self._look, self._read = Pace(), Pace()

    def holds(self) -> bool:
        """Whether the script has left the dataset as it was and its samples too, none of them random.

        What was None may have been made when a sample needed it first; then the samples are read again.
        """
        looks, before = self._look.due(), self._at_hand
        self._at_hand = snapshot(self.dataset)
        if self.stopped() or (not looks and self._at_hand == before):
            return not self.stopped()
        now, before = snapshot(self.dataset, EXACT), self._state
        self._look.done()
        if now != before.made(now):
            return False
        self._state = now
        if not self._read.due() and now == before:
            return True
        again = self._guard.read_apart(self.dataset, self._indices)
        self._read.done()
        return not any(map(self._guard.differences, self._samples, again))

    def stopped(self) -> str:
        """Where a random sample ended it and what that means, empty while it serves."""
        sample = self.cached.cache.stopped_by
        if sample is None:
            return ""
        hits = self.cached.stats().hits
        before = f"{hits:,} came from the cache, random ones repeated" if hits else "none came from the cache"
        return f"ended at sample {sample}, which is random: before that {before}"


class Gathered:
    """A cached dataset that gives whole batches, as ``default_collate`` would make them.

    In a worker they are put where the training process can map them, as torch's own collation does there.
    """

    def __init__(self, cached: Any) -> None:
        self.cached = cached

    def __len__(self) -> int:
        return len(self.cached)

    def __getitem__(self, index: Any) -> Any:
        return self.cached[index]

    def __getitems__(self, indices: Any) -> Any:
        data = sys.modules["torch.utils.data"]
        return self.cached.gather(indices, _shared if data.get_worker_info() is not None else None)


class Prepared:
    """A ``worker_init_fn`` that finds the script's own dataset in a worker, e.g. to open its file there."""

    def __init__(self, prepare: Any) -> None:
        self._prepare = prepare

    def __call__(self, worker: int) -> None:
        """Set the worker up."""
        info = sys.modules["torch.utils.data"].get_worker_info()
        kept = importlib.import_module("hotloop.feed.cache.dataset").CachedDataset
        found = info.dataset.cached if isinstance(info.dataset, Gathered) else info.dataset
        if isinstance(found, kept):  # not yet: workers that stay are set up for each epoch
            object.__setattr__(info, "dataset", found.dataset)  # torch would not have it changed
        self._prepare(worker)


def _say(why: str) -> None:
    """In whichever process a random sample was met; the main process notes it when it comes to it."""
    sys.stderr.write(f"hotloop: cache-samples ends: {why}; every sample is read anew from here on\n")
    sys.stderr.flush()


def _shared(shape: tuple[int, ...], dtype: Any) -> Any:
    """A tensor in memory that goes to another process without a copy."""
    torch = sys.modules["torch"]
    empty = torch.empty(0, dtype=dtype)
    return empty.new(empty._typed_storage()._new_shared(math.prod(shape), device="cpu")).resize_(shape)


def _arguments(loader: Any) -> dict[str, Any]:
    """The arguments that make a loader with the same settings."""
    same = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "generator")
    more = ("prefetch_factor", "persistent_workers", "in_order", "multiprocessing_context")
    given = {name: getattr(loader, name) for name in (*same, *more) if hasattr(loader, name)}
    given["dataset"] = loader.dataset
    if isinstance(loader.dataset, Gathered):  # the ring gathers into its own memory
        given |= {"dataset": loader.dataset.cached, "collate_fn": None}
    if loader._dataset_kind != 0:  # iterable: it has no sampler to hand over
        return {"batch_size": loader.batch_size, "drop_last": loader.drop_last, **given}
    if loader._auto_collation:
        return {"batch_sampler": loader.batch_sampler, **given}
    return {"batch_size": None, "sampler": loader.sampler, **given}
