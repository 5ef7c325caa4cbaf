"""Whose batches the training loop gets: the script's iterator, a burst taken ahead, or other workers.

Works below ``__next__`` of torch's two iterators, on the iterator that drives the training. Order is kept
whatever happens: batches taken ahead are handed out first, what workers were already given is delivered
before others go on, and all draw indices from the one sampler.

Workers are held back by giving them no new indices, never by stopping them: a stopped worker that loses its
parent would stay for ever. They finish what they were given and then idle, so a burst runs without their
contention; as many batches lie ready afterwards as before it, so the next block does not begin with a full
queue.
"""

from __future__ import annotations

import random
import sys
import weakref
from collections import deque
from collections.abc import Callable
from time import sleep
from typing import TYPE_CHECKING, Any

from hotloop.clock import now_ns
from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.identity import Known
from hotloop.remedy.live.loader import consistent
from hotloop.remedy.live.trial import why_not
from hotloop.whatif.live.room import most_batches

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

_NEXT = """
def {name}(self):
    if is_compiling() or get_ident() != owner[0] or switch.off or self in siblings:
        return original(self)
    return fetch(self, original)
"""

_MADE = """
def {name}(self, loader):
    original(self, loader)
    made(self, loader)
"""

#: Seconds that workers get to finish what they were given.
_SETTLE_S = 5.0
_NAME = "what-if"


