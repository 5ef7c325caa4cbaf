"""DataLoaders: how they were built, their iterators, and every ``next()``."""

from __future__ import annotations

import sys
import weakref
from _thread import get_ident
from collections.abc import Callable
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hotloop import fast
from hotloop.hooks.imports import IMPORT_FILE
from hotloop.hooks.wrapping import RAISED, compile_beside
from hotloop.probe import batches
from hotloop.probe.counting import with_limit
from hotloop.probe.ending import ending
from hotloop.probe.identity import Known
from hotloop.probe.observers.dataset_state import changed, settings_of, state_of, told_by_script
from hotloop.probe.observers.loader_facts import loader_facts, own_dataset
from hotloop.probe.observers.pass_state import DatasetState, written
from hotloop.probe.places import with_site, with_text
from hotloop.probe.turns import Order, Watched
from hotloop.record.rows import FETCH, FETCH_END, FETCH_WORKERS, ITER, SHUTDOWN, U16_MAX

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

NAME: Final = "observers.loaders"
#: A ``batch`` note is written for the first batch of each loader and for every 100th, later every 1000th.
_NOTE_EVERY: Final = 100
#: Datasets are looked into as long as that takes one part in so many of the time, and the first times.
_LOOK_PART: Final = 200
_LOOKS: Final = 8
#: Passes in which it is watched who draws the order of samples, of the loaders that one call builds.
_WATCHED_PASSES: Final = 2
#: Passes under way, of as many loaders, whose datasets are remembered as they began.
_MOST_BEGUN: Final = 64

T = TypeVar("T")


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
        stop = now()
        try:
            {end}
        except Exception as error:
            failed(switch, error)
    if type(result) is dict:
        return loaders.track(self, result) or result
    return result
"""


_FETCHED: Final = """
{site}
if result is raised:
    ended(state, waiting, site, start, stop, isinstance(exc_info()[1], StopIteration))
else:
    state.yielded = number = state.yielded + 1
    samples = state.full
    if not samples or number == state.num_batches:
        samples = samples_in(state, result)
    emit(kind, start, stop - start, samples, site, state.id, waiting, state.flags)
    count.fetched = 1
    number += state.before
    if number % note_every == 1 and (number < 10 * note_every or number % (10 * note_every) == 1):
        note_batch(state, result)
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


class Looks:
    """Looks into datasets as long as that takes little of the time."""

    def __init__(self) -> None:
        self._number = self._since_ns = self._spent_ns = 0

    def take(self, look: Callable[[bool], T]) -> T:
        """What ``look`` gives, which is told whether it may look into what the dataset holds."""
        start = perf_counter_ns()
        self._since_ns = self._since_ns or start
        self._number += 1
        into = self._number <= _LOOKS or self._spent_ns * _LOOK_PART <= start - self._since_ns
        found = look(into)
        self._spent_ns += perf_counter_ns() - start
        return found


