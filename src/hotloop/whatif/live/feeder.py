"""Whose batches the training loop gets: the script's iterators, a burst taken ahead, or other workers.

Works below ``__next__`` of torch's two iterators: bursts on every iterator that each step asks, other workers
on the one that drives the training. Order is kept whatever happens: batches taken ahead are handed out first,
what workers were already given is delivered before others go on, and all draw indices from the one sampler.
"""

from __future__ import annotations

import random
import sys
import weakref
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from hotloop.clock import now_ns
from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.identity import Known
from hotloop.remedy.live.loader import consistent
from hotloop.remedy.live.trial import PATIENCE_S, end_workers, message_of, why_not
from hotloop.whatif.live.ahead import Ahead, hold, release
from hotloop.whatif.live.beside import Beside
from hotloop.whatif.live.room import most_batches

if TYPE_CHECKING:
    from hotloop.hooks.registry import Hooks
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

_NAME = "what-if"


def patch_next_data(
    hooks: Hooks, module: Any, observer: str, fetch: Callable[[Any, Any], Any], but: Collection[Any] = ()
) -> None:
    """Have ``fetch(iterator, original)`` give the batches of torch's two iterators in the recorded thread,
    of all ``but`` these.
    """
    switch = hooks.switch(observer)
    for kind in (module._SingleProcessDataLoaderIter, module._MultiProcessingDataLoaderIter):
        hooks.patch(
            kind,
            "_next_data",
            lambda original: compile_beside(original, _NEXT, fetch=fetch, switch=switch, siblings=but),
        )


