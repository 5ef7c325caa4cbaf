"""A dataset behind a cache: the same samples, and the second time without the work."""

from __future__ import annotations

import operator
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import numpy as np
from torch.utils.data import Dataset, IterableDataset, default_collate

from hotloop.feed import randomness
from hotloop.feed.cache.cache import CacheStats, SampleCache
from hotloop.feed.cache.reading import MISSING
from hotloop.feed.collating import Out
from hotloop.feed.determinism import Verdict, check_deterministic
from hotloop.feed.errors import CacheError
from hotloop.feed.identity import fingerprint as fingerprints
from hotloop.feed.pipelines import Remaining
from hotloop.feed.stages import split_after


class CachedDataset(Dataset[Any]):  # type: ignore[misc,unused-ignore]
    """The samples of ``dataset``, kept in ``cache`` up to the end of a stage; what follows runs every time.

    Made by :func:`cached`. ``dataset`` is the part that is cached; ``remaining`` takes an index and what came
    out of it. With ``watch`` each process goes on looking for samples that are random; ``on_random`` is
    called once where one is met.
    """

    _serves_loader = True

    def __init__(
        self,
        dataset: Any,
        cache: SampleCache,
        remaining: Remaining | None = None,
        *,
        watch: bool = True,
        on_random: Callable[[str], None] | None = None,
    ) -> None:
        self.dataset = dataset
        self.cache = cache
        self._remaining = remaining
        self._watch = DrawWatch(dataset) if watch else None
        self._on_random = on_random

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        number = self._number(index)
        if number is None:
            return self._finish(index, self.dataset[index])
        return self._finish(number, self.cache.get_or_make(number, lambda: self._make(number)))

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        """Many samples; what is missing is read in one go where the dataset can."""
        numbers = [number for index in indices if (number := self._number(index)) is not None]
        if len(numbers) < len(indices) or not hasattr(self.dataset, "__getitems__"):
            return [self[index] for index in indices]
        samples = [self.cache.get(number) for number in numbers]
        missing = [position for position, sample in enumerate(samples) if sample is MISSING]
        if missing:
            wanted = [numbers[position] for position in missing]
            began = time.perf_counter()
            with self._watching(wanted):
                made = self.dataset.__getitems__(wanted)
            seconds = (time.perf_counter() - began) / len(missing)
            for position, sample in zip(missing, made, strict=True):
                self.cache.put(numbers[position], sample, seconds=seconds)
                samples[position] = sample
        return [self._finish(number, sample) for number, sample in zip(numbers, samples, strict=True)]

    def gather(self, indices: Sequence[Any], out: Out | None = None) -> Any:
        """The collated batch, as ``default_collate`` gives it; one vectorised copy if all are cached."""
        numbers = np.asarray(indices)
        if self._remaining is None and numbers.dtype.kind in "iu" and numbers.ndim == 1:
            with suppress(IndexError):  # the dataset may know more
                batch = self.cache.gather(numbers.astype(np.int64, copy=False), out)
                if batch is not MISSING:
                    return batch
        return default_collate(self.__getitems__(indices))

    def stats(self) -> CacheStats:
        """Figures of all workers of all ranks."""
        return self.cache.stats()

    def print_cache_stats(self) -> None:
        """Print how full the cache is, how often it hits, and what that saved."""
        total = self.cache.stats()
        print(total)
        print(total.details(), flush=True)

    def close(self) -> None:
        """Let go of the cache; its memory is free when the last process does so."""
        self.cache.close()

    def _make(self, number: int) -> Any:
        with self._watching([number]):
            return self.dataset[number]

    def _watching(self, numbers: Sequence[int]) -> AbstractContextManager[None]:
        if self._watch is None or self.cache.stopped_by is not None:
            return nullcontext()
        return self._watch.reading(numbers, self._refuse)

    def _refuse(self, index: int, verdict: Verdict) -> None:
        if self._on_random is None:
            raise CacheError(
                f"sample {index} must not be cached: {verdict}",
                hint="those looked at before were deterministic; cache an earlier stage "
                "(cached(..., stage=...)), or say allow_random=True",
            )
        if self.cache.stop(index):
            self._on_random(f"sample {index} must not be cached: {verdict}")

    def _number(self, index: Any) -> int | None:
        """The sample's number from 0; None for what the cache does not know (the dataset may)."""
        try:
            number = operator.index(index)
        except TypeError:
            return None
        if number < 0:
            number += self.cache.num_items
        return number if 0 <= number < self.cache.num_items else None

    def _finish(self, index: Any, sample: Any) -> Any:
        return sample if self._remaining is None else self._remaining(index, sample)