class Feeder:
    """The driving iterator and what stands in for it.

    ``boundary(iterator)`` is called when the driving loop asks for a batch: between two steps.
    ``kept`` says why a run that was fed ahead is not the one it would have been, "" where it is.
    """

    def __init__(self, probe: Probe, boundary: Callable[[Any], None]) -> None:
        self._probe = probe
        self._boundary = boundary
        self._module: Any = None
        self._queue: deque[tuple[bool, Any]] = deque()  # (is it an error, what it is)
        self._of: Any = lambda: None  # weak: the iterator the queue belongs to
        self._yielded = 0  # batches of its epoch that were handed out
        self._source: Sibling | None = None
        self._left: list[Sibling] = []  # deliver what they were given, then it is over
        self.siblings: weakref.WeakSet[Any] = weakref.WeakSet()
        self.last: Any = lambda: None  # weak: the iterator fetched from last
        self.drives = 0  # id of the driving loader, 0 unknown
        self.fetches = 0
        self.others = 0  # fetches from other iterators
        self.ended = 0  # epochs of the driving loader that ended
        self.wait_ns = 0  # in fetches of the driving iterator
        self._mine: list[Sibling] = []
        self._loaders: Known[Any] = Known()  # of iterators, as long as these live
        self.finishing = False  # siblings end as soon as they have delivered
        self.most = 0  # batches that may be held at a time, 0 unknown
        self.kept = ""

    def install(self) -> None:
        """Patch both iterators of torch."""
        self._probe.hooks.on_import("torch.utils.data.dataloader", self._install, _NAME)

    def _install(self, module: Any) -> None:
        self._module, hooks = module, self._probe.hooks
        names: dict[str, Any] = {
            "switch": hooks.switch(_NAME),
            "siblings": self.siblings,
        }
        # ``for batch in DataLoader(...)`` lets go of its loader, and other workers need its settings.
        made = hooks.guard(_NAME, self._made)
        base = module._BaseDataLoaderIter
        hooks.patch(base, "__init__", lambda original: compile_beside(original, _MADE, made=made))
        for kind in (module._SingleProcessDataLoaderIter, module._MultiProcessingDataLoaderIter):
            hooks.patch(
                kind,
                "_next_data",
                lambda original: compile_beside(original, _NEXT, fetch=self._fetch, **names),
            )

    def _made(self, iterator: Any, loader: Any) -> None:
        if not loader.persistent_workers:  # such a loader holds its iterator
            self._loaders.put(iterator, loader)

    # -- fetching --------------------------------------------------------------------------------------------

    def _fetch(self, iterator: Any, original: Any) -> Any:
        self.last = weakref.ref(iterator)
        if not self.drives or self._probe.loaders.loader_of(iterator) != self.drives:
            self.others += 1
            return original(iterator)
        self.fetches += 1
        self._boundary(iterator)
        start = now_ns()
        try:
            batch = self._next(iterator, original)
            if not self.most:
                self.most = self._probe.hooks.guard(_NAME, most_batches)(batch) or 1
            return batch
        except StopIteration:
            self.ended += 1
            self._queue.clear()
            self.release(iterator)
            raise
        finally:
            self.wait_ns += now_ns() - start

    def _next(self, iterator: Any, original: Any) -> Any:
        if self._queue:
            if self._of() is iterator and iterator._num_yielded == self._yielded:
                return self._pop()
            self._queue.clear()  # the loop left that epoch
        return self._take(iterator, original)

    def _take(self, iterator: Any, original: Any) -> Any:
        """The next batch in order, past what was taken ahead."""
        while self._left:
            if self._left[0].follows(iterator) and self._left[0].outstanding:
                return self._left[0].next()
            del self._left[0]
        if self.finishing and self._source is None:
            self.close()
        source = self._source
        if source is None:
            self.release(iterator)
            return original(iterator)
        if not source.follows(iterator):
            self.hold(iterator)
            source.follow(iterator)
        if len(getattr(iterator, "_task_info", ())):
            return original(iterator)
        try:
            return source.next()
        except StopIteration:  # the sampler has no more: the script's iterator ends the epoch its own way
            self.release(iterator)
            return original(iterator)

    def _pop(self) -> Any:
        self._yielded += 1
        failed, value = self._queue.popleft()
        if failed:
            raise value
        return value

    # -- bursts ----------------------------------------------------------------------------------------------

    def fill(self, iterator: Any, count: int) -> dict[str, Any]:
        """Take ``count`` batches ahead; how long that took, for «loader alone».

        ``alone_s`` and ``alone_batches``: the part of it in which neither a backlog was taken nor workers ran
        out of work.
        """
        original = type(iterator)._next_data.__wrapped__
        self._of, self._yielded = weakref.ref(iterator), iterator._num_yielded
        for sibling in self._left:
            self._queue += [(False, sibling.next()) for _ in range(sibling.outstanding)]
        self._left.clear()
        self.release(iterator)
        given = len(getattr(iterator, "_task_info", ()))
        hold_last = max(0, given - ready(iterator))
        states = self._random_states()
        count -= len(self._queue)
        times = [now_ns()]
        for number in range(count):
            if number == max(0, count - hold_last):
                self.hold(iterator)
            try:
                self._queue.append((False, original(iterator)))
            except Exception as error:  # raised where the loop reaches it
                # The end of an epoch without its frames: they would keep the iterator alive.
                self._queue.append((True, StopIteration() if isinstance(error, StopIteration) else error))
                break
            times.append(now_ns())
        self._settle(iterator)
        # The first batch of an epoch has the sampler draw.
        if given == 0 and self._yielded and states != self._random_states() and len(times) > 1:
            self.kept = "the dataset draws random numbers in the training process"
        first, last = given, len(times) - 1 - (hold_last if given else 0)
        alone = max(0, last - first)
        return {
            "batches": len(self._queue),
            "fill_s": (now_ns() - times[0]) / 1e9,
            "alone_batches": alone,
            "alone_s": (times[last] - times[first]) / 1e9 if alone else 0.0,
        }

    @property
    def num_queued(self) -> int:
        """Batches taken ahead and not handed out yet."""
        return len(self._queue)

    def _random_states(self) -> tuple[Any, ...]:
        numpy = sys.modules.get("numpy")
        legacy = numpy.random.get_state()[1].tobytes() if numpy is not None else b""
        state = self._probe.torch.default_generator.get_state()
        return random.getstate(), legacy, bytes(state.numpy())

    def _settle(self, iterator: Any) -> None:
        until = now_ns() + int(_SETTLE_S * 1e9)
        while ready(iterator) < len(getattr(iterator, "_task_info", ())) and now_ns() < until:
            sleep(0.001)

    def hold(self, iterator: Any) -> None:
        """Give the workers of an iterator no more indices."""
        if not hasattr(iterator, "_try_put_index"):
            return

        def held() -> None:
            if iterator._send_idx == 0:  # persistent workers begin another epoch
                iterator.__dict__.pop("_try_put_index", None)
                iterator._try_put_index()

        iterator._try_put_index = held

    def release(self, iterator: Any) -> None:
        """Give the workers what was held back, if anything was."""
        if iterator.__dict__.pop("_try_put_index", None) is None:
            return
        room = iterator._prefetch_factor * iterator._num_workers
        for _ in range(room - len(iterator._task_info)):
            iterator._try_put_index()

    # -- other workers ---------------------------------------------------------------------------------------

    def use(self, sibling: Sibling, iterator: Any) -> None:
        """From now on ``sibling`` makes the batches, after what others were given."""
        self.hold(iterator)
        sibling.follow(iterator)
        self._source = sibling

    def leave(self) -> None:
        """Back to the script's workers, after what the sibling was given."""
        if self._source is not None:
            self._source.hold()
            self._left.append(self._source)
            self._source = None

    def loader(self) -> Any:
        """The driving loader, between two of its batches; None where it is gone."""
        known = self._probe.loaders.known()
        return next((one for one, number in known if number == self.drives), self._loaders.get(self.last()))

    def why_not(self, changes: dict[str, Any]) -> str:
        """Why workers cannot make the driving loader's batches, "" where they can."""
        loader = self.loader()
        together = consistent({**loader.__dict__, **changes}, changes)
        return why_not(self._module, self._probe.torch, loader, together)

    def sibling(self, changes: dict[str, Any]) -> Sibling:
        """Another iterator over the same dataset with other settings; draws nothing from the script's
        generators.
        """
        loader, module, torch = self.loader(), self._module, self._probe.torch
        other = object.__new__(module.DataLoader)
        other.__dict__.update(loader.__dict__)
        other.__dict__.update(consistent({**loader.__dict__, **changes}, changes))
        generator = torch.Generator()
        generator.manual_seed(0)
        sampler = "batch_sampler" if loader._auto_collation else "sampler"
        other.__dict__.update({"generator": generator, sampler: (), "persistent_workers": False})
        many = other.num_workers > 0
        made = (module._MultiProcessingDataLoaderIter if many else module._SingleProcessDataLoaderIter)(other)
        made._persistent_workers = many  # what ends an epoch does not end the workers
        self.siblings.add(made)
        self._mine.append(Sibling(made, many=many))
        return self._mine[-1]

    # -- another loader ------------------------------------------------------------------------------------

    def successor(self, iterator: Any) -> int:
        """The id of an iterator's loader where it takes the driving loader's place, else 0.

        It does where both were built at one site and nothing is owed to an iterator of the one before.
        """
        loaders = self._probe.loaders
        number = loaders.loader_of(iterator)
        takes = loaders.built_at(number) == loaders.built_at(self.drives) != 0 and number != self.drives
        return number if takes and not self._owes() else 0

    def move(self, number: int) -> None:
        """Another loader drives from now on."""
        self.drives = number
        self.ended += 1
        self.give_up()

    def give_up(self) -> None:
        """Drop what was made for iterators that are gone: the script may come back to one that lives."""
        if self._owes():
            return
        self._queue.clear()
        self._left.clear()
        self._source = None
        self.close()

    def _owes(self) -> bool:
        siblings = [*self._left, *([self._source] if self._source is not None else [])]
        queued = bool(self._queue) and self._of() is not None
        return queued or any(one.outstanding and one.main() is not None for one in siblings)

    def close(self) -> None:
        """End the workers of every sibling."""
        for sibling in self._mine:
            sibling.close()
        self._mine.clear()


