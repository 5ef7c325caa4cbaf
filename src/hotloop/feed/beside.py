"""Epochs that need no workers: where every sample lies in a cache or a bake, this process copies them itself.

Processes that copy batches and wake each other leave cores idle; here a thread beside training gathers, and
training itself makes the batch it would otherwise wait for. No code of the user's runs there: no sample
is read, no random number is drawn.
"""

from __future__ import annotations

import os
import queue
from typing import Any, Final

from torch.utils.data import default_collate

from hotloop.feed import budget, pinning
from hotloop.feed.engine import Engine
from hotloop.feed.inline import LocalReader, may_be_local
from hotloop.feed.member import Arrivals, Task
from hotloop.feed.reading import Reading, gather_of, is_at_hand
from hotloop.feed.resume import as_tensor, from_tensor
from hotloop.feed.ring import Slot
from hotloop.feed.threads import SPARE, end, made, started
from hotloop.feed.worker import Reply

#: Batches under way beyond those the threads are at: more would only leave the processor's caches.
_WAITING: Final = 1


def suits(loader: Any) -> bool:
    """Whether some epoch of a loader may need no workers.

    Slots of workers are pinned and watched (``debug``); what is gathered here is not.
    """
    return (
        loader.worker_method == "beside"
        and gather_of(loader.dataset) is not None
        and loader.batch_sampler is not None
        and loader.collate_fn is default_collate
        and may_be_local(loader)
        and getattr(loader, "in_order", True)
        and not loader.debug
        and not (loader.pin_memory and pinning.can_pin(loader.pin_memory_device or None))
    )


class _Crew:
    """Threads that gather, with what the engine asks of a worker. Tasks not begun yet may be taken back."""

    number = -1

    def __init__(self, reading: Reading, num_threads: int, *, copy: bool) -> None:
        self.num_tasks = self.num_to_make = 0
        self.done: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self.tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._reading = reading
        self._copy = copy
        self._own = self._reader()
        self._threads = [started(self._serve, (), number, self.tasks) for number in range(num_threads)]

    def wait(self) -> Reply:
        """The next batch that is done; one that nobody has begun is made by the caller."""
        if self.done.empty():
            try:
                task = self.tasks.get_nowait()
            except queue.Empty:
                pass
            else:
                assert task is not None
                try:
                    return self._made(self._own, task)
                except BaseException:  # interrupted: whoever catches that may go on
                    self.tasks.put(task)
                    raise
        return self.done.get()

    def qsize(self) -> int:
        """Batches that are done and were not taken in."""
        return self.done.qsize()

    def close(self) -> None:
        """Let the threads end after what they are at."""
        end(self._threads)
        self._threads.clear()

    def _reader(self) -> LocalReader:
        return LocalReader(self._reading, spare=SPARE, copy=self._copy, debug=False)

    def _serve(self) -> None:
        reader = self._reader()
        while (task := self.tasks.get()) is not None:
            self.done.put(self._made(reader, task))

    def _made(self, reader: LocalReader, task: Task) -> Reply:
        return made(self._reading, reader, task.number, 0, task.index)


class BesideEngine(Engine):
    """An iterator whose epochs have workers until every sample is at hand, and none from then on."""

    def _begin(self, loader: Any, resumed: dict[str, Any] | None) -> None:
        self._crew: _Crew | None = None
        self._num_begun = 0  # tasks of the epoch that the crew has got
        self._is_at_hand = is_at_hand(self._dataset) and not (resumed and resumed["position"]["beyond"])
        super()._begin(loader, resumed)

    def _start_workers(self) -> None:
        if not self._is_at_hand:
            super()._start_workers()

    def _reset(self, loader: Any, first_iter: bool = False, resumed: dict[str, Any] | None = None) -> None:
        if not first_iter:
            self._drain()
            self._is_at_hand = self._is_at_hand or is_at_hand(self._dataset)
        if self._is_at_hand and self._crew is None:
            most = max(1, budget.usable_cores() - 1)
            self._crew = _Crew(self._setup.reading, min(self._num_workers, most), copy=self._copies)
            self._most_ahead = min(self._num_workers, most) + _WAITING
        self._num_begun = 0
        self._data_queue = self._crew if self._is_at_hand else Arrivals(self._poll)
        super()._reset(loader, first_iter, resumed)

    def _dispatch(self) -> bool:
        crew = self._crew
        if crew is None or not self._is_at_hand:
            return super()._dispatch()
        try:  # as early as for workers: the sampler may draw from a generator that training uses too
            index = self._draw()
            task = Task(self._send_idx, crew, _NO_SLOT, index)  # type: ignore[arg-type]  # the same attributes
            self._count(index)
            self._task_info[task.number] = task
            self._tasks_outstanding += 1
        except StopIteration:
            return False
        finally:
            while self._num_begun < min(self._send_idx, self._rcvd_idx + self._most_ahead):
                begun = self._task_info.get(self._num_begun)  # None: interrupted as it was drawn
                self._num_begun += 1
                if begun is not None:
                    crew.num_tasks += 1
                    crew.num_to_make += 1
                    crew.tasks.put(begun)
        return True

    def _drain(self) -> None:
        if self._is_at_hand:
            for number in [number for number in self._task_info if number >= self._num_begun]:
                del self._task_info[number]
                self._tasks_outstanding -= 1
        super()._drain()

    def _wait(self, deadline: float | None) -> None:
        crew = self._crew
        if crew is None or not crew.num_to_make:
            super()._wait(deadline)
        else:
            self._arrived(crew, crew.wait())  # type: ignore[arg-type]

    def _free(self, task: Task) -> None:
        if task.slot is not _NO_SLOT:
            super()._free(task)

    def state(self) -> dict[str, Any]:
        """Where this iterator is; workers that make the rest need not make again what was made here."""
        found = super().state()
        if self._is_at_hand:
            noted = from_tensor(found["states"])
            states = {
                worker: (self._send_idx, noted.get(worker, (0, None))[1])
                for worker in range(self._num_workers)
            }
            found["states"] = as_tensor(states)
        return found

    def _skip(self, state: dict[str, Any]) -> None:
        if not self._is_at_hand:
            super()._skip(state)
            return
        done = state["position"]["num_done"]
        for number in range(done):
            self._count(self._draw_again(number))
            self._position.handed_out(number)
        self._position.check(state["position"])
        self._rcvd_idx = self._num_begun = self._num_yielded = done

    def _shutdown_workers(self) -> None:
        if self._crew is not None and not self._shutdown and self._pid == os.getpid():
            self._crew.close()
        super()._shutdown_workers()


#: Batches made here have memory of their own.
_NO_SLOT: Final = Slot(-1)