def cached(
    dataset: Any,
    max_bytes: str | float | int | None = "auto",
    *,
    stage: str | None = None,
    fingerprint: str | bytes | None = None,
    shared: bool = True,
    allow_random: bool = False,
    on_random: Callable[[str], None] | None = None,
) -> CachedDataset:
    """Put a map-style dataset, or its first stages, behind a cache in memory shared by all workers and ranks.

    A full cache keeps what it has: of epochs that visit every sample once no cache hits more often.

    Args:
        dataset: a map-style dataset whose samples are the same each time they are read.
        max_bytes: all the memory the cache may take here: ``"50GB"``, ``"40%"``, ``0.4``, ``"auto"``, bytes.
        stage: cache what comes out of this stage (see ``plan_cache``) and run the rest every time.
        fingerprint: your own name for what is cached, if hotloop cannot look into the dataset, or should not.
        shared: share with other processes that cache the same; otherwise only with this one's workers.
        allow_random: cache even if a second reading differs: every epoch then sees the first one's draw.
        on_random: samples that are random are refused here, and as they are met later on. With this a later
            one ends the cache and not the run: it is called once, in whichever process, with the reason, and
            from then on every sample is read anew. What was handed out before may have been repeated draws.

    Raises:
        CacheError: a sample differs when it is read again, or ``max_bytes`` is too small.
        ValueError: an argument makes no sense.
    """
    if isinstance(dataset, IterableDataset):
        raise ValueError(
            f"{type(dataset).__name__} is iterable: only samples that have a number can be cached"
        )
    part, remaining = (dataset, None) if stage is None else split_after(dataset, stage)
    if not allow_random and len(dataset) and not (verdict := check_deterministic(part)):
        raise CacheError(
            f"not cached{f' after {stage!r}' if stage else ''}: {verdict}",
            hint="cache an earlier stage (cached(..., stage=...), see plan_cache), "
            "or say allow_random=True if every epoch may see the same draw",
        )
    meeting, alone = None, ""
    if shared:
        what = dataset if fingerprint is None else fingerprint
        try:
            # What is read after the stage may draw, every rank and run from a seed of its own.
            seeds = stage is None and not allow_random
            meeting = fingerprints.digest_of(what, len(dataset), stage, allow_random, seeds=seeds)
        except fingerprints.Unknowable as unknown:
            alone = f"the cache is not shared between ranks: {unknown}"
            name_it = "name the data with cached(..., fingerprint=...)"
            warnings.warn(f"{alone}; {name_it}", RuntimeWarning, stacklevel=2)
    cache = SampleCache(len(dataset), max_bytes=max_bytes, fingerprint=meeting)
    if alone:
        cache.note(alone)
    rest = None if part is dataset else remaining
    return CachedDataset(part, cache, rest, watch=not allow_random, on_random=on_random)


#: Reads watched in each process; each costs about 0.2 ms.
WATCHED_READS = 256
#: What a read that moved the generators and was found deterministic (it seeds them) costs of these.
PRICE_OF_A_CHECK = 64


class DrawWatch:
    """Finds samples of ``dataset`` that are random though those looked at before were not.

    Only in the main thread of a process: beside it others may draw meanwhile, such as the model.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._left = WATCHED_READS

    @contextmanager
    def reading(self, indices: Sequence[int], refuse: Callable[[int, Verdict], None]) -> Iterator[None]:
        """Around a read of these samples; ``refuse`` is told the first that reads differently again."""
        if self._left <= 0 or threading.current_thread() is not threading.main_thread():
            yield
            return
        self._left -= len(indices)
        before = randomness.tokens()
        yield
        if randomness.tokens() == before:
            return
        self._left -= PRICE_OF_A_CHECK
        for index in indices:
            verdict = check_deterministic(self._dataset, [index])
            if not verdict:
                refuse(index, verdict)
                return
