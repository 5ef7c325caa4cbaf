"""Whose batches the training loop gets: the script's iterators, a burst taken ahead, or other workers.

Works below ``__next__`` of torch's two iterators, on the one that drives the training. Order is kept whatever
happens: batches taken ahead are handed out first, what workers were already given is delivered before others
go on, and all draw indices from the one sampler.
"""

from __future__ import annotations

import importlib
import os
import resource
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import sleep
from typing import Any, Final

from hotloop.clock import now_ns
from hotloop.hooks.wrapping import compile_beside
from hotloop.probe import batches
from hotloop.probe.probe import Probe
from hotloop.remedy.live.loader import consistent
from hotloop.remedy.live.trial import why_not
from hotloop.state.generators import random_states
from hotloop.state.identity import Known
from hotloop.whatif.live.sibling import Sibling, made_beside

#: Seconds that workers get to finish what they were given.
_SETTLE_S: Final = 5.0
#: Of the memory that is left, and of the files that may be opened, a burst takes at most this part.
_PART: Final = 0.25


class Ahead:
    """The queue. It belongs to one pass of the iterator, which it does not keep alive."""

    def __init__(self, iterator: Any) -> None:
        self._queue: deque[tuple[bool, Any]] = deque()  # (is it an error, what it is)
        self._yielded = iterator._num_yielded  # batches of that pass that were handed out

    def follows(self, iterator: Any) -> bool:
        """Whether the iterator's next batch lies here."""
        return bool(self._queue) and iterator._num_yielded == self._yielded

    def pop(self) -> Any:
        """The next batch. Raises what making it raised."""
        self._yielded += 1
        failed, value = self._queue.popleft()
        if failed:
            raise value
        return value

    def take(self, iterator: Any, count: int, given: Iterable[Any] = ()) -> dict[str, Any]:
        """``count`` batches, those ``given`` first; how long that took, for «loader alone».

        ``alone_s`` and ``alone_batches``: the part of it in which neither a backlog was taken nor workers ran
        out of work.
        """
        original = type(iterator)._next_data.__wrapped__
        self._queue += [(False, batch) for batch in given]
        release(iterator)
        tasks = len(getattr(iterator, "_task_info", ()))
        hold_last = max(0, tasks - _ready(iterator))
        count -= len(self._queue)
        times = [now_ns()]
        for number in range(count):
            if number == max(0, count - hold_last):
                hold(iterator)
            try:
                self._queue.append((False, original(iterator)))
            except Exception as error:  # raised where the loop reaches it
                # The end of an epoch without its frames: they would keep the iterator alive.
                self._queue.append((True, StopIteration() if isinstance(error, StopIteration) else error))
                break
            times.append(now_ns())
        _settle(iterator)
        last = len(times) - 1 - (hold_last if tasks else 0)
        alone = max(0, last - tasks)
        return {
            "batches": len(self._queue),
            "workers": int(getattr(iterator, "_num_workers", 0)),
            "alone_batches": alone,
            "alone_s": (times[last] - times[tasks]) / 1e9 if alone else 0.0,
        }


def hold(iterator: Any) -> None:
    """Give the workers of an iterator no more indices."""
    if not hasattr(iterator, "_try_put_index"):
        return

    def held() -> None:
        if iterator._send_idx == 0:  # persistent workers begin another epoch
            iterator.__dict__.pop("_try_put_index", None)
            iterator._try_put_index()

    iterator._try_put_index = held


def release(iterator: Any) -> None:
    """Give the workers what was held back, if anything was."""
    if iterator.__dict__.pop("_try_put_index", None) is None:
        return
    room = iterator._prefetch_factor * iterator._num_workers
    for _ in range(room - len(iterator._task_info)):
        iterator._try_put_index()


def _settle(iterator: Any) -> None:
    until = now_ns() + int(_SETTLE_S * 1e9)
    while _ready(iterator) < len(getattr(iterator, "_task_info", ())) and now_ns() < until:
        sleep(0.001)


def _ready(iterator: Any) -> int:
    """Batches that lie ready."""
    if not hasattr(iterator, "_task_info"):
        return 0
    return int(len(iterator._task_info) - iterator._tasks_outstanding + iterator._data_queue.qsize())


