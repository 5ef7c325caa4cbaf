"""DataLoaders: how they were built, their iterators, and every ``next()``."""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable
from time import perf_counter_ns
from types import FrameType
from typing import Any, Final

from hotloop import fast
from hotloop.hooks.imports import IMPORT_FILE
from hotloop.hooks.wrapping import RAISED, compile_beside
from hotloop.probe import batches
from hotloop.probe.counting import with_limit
from hotloop.probe.ending import ending, in_python
from hotloop.probe.observers.datasets import Datasets
from hotloop.probe.observers.loader_construction import Construction
from hotloop.probe.probe import Probe
from hotloop.record.rows import FETCH, FETCH_END, FETCH_WORKERS, ITER, SHUTDOWN, U16_MAX
from hotloop.state.identity import Known
from hotloop.state.stored import attributes

NAME: Final = "observers.loaders"
#: A ``batch`` note is written for the first batch of each loader and for every 100th, later every 1000th.
_NOTE_EVERY: Final = 100

# The run ends here when its steps are done (--steps).
_NEXT: Final = """
def {name}(self):
    if get_ident() != owner[0]:
        return original(self)
    {stop_if_done}
    state = entries.get(id(self))
    if state is None:
        return original(self)
    waiting = ready(self) if state.flags else 65535
    result = raised
    start = now()
    try:
        result = original(self)
    finally:
        fetched(state, waiting, start, result)
    if type(result) is dict:
        return loaders.track(self, result) or result
    return result
"""


class Iterator(fast.Feed):
    """What is known of a running iterator. ``id`` changes at every ``iter()``: persistent workers reuse the
    object.
    """

    __slots__ = ("last", "loader", "seen")

    def __init__(self, loader: int) -> None:
        self.loader = loader
        self.id = self.flags = self.full = self.num_batches = self.before = self.yielded = 0
        self.last = 0  # samples in the last batch, 0 unknown
        self.seen = 0  # samples in a batch whose size only its shape tells, looked at now and then