class Feeder:
    """The driving iterator and what stands in for it.

    ``boundary(iterator)`` is called when the driving loop asks for a batch: between two steps;
    ``moved(iterator)`` when another loader drives from here on. ``kept`` says why a run that was fed ahead is
    not the one it would have been, "" where it is.
    """

    def __init__(
        self, probe: Probe, boundary: Callable[[Any], None], moved: Callable[[Any], None] = lambda _: None
    ) -> None:
        self._probe = probe
        self._boundary, self._moved = boundary, moved
        self._count = probe.hooks.guard(_NAME, self._got)
        self._module: Any = None
        self._ahead: Known[Ahead] = Known()  # by iterator
        self._source: Sibling | None = None
        self._left: list[Sibling] = []  # deliver what they were given, then it is over
        self.siblings: weakref.WeakSet[Any] = weakref.WeakSet()
        self.last: Any = lambda: None  # weak: the iterator fetched from last
        self.drives = 0  # id of the driving loader, 0 unknown
        self._anew = False  # another is built for each pass: it was seen to be
        self._passes = 0  # over such others, built where the driving one was, since that began to drive
        self.fetches = 0
        self.beside = Beside()
        self.others = 0  # fetches from loaders that train no update, as far as is known
        self.restarts = 0  # epochs that another loader of the step began
        self.ended = 0  # epochs of the driving loader that ended
        self.wait_ns = 0  # in fetches, and in what starts and ends a pass over a loader
        self.gap_ns = 0  # the latter alone: making an iterator, starting and ending its workers
        self._fetching = False
        self.served = self.missed = 0  # batches that were taken ahead; that should have been
        self._mine: list[Sibling] = []
        self._loaders: Known[Any] = Known()  # of iterators, as long as these live
        self.finishing = False  # siblings end as soon as they have delivered
        self._most: dict[int, int] = {}  # batches of a loader that may be held at a time
        self.kept = ""

    def install(self) -> None:
        """Patch both iterators of torch."""
        self._probe.hooks.on_import("torch.utils.data.dataloader", self._install, _NAME)

    def _install(self, module: Any) -> None:
        self._module, hooks = module, self._probe.hooks
        # ``for batch in DataLoader(...)`` lets go of its loader, and other workers need its settings.
        made = hooks.guard(_NAME, self._made)
        base = module._BaseDataLoaderIter
        hooks.patch(base, "__init__", lambda original: compile_beside(original, _MADE, made=made))
        patch_next_data(hooks, module, _NAME, self._fetch, self.siblings)
        hooks.around(module.DataLoader, "__iter__", _NAME, lambda *_: (None, self.gap_ns), self._passed)
        many = module._MultiProcessingDataLoaderIter
        hooks.around(many, "_shutdown_workers", _NAME, lambda args, *_: (args[0], self.gap_ns), self._passed)

    def _passed(self, token: tuple[Any, int], start: int, stop: int, result: Any) -> None:
        """A pass over a loader of each step was begun, or ended: the time is input's, as a fetch's is."""
        number = self._probe.loaders.loader_of(result if token[0] is None else token[0])
        if self._fetching or not number:
            return
        if token[0] is None and self._is_alike(number) and self._probe.torch.is_grad_enabled():
            self._passes += 1
            if self._anew:
                self.succeed(result)
        if number == self.drives or number in self.beside.every_step():
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
            self._count(number, iterator, batch, drives=drives)
            return batch
        except StopIteration:
            self.ended += drives
            release(iterator)
            raise
        finally:
            self._fetching = False
            if drives or self.beside.some(number) or number in self.beside.every_step():
                self.wait_ns += now_ns() - start

    def _next(self, iterator: Any, original: Any, *, drives: bool) -> Any:
        ahead = self._ahead.get(iterator)
        if ahead is not None and ahead.follows(iterator):
            self.served += 1
            return ahead.pop()
        self.missed += 1
        if drives:
            return self._take(iterator, original)
        release(iterator)
        return original(iterator)

    def _got(self, number: int, iterator: Any, batch: Any, *, drives: bool) -> None:
        """Count a batch, and see how many like it may be held."""
        if drives:
            self.beside.step()
        else:
            some = self.beside.some(number)
            self.others += not some
            self.missed -= some  # it is told that this loader is not free
            self.restarts += number in self.beside.every_step() and not iterator._num_yielded
            training = self._probe.torch.is_grad_enabled()
            self.beside.ask(number, iterator, updates=self._probe.updates, training=training)
        if number not in self._most:
            self._most[number] = self._probe.hooks.guard(_NAME, most_batches)(batch) or 1

    @property
    def most(self) -> int:
        """Steps whose batches may be held at a time, 0 unknown."""
        every = {self.drives: 1, **self.beside.every_step()}
        shares = [
            count / max(1, self._most[number]) for number, count in every.items() if number in self._most
        ]
        return max(1, int(1 / sum(shares))) if shares else 0

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

    # -- bursts ----------------------------------------------------------------------------------------------

    def fill(self, iterator: Any, num_steps: int) -> list[dict[str, Any]]:
        """Take ahead what ``num_steps`` steps ask of each loader that has nothing ahead; facts of each."""
        wanted = [(self.drives, iterator, 1)]
        wanted += [
            (n, self.beside.iterator(n), count) for n, count in sorted(self.beside.every_step().items())
        ]
        return [
            {"place": place, "loader": number, "per_step": count, **self._fill(one, num_steps * count)}
            for place, (number, one, count) in enumerate(wanted)
            if one is not None and not self._has_ahead(one)
        ]

    def _has_ahead(self, iterator: Any) -> bool:
        ahead = self._ahead.get(iterator)
        return ahead is not None and ahead.follows(iterator)

    def _fill(self, iterator: Any, count: int) -> dict[str, Any]:
        given = []
        while self._left and self._left[0].follows(iterator):
            sibling = self._left.pop(0)
            given += [sibling.next() for _ in range(sibling.outstanding)]
        ahead, states = Ahead(iterator), self._random_states()
        self._ahead.put(iterator, ahead)
        facts = ahead.take(iterator, count, given)
        # The first batch of an epoch has the sampler draw.
        if not facts["workers"] and iterator._num_yielded and states != self._random_states():
            self.kept = "the dataset draws random numbers in the training process"
        return facts

    def settle(self) -> None:
        """Let all workers go on."""
        for iterator, _ in self._ahead.values():
            release(iterator)

    def _random_states(self) -> tuple[Any, ...]:
        numpy = sys.modules.get("numpy")
        legacy = numpy.random.get_state()[1].tobytes() if numpy is not None else b""
        state = self._probe.torch.default_generator.get_state()
        return random.getstate(), legacy, bytes(state.numpy())

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

    def is_torchs(self, loader: Any) -> bool:
        """Whether a loader is a DataLoader, and not only given to torch's iterators."""
        return isinstance(loader, self._module.DataLoader)

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
        other.__dict__["timeout"] = (other.timeout or PATIENCE_S) if many else 0
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
        number = self._probe.loaders.loader_of(iterator)
        return number if self._is_alike(number) and not self._owes() else 0

    def _is_alike(self, number: int) -> bool:
        loaders = self._probe.loaders
        return loaders.built_at(number) == loaders.built_at(self.drives) != 0 and number != self.drives

    def succeed(self, iterator: Any) -> bool:
        """Whether an iterator's loader takes the driving loader's place; it drives from now on then."""
        number = self.successor(iterator)
        if number:
            self._anew, self._passes = self._passes == 1, 0  # more: who knows which of them trains
            self.drives = number
            self.ended += 1
            self.give_up()
            self._moved(iterator)
        return number != 0

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


class Sibling:
    """An iterator of our own that draws its indices from the script's sampler."""

    def __init__(self, iterator: Any, *, many: bool) -> None:
        self._iterator = iterator
        self._many = many
        self._original = type(iterator)._next_data.__wrapped__
        self.main: Any = lambda: None  # weak: the script's iterator it stands in for
        self.failed = ""  # why it gives no more batches, and the run with it
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
        try:
            return self._original(self._iterator)
        except StopIteration:
            raise
        except Exception as error:
            self.failed = f"its workers failed, and the command with them: {message_of(error)}"
            raise

    def close(self) -> None:
        """End its workers."""
        if self._many:
            end_workers(self._iterator)