def most_batches(batch: Any) -> int:
    """How many batches like this one may be held: of memory, of shared memory, and of open files."""
    fields = batches.fields(batch)
    num_bytes = max(1, sum(field["bytes"] for field in fields))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - len(os.listdir("/proc/self/fd"))
    shared = os.statvfs("/dev/shm")
    usable: int = importlib.import_module("hotloop.feed.budget").usable_memory_bytes()
    available = min(usable, shared.f_bavail * shared.f_frsize)
    limits = [available / num_bytes, files / max(1, len(fields))]
    return int(_PART * min(limits))


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

_NAME = "what-if"
#: A loader asked this often, with updates between, trains and does not evaluate.
_LEAST_APART: Final = 3


@dataclass
class _Asked:
    """Batches of a loader beside the driving one: with gradients on, and an update since the last."""

    count: int = 0
    apart: int = 0
    updates: int = -1


class Feeder:
    """The driving iterator and what stands in for it.

    ``boundary(iterator)`` is called when the driving loop asks for a batch: between two steps. ``kept`` says
    why a run that was fed ahead is not the one it would have been, "" where it is.
    """

    def __init__(self, probe: Probe, boundary: Callable[[Any], None]) -> None:
        self._ahead: Known[Ahead] = Known()  # by iterator
        self._left: list[Sibling] = []  # deliver what they were given, then it is over
        self.drives = 0  # id of the driving loader, 0 unknown
        self._asked: dict[int, _Asked] = {}  # other loaders
        self.kept = ""
        self._probe = probe
        self._boundary = boundary
        self._count = probe.hooks.guard(_NAME, self._got)
        self._module: Any = None
        self._source: Sibling | None = None
        self.siblings: weakref.WeakSet[Any] = weakref.WeakSet()
        self.last: Any = lambda: None  # weak: the iterator fetched from last
        self.fetches = 0
        self.others = 0  # fetches from other loaders
        self.ended = 0  # epochs of the driving loader that ended
        self.wait_ns = 0  # in fetches, and in what starts and ends a pass over a loader
        self.gap_ns = 0  # the latter alone: making an iterator, starting and ending its workers
        self._fetching = False
        self.served = self.missed = 0  # batches that were taken ahead; that should have been
        self._mine: list[Sibling] = []
        self._loaders: Known[Any] = Known()  # of iterators, as long as these live
        self.finishing = False  # siblings end as soon as they have delivered
        self.most = 0  # batches that may be held at a time, 0 unknown

    def install(self) -> None:
        """Patch both iterators of torch."""
        self._probe.hooks.on_import("torch.utils.data.dataloader", self._install, _NAME)

    def _install(self, module: Any) -> None:
        self._module, hooks = module, self._probe.hooks
        # ``for batch in DataLoader(...)`` lets go of its loader, and other workers need its settings.
        made = hooks.guard(_NAME, self._made)
        base = module._BaseDataLoaderIter
        hooks.patch(base, "__init__", lambda original: compile_beside(original, _MADE, made=made))
        names: dict[str, Any] = {"fetch": self._fetch, "switch": hooks.switch(_NAME)}
        names["siblings"] = self.siblings
        for kind in (module._SingleProcessDataLoaderIter, module._MultiProcessingDataLoaderIter):
            hooks.patch(kind, "_next_data", lambda original: compile_beside(original, _NEXT, **names))
        hooks.around(module.DataLoader, "__iter__", _NAME, lambda *_: (None, self.gap_ns), self._passed)
        many = module._MultiProcessingDataLoaderIter
        hooks.around(many, "_shutdown_workers", _NAME, lambda args, *_: (args[0], self.gap_ns), self._passed)

    def _passed(self, token: tuple[Any, int], start: int, stop: int, result: Any) -> None:
        """A pass over the driving loader was begun, or ended: the time is input's, as a fetch's is."""
        number = self._probe.loaders.loader_of(result if token[0] is None else token[0])
        if self._fetching or not number:
            return
        if number == self.drives:
            gap_ns = token[1] + stop - start  # what ended within it is in it
            self.wait_ns += gap_ns - self.gap_ns
            self.gap_ns = gap_ns

    def _made(self, iterator: Any, loader: Any) -> None:
        if not loader.persistent_workers:  # such a loader holds its iterator
            self._loaders.put(iterator, loader)

    # -- fetching --------------------------------------------------------------------------------------------

    def _fetch(self, iterator: Any, original: Any) -> Any:
        self.last = weakref.ref(iterator)
        if not self.drives:
            self.others += 1
            return original(iterator)
        number = self._probe.loaders.loader_of(iterator)
        drives = number == self.drives
        if drives:
            self.fetches += 1
            self._boundary(iterator)
        start, self._fetching = now_ns(), True
        try:
            batch = self._next(iterator, original, drives=drives)
            self._count(number, batch)
            return batch
        except StopIteration:
            self.ended += drives
            release(iterator)
            raise
        finally:
            self._fetching = False
            if drives:
                self.wait_ns += now_ns() - start

    def _next(self, iterator: Any, original: Any, *, drives: bool) -> Any:
        ahead = self._ahead.get(iterator)
        if ahead is not None and ahead.follows(iterator):
            self.served += 1
            return ahead.pop()
        if not drives:
            return original(iterator)
        self.missed += 1
        return self._take(iterator, original)

    def _got(self, number: int, batch: Any) -> None:
        """Count a batch, and see how many like it may be held."""
        if number == self.drives:
            self.most = self.most or self._probe.hooks.guard(_NAME, most_batches)(batch) or 1
            return
        self.others += 1
        asked, updates = self._asked.setdefault(number, _Asked()), self._probe.updates
        asked.count += 1
        asked.apart += self._probe.torch.is_grad_enabled() and updates != asked.updates
        asked.updates = updates

    def beside(self) -> list[int]:
        """The loaders that feed updates as well."""
        asked = self._asked.items()
        return sorted(number for number, one in asked if one.apart >= max(_LEAST_APART, one.count / 2))

    # -- bursts ----------------------------------------------------------------------------------------------

    def fill(self, iterator: Any, num_steps: int) -> list[dict[str, Any]]:
        """Take ahead what ``num_steps`` steps ask, where nothing is ahead; facts of it."""
        if self._has_ahead(iterator):
            return []
        given = []
        while self._left and self._left[0].follows(iterator):
            sibling = self._left.pop(0)
            given += [sibling.next() for _ in range(sibling.outstanding)]
        ahead, states = Ahead(iterator), random_states()
        self._ahead.put(iterator, ahead)
        facts = ahead.take(iterator, num_steps, given)
        # The first batch of an epoch has the sampler draw.
        if not facts["workers"] and iterator._num_yielded and states != random_states():
            self.kept = "the dataset draws random numbers in the training process"
        return [facts]

    def settle(self) -> None:
        """Let all workers go on."""
        for iterator, _ in self._ahead.values():
            release(iterator)

    def _has_ahead(self, iterator: Any) -> bool:
        ahead = self._ahead.get(iterator)
        return ahead is not None and ahead.follows(iterator)

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
            release(iterator)
            return original(iterator)
        if not source.follows(iterator):
            hold(iterator)
            source.follow(iterator)
        if len(getattr(iterator, "_task_info", ())):
            return original(iterator)
        try:
            return source.next()
        except StopIteration:  # the sampler has no more: the script's iterator ends the epoch its own way
            release(iterator)
            return original(iterator)

    # -- other workers ---------------------------------------------------------------------------------------

    def use(self, sibling: Sibling, iterator: Any) -> None:
        """From now on ``sibling`` makes the batches, after what others were given."""
        hold(iterator)
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
        made = made_beside(self._module, self._probe.torch, self.loader(), changes)
        self.siblings.add(made)
        self._mine.append(Sibling(made, many=made._num_workers > 0))
        return self._mine[-1]

    def give_up(self) -> None:
        """Drop what was made for iterators that are gone: the script may come back to one that lives."""
        if self._owes():
            return
        self._left.clear()
        self._source = None
        self.close()

    def _owes(self) -> bool:
        siblings = [*self._left, *([self._source] if self._source is not None else [])]
        loader_of = self._probe.loaders.loader_of
        queued = any(self._has_ahead(o) for o, _ in self._ahead.values() if loader_of(o) == self.drives)
        return queued or any(one.outstanding and one.main() is not None for one in siblings)

    def close(self) -> None:
        """End the workers of every sibling."""
        for sibling in self._mine:
            sibling.close()
        self._mine.clear()