class Loaders(Construction):
    """Observes DataLoader construction, iteration, fetching and shutdown; one per process."""

    def __init__(self, probe: Probe, module: Any) -> None:
        super().__init__(probe, module)
        self._iterators: Known[Iterator] = Known()
        self._latest: dict[int, Iterator] = {}  # of each loader
        self._told: dict[int, dict[str, Any]] = {}  # the fields of each loader's latest ``iterator`` note
        #: Looks at batches that are dictionaries: another to hand out in its place, or None.
        self.track: Callable[[Any, Any], Any] = lambda iterator, batch: None
        #: id of a DataLoader within ``__iter__`` -> the iterator of torch's that was made there
        self._beginning: dict[int, Any] = {}
        guard = probe.hooks.guard
        self._datasets = Datasets(probe.note, probe.places.see)
        self._begins = guard("observers.datasets", self._datasets.begins)
        self._passed = guard("observers.datasets", self._datasets.passed)
        self.restart()

    def restart(self) -> None:
        """In a forked child: ids begin at 1 again, and what it does not use it does not note."""
        self.forget()
        self._iterators.clear()
        self._latest.clear()
        self._told.clear()
        self._beginning.clear()
        self._datasets.restart()
        self._num_iterators = 0
        self._newest = 0  # the loader that iter() was called on last

    def loader_of(self, iterator: Any) -> int:
        """The id of the loader an iterator was made by, 0 unknown."""
        state = self._iterators.get(iterator)
        return state.loader if state is not None else 0

    # -- iteration -------------------------------------------------------------------------------------------

    def begin_iter(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """``iter(loader)``, in any thread: the facts count even where the time does not."""
        probe = self._probe
        probe.wake()
        self._beginning[id(args[0])] = None
        return args[0], probe.site(frame)

    def begin_own(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """An iterator of torch's made by another than torch's ``DataLoader.__iter__``: a loader that is no
        DataLoader, or one whose class begins its passes itself.
        """
        loader = args[1] if len(args) > 1 else kwargs.get("loader")
        if id(loader) in self._beginning:
            self._beginning[id(loader)] = args[0]
            return None
        if type(loader) is self._module.DataLoader:
            return None  # a remedy looks at what it would make
        self._probe.wake()
        return args[0], loader, self._probe.site(frame)

    def end_own(self, token: Any, start: int, stop: int, result: Any) -> None:
        """The iteration begins with its iterator."""
        iterator, loader, site = token
        self.end_iter((loader, site), start, stop, result if result is RAISED else iterator)

    def end_iter(self, token: Any, start: int, stop: int, result: Any) -> None:
        """Give the iteration its id, note its workers, and write the row."""
        loader, site = token
        inner = self._beginning.pop(id(loader), None)
        if result is RAISED:
            return
        if inner is not None and not isinstance(result, self._module._BaseDataLoaderIter):
            result = inner  # a ``_get_iterator`` of the script's puts its own around torch's
        state = self._state(loader, result)
        if state is None:
            return
        self._begins(loader, state.loader, self._built.get(state.loader, (0, 0))[:2])
        self._num_iterators += 1
        if state.loader != self._newest:
            self._newest = state.loader
            self._probe.count.skip = 0  # another loader's batches may be others
        latest = self._latest.get(state.loader, state)
        self._latest[state.loader] = state
        state.id = self._num_iterators
        state.before, state.yielded = latest.before + latest.yielded, 0
        state.flags = FETCH_WORKERS if getattr(result, "_workers", None) else 0
        state.full, state.last, state.num_batches = batch_sizes(loader, self.length)
        probe = self._probe
        pinning = getattr(result, "_pin_memory_thread", None)
        told = {
            "workers": [worker.pid for worker in getattr(result, "_workers", ())],
            "pinning": pinning is not None and pinning.is_alive(),
            "num_batches": state.num_batches,
        }
        ours = get_ident() == probe.hooks.recorded[0]
        # Without workers, like the one before it: the row says enough, ``record.read`` puts the note back.
        if told["workers"] or not ours or state.id >= U16_MAX or self._told.get(state.loader) != told:
            self._told[state.loader] = told
            probe.note("iterator", id=state.id, loader=state.loader, site=site, **told)
        if ours:
            probe.emit(ITER, start, stop - start, state.loader, site, state.id)

    def written(self, loader: Any) -> list[str]:
        """What of a loader's dataset was seen to be written while it was gone through."""
        return self._datasets.written(self._loaders.get(loader) or 0)

    def _state(self, loader: Any, iterator: Any) -> Iterator | None:
        """What is known of an iterator; a new one is the loader's. None: it cannot be remembered."""
        entries = self._iterators.entries
        if id(iterator) not in entries:
            number = self._loaders.get(loader) or self._note_loader(loader, (), {}, 0, 0, "")
            self._iterators.put(iterator, Iterator(number))
        return entries.get(id(iterator))

    # -- fetching --------------------------------------------------------------------------------------------

    def make_next(self, original: Any) -> Any:
        """The wrapper of an iterator's ``__next__``."""
        probe, hooks, emit = self._probe, self._probe.hooks, self._probe.emit

        def ready(iterator: Any) -> int:
            """How many batches lie ready, before one is asked for."""
            arrived = len(iterator._task_info) - iterator._tasks_outstanding
            return int(min(arrived + iterator._data_queue.qsize(), U16_MAX - 1))

        def ended(state: Iterator, waiting: int, site: int, start: int, stop: int, at_end: bool) -> None:
            flags = state.flags
            if at_end:
                flags |= FETCH_END
                probe.count.fetched = 0
                self._passed(state.loader)
            emit(FETCH, start, stop - start, 0, site, state.id, waiting, flags)

        def samples_in(state: Iterator, batch: Any) -> int:
            if state.full:
                return state.last or samples_seen(batch, state.full)
            if state.yielded & 7 == 1:  # whatever hands out whole batches hands out alike ones
                state.seen = samples_seen(batch, 0)
            return state.seen

        def note_batch(state: Iterator, batch: Any) -> None:
            fields = batches.fields(batch)
            total = sum(field["bytes"] for field in fields)
            probe.note("batch", iterator=state.id, loader=state.loader, fields=fields[:64], bytes=total)

        counted = hooks.guard(NAME, ready)
        if fast.Hook is not None:
            asked = (self._iterators.entries, counted, ended, samples_in, note_batch, _NOTE_EVERY, self)
            limit = probe.count.stop_if_done if probe.count.may_end else None
            return ending(probe, NAME, "next", FETCH, *asked, limit, original=original)

        def fetched(
            frame: FrameType, stop: int, state: Iterator, waiting: int, start: int, result: Any
        ) -> None:
            site = probe.site(frame)
            if result is RAISED:
                at_end = isinstance(sys.exc_info()[1], StopIteration)
                ended(state, waiting, site, start, stop, at_end)
                return
            state.yielded = number = state.yielded + 1
            samples = state.full
            if not samples or number == state.num_batches:
                samples = samples_in(state, result)
            emit(FETCH, start, stop - start, samples, site, state.id, waiting, state.flags)
            probe.count.fetched = 1
            number += state.before
            often = number < 10 * _NOTE_EVERY
            if number % _NOTE_EVERY == 1 and (often or number % (10 * _NOTE_EVERY) == 1):
                note_batch(state, result)

        return compile_beside(
            original,
            with_limit(_NEXT, probe.count, "count.stop_if_done()"),
            filename=IMPORT_FILE,
            switch=hooks.switch(NAME),
            count=probe.count,
            entries=self._iterators.entries,
            loaders=self,
            ready=counted,
            fetched=in_python(probe, NAME, fetched),
            raised=RAISED,
            now=perf_counter_ns,
        )

    # -- shutdown --------------------------------------------------------------------------------------------

    def begin_shutdown(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """Only the first shutdown of an iterator does anything."""
        iterator = args[0]
        if getattr(iterator, "_shutdown", True):
            return None
        state = self._iterators.get(iterator)
        return (state.id if state is not None else 0), self._probe.site(frame)

    def end_shutdown(self, token: Any, start: int, stop: int, result: Any) -> None:
        """Write the row."""
        self._probe.emit(SHUTDOWN, start, stop - start, 0, token[1], token[0])


_TORCHS: Final = "torch.utils.data.sampler"
_KNOWN: Final = (_TORCHS, "torch.utils.data.distributed")


def batch_sizes(loader: Any, length: Callable[[Any], int]) -> tuple[int, int, int]:
    """Samples in a full batch and in the last, and how many batches, where torch's own samplers say so."""
    size = getattr(loader, "batch_size", None)
    sampler = getattr(loader, "batch_sampler", None)
    inner = getattr(sampler, "sampler", None)
    known = type(sampler).__module__ == _TORCHS and type(inner).__module__ in _KNOWN
    if not (known and isinstance(size, int)):
        return 0, 0, 0  # the length of one of the script's own is not asked for
    try:
        held = attributes(inner)
        source = held.get("data_source")
        total = held.get("_num_samples") or (len(inner) if source is None else length(source))  # type: ignore[arg-type]
    except (TypeError, NotImplementedError, AttributeError):
        return 0, 0, 0  # endless: each batch is looked at
    count = total // size if loader.drop_last else -(-total // size)
    return size, size if loader.drop_last else total - size * (count - 1), count


def samples_seen(batch: Any, limit: int) -> int:
    """Samples in a batch by its shape: the first dimension its tensors agree on, 0 where they do not."""
    lengths = set()
    for index, (_, value) in enumerate(batches.leaves(batch)):
        shape = batches.shape(value)
        if shape:
            lengths.add(shape[0])
        if index >= 8 or len(lengths) > 1:
            break
    if len(lengths) != 1:
        return limit
    found = lengths.pop()
    return found if not limit or found <= limit else limit


def install(probe: Probe) -> None:
    """Observe this process's DataLoaders."""
    probe.hooks.on_import("torch.utils.data.dataloader", lambda module: _install(probe, module), NAME)


def _install(probe: Probe, module: Any) -> None:
    hooks = probe.hooks
    loaders = probe.loaders = Loaders(probe, module)
    base, many = module._BaseDataLoaderIter, module._MultiProcessingDataLoaderIter
    loader = module.DataLoader
    hooks.around(loader, "__init__", NAME, loaders.begin_init, loaders.end_init, any_thread=True, unseen=True)
    hooks.around(loader, "__iter__", NAME, loaders.begin_iter, loaders.end_iter, any_thread=True)
    for kind in (module._SingleProcessDataLoaderIter, many):
        hooks.around(kind, "__init__", NAME, loaders.begin_own, loaders.end_own, any_thread=True, unseen=True)
    hooks.patch(base, "__next__", loaders.make_next)
    hooks.around(many, "_shutdown_workers", NAME, loaders.begin_shutdown, loaders.end_shutdown)
    samplers = sys.modules[_TORCHS]
    vars(samplers)["len"] = loaders.told_length
    hooks.at_undo(lambda: vars(samplers).pop("len"))

    def on_feed(feed: Any) -> None:
        # hotloop's own Loader: its iterator is torch's in all but how workers are started and ended.
        hooks.around(feed.Engine, "_shutdown_workers", NAME, loaders.begin_shutdown, loaders.end_shutdown)

    hooks.on_import("hotloop.feed.engine", on_feed, NAME)
    probe.on_fork(NAME, loaders.restart)