class Sibling:
    """An iterator of our own that draws its indices from the script's sampler."""

    def __init__(self, iterator: Any, *, many: bool) -> None:
        self._iterator = iterator
        self._many = many
        self._original = type(iterator)._next_data.__wrapped__
        self.main: Any = lambda: None  # weak: the script's iterator it stands in for
        self._primed = False

    @property
    def num_tasks(self) -> int:
        """Batches its workers are given at a time."""
        return self._iterator._prefetch_factor * self._iterator._num_workers if self._many else 0

    @property
    def outstanding(self) -> int:
        """Batches its workers were given and that were not handed out."""
        return len(self._iterator._task_info) if self._many else 0

    def follow(self, main: Any) -> None:
        """Draw indices from this iterator's sampler; what is left of another epoch is dropped."""
        self.hold()
        for _ in range(self.outstanding):
            self._original(self._iterator)
        self.main = weakref.ref(main)
        self._iterator._sampler_iter = main._sampler_iter
        self._iterator.__dict__.pop("_try_put_index", None)
        self._primed = False

    def follows(self, main: Any) -> bool:
        """Whether it draws from this iterator's sampler, in this epoch."""
        return self.main() is main and self._iterator._sampler_iter is main._sampler_iter

    def hold(self) -> None:
        """Draw no more."""
        if self._many:
            self._iterator._try_put_index = lambda: None

    def next(self) -> Any:
        """The next batch. Raises StopIteration where the sampler has no more."""
        if self._many and not self._primed:
            self._primed = True
            for _ in range(self.num_tasks - self.outstanding):
                self._iterator._try_put_index()
        return self._original(self._iterator)

    def close(self) -> None:
        """End its workers."""
        if self._many:
            self._iterator._shutdown_workers()


def ready(iterator: Any) -> int:
    """Batches that lie ready."""
    if not hasattr(iterator, "_task_info"):
        return 0
    return int(len(iterator._task_info) - iterator._tasks_outstanding + iterator._data_queue.qsize())