class Loaders:
    """Observes DataLoader construction, iteration, fetching and shutdown."""

    def __init__(self, probe: Probe, module: Any) -> None:
        self._probe = probe
        self._module = module
        self._loaders: Known[int] = Known()
        self._iterators: Known[Iterator] = Known()
        #: by where loaders are built and called from: their datasets when they were gone through last
        self._states: dict[tuple[int, int], Known[dict[str, Any]]] = {}
        #: of loaders, which a script may not keep: the dataset when the pass under way began
        self._begun: dict[int, tuple[weakref.ref[Any], DatasetState]] = {}
        self._written: dict[int, list[str]] = {}  # of loaders: what of their datasets was written meanwhile
        self._between, self._within = Looks(), Looks()
        self._latest: dict[int, Iterator] = {}  # of each loader
        self._told: dict[int, dict[str, Any]] = {}  # the fields of each loader's latest ``iterator`` note
        #: Looks at batches that are dictionaries: another to hand out in its place, or None.
        self.track: Callable[[Any, Any], Any] = lambda iterator, batch: None
        #: where, called from where, by which function of a package, given what
        self._built: dict[int, tuple[int, int, str, list[str]]] = {}
        #: id of a DataLoader within ``__iter__`` -> the iterator of torch's that was made there
        self._beginning: dict[int, Any] = {}
        self._changing: set[int] = set()  # loaders whose datasets were noted to change
        self._orders: dict[int, list[Order]] = {}  # by the site of the loader
        self.turns: dict[int, list[str]] = {}  # loaders whose order is drawn by turns, and from what
        guard = probe.hooks.guard
        self._iterated = guard("observers.dataset_changes", self._note_changes)
        self._begins = guard("observers.datasets", self._note_begin)
        self._passed = guard("observers.datasets", self._note_written)
        self._ordered = guard("observers.turns", self._watch_order)
        self.restart()

    def restart(self) -> None:
        """In a forked child: ids begin at 1 again, and what it does not use it does not note."""
        self._loaders.clear()
        self._iterators.clear()
        self._states.clear()
        self._latest.clear()
        self._told.clear()
        self._built.clear()
        self._beginning.clear()
        self._changing.clear()
        self._begun.clear()
        self._written.clear()
        self._orders.clear()
        self.turns.clear()
        self._num_loaders = 0
        self._num_iterators = 0
        self._newest = 0  # the loader that iter() was called on last

    def loader_of(self, iterator: Any) -> int:
        """The id of the loader an iterator was made by, 0 unknown."""
        state = self._iterators.get(iterator)
        return state.loader if state is not None else 0

    def built_at(self, number: int) -> int:
        """The site where a loader was built, 0 unknown."""
        return self._built.get(number, (0,))[0]

    def site_of(self, loader: Any) -> int:
        """The site where this loader was built, 0 unknown."""
        return self.built_at(self._loaders.get(loader) or 0)

    def known(self) -> list[tuple[Any, int]]:
        """The loaders that live, with their ids."""
        return self._loaders.values()

    def changed(self, loader: Any, names: tuple[str, ...]) -> None:
        """A remedy changed these settings: the loader is noted again under its id."""
        number = self._loaders.get(loader)
        if number is None:
            return
        site, via, by, given = self._built[number]
        given = [*given, *(name for name in names if name not in given)]
        self._write_loader(loader, number, site, via, by, given)

    # -- construction ----------------------------------------------------------------------------------------

    def begin_init(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """Where a loader is built: the frame that made it, not the ``__init__`` of its own subclass."""
        if self._probe.role == "worker":
            return None
        made = self._constructed_at(frame, args[0])
        places = self._probe.places
        built = self._probe.site(made), places.site_by_stack(made), places.called(made)
        return args[0], args[1:], kwargs, *built

    def begin_fastai(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """Where fastai's own DataLoader is built: what it was given is read off it."""
        token = self.begin_init(args, kwargs, frame)
        return token and (token[0], (), {}, *token[3:])

    def end_init(self, token: Any, start: int, stop: int, result: Any) -> None:
        """Note a loader that came to be."""
        if result is not RAISED:
            self._note_loader(*token)

    def _constructed_at(self, frame: FrameType | None, loader: Any) -> FrameType | None:
        while frame is not None and frame.f_code.co_name == "__init__":
            first = frame.f_code.co_varnames[:1]
            if not first or frame.f_locals.get(first[0]) is not loader:
                break
            frame = frame.f_back
        return frame

    def _note_loader(
        self, loader: Any, args: tuple[Any, ...], kwargs: dict[str, Any], site: int, via: int, by: str
    ) -> int:
        self._num_loaders += 1
        self._loaders.put(loader, self._num_loaders)
        names = self._module.DataLoader.__init__.__wrapped__.__code__.co_varnames[1:]
        given = [*names[: len(args)], *kwargs]
        self._write_loader(loader, self._num_loaders, site, via, by, given)
        return self._num_loaders

    def _write_loader(self, loader: Any, number: int, site: int, via: int, by: str, given: list[str]) -> None:
        self._built[number] = site, via, by, given
        facts = loader_facts(loader, self._module)
        self._probe.note("loader", id=number, where=site, via=via, by=by, given=given, **facts)

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
        self._iterated(loader, state.loader)
        self._begins(loader, state.loader)
        self._num_iterators += 1
        if state.loader != self._newest:
            self._newest = state.loader
            self._probe.count.skip = 0  # another loader's batches may be others
        again = bool(state.id)
        latest = self._latest.get(state.loader, state)
        self._latest[state.loader] = state
        state.id = self._num_iterators
        state.before, state.yielded = latest.before + latest.yielded, 0
        state.flags = FETCH_WORKERS if getattr(result, "_workers", None) else 0
        self._ordered(loader, result, state.loader)
        state.full, state.last, state.num_batches = batch_sizes(loader, result)
        probe = self._probe
        pinning = getattr(result, "_pin_memory_thread", None)
        told = {
            "workers": [worker.pid for worker in getattr(result, "_workers", ())],
            "pinning": pinning is not None and pinning.is_alive(),
            "reset": again,
            "num_batches": state.num_batches,
        }
        ours = get_ident() == probe.owner
        # Without workers, like the one before it: the row says enough, ``record.read`` puts the note back.
        if told["workers"] or not ours or state.id >= U16_MAX or self._told.get(state.loader) != told:
            self._told[state.loader] = told
            probe.note("iterator", id=state.id, loader=state.loader, site=site, **told)
        if ours:
            probe.emit(ITER, start, stop - start, state.loader, site, state.id)

    def _note_changes(self, loader: Any, number: int) -> None:
        """Note what has changed in the dataset since it was gone through last: with workers, who read copies,
        nobody but the script changes what it holds.
        """
        dataset = own_dataset(getattr(loader, "dataset", None))
        workers = bool(getattr(loader, "num_workers", 0))
        is_users = self._probe.is_user.file

        def look(into: bool) -> tuple[dict[str, Any], bool]:
            state = state_of(dataset, into) if workers else settings_of(dataset, is_users, into)
            return state, into

        now, into = self._between.take(look)
        states = self._states.setdefault(self._built.get(number, (0, 0))[:2], Known())
        before = states.get(dataset) or {}
        if number not in self._changing and (names := changed(before, now)):
            names = told_by_script(dataset, names, workers=workers)
            if names:
                self._changing.add(number)
                self._probe.note("dataset_changed", loader=number, names=names)
        states.put(dataset, now if into else {**before, **now})

    def _note_begin(self, loader: Any, number: int) -> None:
        """Remember what a dataset is like as a pass over it begins."""
        dataset = own_dataset(getattr(loader, "dataset", None))
        self._begun.pop(number, None)
        try:
            ref = weakref.ref(dataset)
        except TypeError:  # nothing can refer to it weakly
            return
        self._begun[number] = ref, self._look(dataset)
        while len(self._begun) > _MOST_BEGUN:
            del self._begun[next(iter(self._begun))]

    def _note_written(self, number: int) -> None:
        """Note what was written to the dataset while it was gone through, where samples are made of it."""
        begun = self._begun.pop(number, None)
        dataset = begun[0]() if begun is not None else None
        if begun is None or dataset is None or number in self._written:
            return
        if names := written(dataset, begun[1], self._look(dataset)):
            self._written[number] = names
            self._probe.note("dataset_written", loader=number, names=names)

    def _look(self, dataset: Any) -> DatasetState:
        """What a dataset is like, its contents only while looking at them takes little of the time."""
        return self._within.take(lambda into: DatasetState(dataset, into=into))

    def written(self, loader: Any) -> list[str]:
        """What of a loader's dataset was seen to be written while it was gone through."""
        return self._written.get(self._loaders.get(loader) or 0, [])

    def _watch_order(self, loader: Any, iterator: Any, number: int) -> None:
        """Watch who draws the indices of the first passes."""
        module = self._module
        kinds = (module._SingleProcessDataLoaderIter, module._MultiProcessingDataLoaderIter)
        watched = self._orders.setdefault(self.built_at(number), [])
        for before in watched[-1:]:
            before.followed()
        if len(watched) == _WATCHED_PASSES or type(iterator) not in kinds or loader._dataset_kind:
            return

        batches = loader.batch_sampler
        own = batches is not None and not type(batches).__module__.startswith("torch.")
        kind = type(batches if own else loader.sampler)
        name, theirs = kind.__name__, kind.__module__.startswith("torch.")

        def tell(generators: list[str]) -> None:
            if number not in self.turns:
                self.turns[number] = generators
                self._probe.note("turns", loader=number, sampler=name, generators=generators)

        def guard(look: Callable[[], None]) -> Callable[[], None]:
            return self._probe.hooks.guard("observers.turns", look)

        order = Order(own=not theirs, tell=tell)
        iterator._sampler_iter = Watched(iterator._sampler_iter, order, guard)
        watched.append(order)

    def _state(self, loader: Any, iterator: Any) -> Iterator | None:
        """What is known of an iterator; a new one is the loader's. None: it cannot be remembered."""
        if self._iterators.get(iterator) is None:
            number = self._loaders.get(loader) or self._note_loader(loader, (), {}, 0, 0, "")
            self._iterators.put(iterator, Iterator(number))
        return self._iterators.get(iterator)

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
        return compile_beside(
            original,
            with_limit(with_text(_NEXT, "{end}", with_site(_FETCHED)), probe.count, "count.stop_if_done()"),
            filename=IMPORT_FILE,
            switch=hooks.switch(NAME),
            count=probe.count,
            entries=self._iterators.entries,
            loaders=self,
            ready=counted,
            ended=ended,
            exc_info=sys.exc_info,
            samples_in=samples_in,
            note_batch=note_batch,
            note_every=_NOTE_EVERY,
            emit=emit,
            kind=FETCH,
            failed=hooks.failed,
            raised=RAISED,
            now=perf_counter_ns,
            **probe.places.names,
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


def batch_sizes(loader: Any, iterator: Any) -> tuple[int, int, int]:
    """Samples in a full batch and in the last, and the number of batches, where torch's own samplers say
    so.
    """
    size = getattr(loader, "batch_size", None)
    sampler = getattr(loader, "batch_sampler", None)
    if not isinstance(size, int) or type(sampler).__module__ != "torch.utils.data.sampler":
        return 0, 0, 0
    try:
        total = len(sampler.sampler)  # type: ignore[union-attr]
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
    hooks.on_import("hotloop.feed.engine", lambda feed: _install_feed(probe, loaders, feed), NAME)
    hooks.on_import("fastai.data.load", lambda fastai: _install_fastai(probe, loaders, fastai), NAME)
    probe.on_fork(NAME, loaders.restart)


def _install_feed(probe: Probe, loaders: Loaders, module: Any) -> None:
    """hotloop's own Loader: its iterator is torch's in all but how workers are started and ended."""
    probe.hooks.around(module.Engine, "_shutdown_workers", NAME, loaders.begin_shutdown, loaders.end_shutdown)


def _install_fastai(probe: Probe, loaders: Loaders, module: Any) -> None:
    """fastai's DataLoader: torch's iterators get an object that it makes for them."""
    own, begin, end = module._FakeLoader, loaders.begin_fastai, loaders.end_init
    probe.hooks.around(own, "__init__", NAME, begin, end, any_thread=True, unseen=True)
