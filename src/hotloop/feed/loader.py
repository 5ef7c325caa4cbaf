"""``Loader``: torch's DataLoader with another way of carrying batches from workers to the training loop."""

from __future__ import annotations

import os
from time import perf_counter, process_time, thread_time
from typing import Any, Final

import torch
from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, MapDataPipe

from hotloop.feed import budget
from hotloop.feed.engine import Engine
from hotloop.feed.errors import FeedError, WorkerError
from hotloop.feed.iterating import (
    VERSION,
    InlineIterator,
    Position,
    generators_of,
    local_reader,
    may_be_local,
)
from hotloop.feed.reading import Reader, gather_of
from hotloop.feed.ring import SPARE_SLOTS, STARTING
from hotloop.feed.sizing import Fed, Sizer
from hotloop.feed.throughput import INLINE, Method, Setting
from hotloop.feed.workers import Member, Task

_END_WITHIN_S: Final = 5.0
#: Timing a batch costs some 30 us: once settled, of short iterations only so many of so many are timed.
_CHEAP_S: Final = 5e-3
_TIMED: Final = 32
_OF: Final = 256


def sizer_for(loader: Any) -> Sizer:
    """The controller for a loader on this machine: what it may choose among.

    The training process itself only makes batches when nothing depends on being in a worker.
    """
    methods: list[Method] = ["process"]
    if may_be_local(loader):
        methods.append("inline")
    free = budget.usable_memory_bytes() - budget.headroom_bytes()
    return Sizer(
        cores=budget.usable_cores(),
        memory_bytes=max(0, free) // budget.local_world_size(),
        methods=methods,
    )


class AutoEngine(Engine):
    """The iterator of ``num_workers="auto"``."""

    def _begin(self, loader: Any, resumed: dict[str, Any] | None) -> None:
        self._sizer: Sizer = loader.sizing
        self._setting = self._sizer.setting
        self._num_workers = self._setting.num_workers
        self._room = SPARE_SLOTS + self._num_workers * int(loader.prefetch_factor)
        context = loader.multiprocessing_context or torch.multiprocessing
        #: A forked worker would share the positions of files that the dataset opened in this process.
        self._shares_files = context.get_start_method() == "fork" and gather_of(self._dataset) is None
        self._local: Reader | None = None
        self._ended: list[Any] = []  # processes
        self._given_at = self._given_cpu_s = 0.0
        self._made: tuple[float, float, int, Method] = (0.0, 0.0, 0, self._setting.method)
        self._num_asked = 0
        self._is_cheap = False
        super()._begin(loader, resumed)

    # -- an epoch --------------------------------------------------------------------------------------------

    def _reset(self, loader: Any, first_iter: bool = False, resumed: dict[str, Any] | None = None) -> None:
        self._sizer.begin_epoch()
        self._given_at = 0.0
        self._make_room()
        super()._reset(loader, first_iter, resumed)
        self._dispatch()

    def _dispatch(self) -> bool:
        """Give out tasks until as many are under way as are wanted; whether there was one to give."""
        given = False
        while len(self._task_info) < self._setting.num_ahead and super()._dispatch():
            given = True
        return given

    def _choose(self) -> Member:
        """The wanted worker with the least to do; one that is still starting only if all are.

        What it has made and what waits for its turn does not count: a faster one takes more of them.
        """
        wanted = self._wanted() or [self.add_worker()]
        ready = [member for member in wanted if not self._is_starting(member)]
        return min(ready or wanted, key=lambda member: (member.num_to_make, member.num_tasks))

    def _wanted(self) -> list[Member]:
        return self._workers[: self._setting.num_workers]

    def _is_starting(self, member: Member) -> bool:
        return bool(self._ring.progress[2 + 2 * member.number] == STARTING)

    def _next_data(self) -> Any:
        self._num_asked += 1
        if self._is_cheap and self._num_asked % _OF < _OF - _TIMED:
            self._given_at = 0.0
            return self._next_batch()
        asked, cpu_s = perf_counter(), process_time()
        batch = self._next_batch()
        now = perf_counter()
        if self._given_at:
            wall_s, made_cpu_s, num_bytes, method = self._made
            self._observe(
                Fed(
                    wait_s=now - asked,
                    step_s=asked - self._given_at,
                    fetch_s=wall_s,
                    fetch_cpu_s=made_cpu_s,
                    num_bytes=num_bytes,
                    method=method,
                    num_workers=sum(not self._is_starting(member) for member in self._wanted()),
                    main_cpu_s=cpu_s - self._given_cpu_s,
                )
            )
        self._given_cpu_s = process_time()
        self._given_at = perf_counter()
        return batch

    def _next_batch(self) -> Any:
        if self._setting != INLINE or self._task_info:
            return super()._next_data()
        try:
            index = self._draw()
        except StopIteration:
            self._end_epoch()
            raise
        self._count(index)
        self._rcvd_idx = self._send_idx
        self._position.num_given += 1  # one that cannot be made counts too, as from a worker
        began, cpu_s = perf_counter(), thread_time()
        if self._local is None:
            self._local = local_reader(self._setup.reading)
        batch = self._local.read(index)
        self._made = (perf_counter() - began, thread_time() - cpu_s, 0, "inline")
        return self._pinned(batch)

    def _hand_out(self, task: Task) -> Any:
        reply = task.reply
        assert reply is not None
        self._made = (reply.wall_ns / 1e9, reply.cpu_ns / 1e9, reply.used, "process")
        return super()._hand_out(task)

    # -- sizing ----------------------------------------------------------------------------------------------

    def _observe(self, fed: Fed) -> None:
        sizer = self._sizer
        wanted = sizer.observe(fed)
        if wanted != self._setting:
            self._apply(wanted)
            self._is_cheap = False
            return
        surplus = len(self._workers) > self._setting.num_workers
        if sizer.is_settled and surplus:
            self._retire()
        self._is_cheap = sizer.is_settled and not surplus and fed.wait_s + fed.step_s < _CHEAP_S

    def _apply(self, wanted: Setting) -> None:
        living = len(self._workers)
        if wanted.num_workers > living and self._local is not None and self._shares_files:
            why = "batches were made here: a worker forked now would share the positions of open files"
            wanted = self._sizer.limit(living, why)
        self._setting = wanted
        self._prefetch_factor = max(1, wanted.prefetch_factor)
        self._make_room()
        limit = self._ring.limit
        try:
            for _ in range(wanted.num_workers - living):
                self.add_worker()
        except WorkerError as error:  # no more can be had: these will do
            self._setting = self._sizer.limit(len(self._workers), str(error.message))
        self._ring.limit = limit
        self._dispatch()

    def _make_room(self) -> None:
        """Slots for all batches ahead."""
        needed = self._setting.num_ahead + SPARE_SLOTS
        self._ring.limit += max(0, needed - self._room)
        self._room = max(self._room, needed)

    def _retire(self) -> None:
        """End the last workers as long as they are not wanted and have nothing left to hand out."""
        self._ended = [process for process in self._ended if process.is_alive()]  # which also reaps
        while len(self._workers) > self._setting.num_workers and not self._workers[-1].num_tasks:
            member = self._workers.pop()
            self._poll.unregister(member.link.replies)
            del self._by_descriptor[member.link.replies]
            member.link.close()
            self._ended.append(member.process)

    def _shutdown_workers(self) -> None:
        super()._shutdown_workers()
        if self._pid == os.getpid():
            while self._ended:
                self._ended.pop().join(_END_WITHIN_S)


_SEEDS = ("worker", "sample")


class Loader(DataLoader):  # type: ignore[misc]
    """A drop-in for ``torch.utils.data.DataLoader``: the same arguments, the same batches bit for bit.

    A batch's tensors lie in a recycled slot of shared memory and stay valid as long as anything holds them:
    the slot is written again when the last tensor (or view, or array made from one) is gone. Who keeps many
    batches gets copies; a copy to the device on a stream of your own needs the batch until it is done.

    Args:
        copy: Always hand out copies.
        debug: Fill slots that nothing holds any more with 0xFF (not a number).
        num_workers: As torch's; or ``"auto"``: begin with one worker, measure, and change their number and
            their batches ahead while it runs; where none help, the training process makes the batches
            (:attr:`sizing` says what was chosen and why). Which worker makes a batch is then not fixed:
            random transforms repeat only with ``seed_by="sample"``.
        seed_by: ``worker``: random numbers as with torch, they depend on ``num_workers``. ``sample``: every
            sample of an epoch has a seed of its own, whoever reads it and with however many workers; samples
            are then read one by one.

    Raises:
        ValueError: what torch refuses; an unknown ``seed_by``, or one that the dataset rules out.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int | str = 0,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        copy: bool = False,
        debug: bool = False,
        seed_by: str = "worker",
    ) -> None:
        if seed_by not in _SEEDS:
            raise ValueError(f"seed_by must be one of {_SEEDS}, not {seed_by!r}")
        if seed_by == "sample" and isinstance(dataset, IterableDataset):
            raise ValueError("seed_by='sample' needs samples with an index: an IterableDataset has none")
        self._auto = num_workers == "auto"
        if self._auto and isinstance(dataset, IterableDataset):
            raise ValueError(
                "num_workers='auto' needs a dataset with indices: an IterableDataset divides its samples by "
                "the number of workers, which must not change while it is read"
            )
        if isinstance(num_workers, str) and not self._auto:
            raise ValueError(f"num_workers must be a number or 'auto', not {num_workers!r}")
        self.copy = copy
        self.debug = debug
        self.seed_by = seed_by
        self._position: Position | None = None  # of the iterator made last
        self._resumed: dict[str, Any] | None = None
        extra = {} if in_order else {"in_order": False}  # torch 2.6 has it, a subclass may not
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            1 if self._auto else num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            **extra,
        )
        self._sizer: Sizer | None = None

    @property
    def sizing(self) -> Sizer | None:
        """What ``num_workers="auto"`` has chosen so far and why, to print; None without it."""
        if self._auto and self._sizer is None:
            self._sizer = sizer_for(self)
        return self._sizer

    def __getstate__(self) -> dict[str, Any]:
        """Settings and where it was to go on: what belongs to this process's iterators stays here."""
        return {**self.__dict__, "_position": None, "_iterator": None, "_sizer": None}

    # -- iterating -------------------------------------------------------------------------------------------

    def __iter__(self) -> Any:
        kept: Any = self.__dict__["_iterator"]
        if not isinstance(kept, Engine):
            return super().__iter__()
        if kept._shutdown or self._resumed is not None:
            self._iterator = None
            kept._shutdown_workers()
        return super().__iter__()

    def _get_iterator(self) -> Any:
        if isinstance(self.dataset, IterDataPipe | MapDataPipe):
            return super()._get_iterator()  # which seeds and shards their graph
        resumed, self._resumed = self._resumed, None
        if self._auto:
            return AutoEngine(self, resumed)
        if self.num_workers == 0:
            return InlineIterator(self, resumed)
        self.check_worker_number_rationality()
        return Engine(self, resumed)

    # -- resuming --------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the iterator made last is in its epoch: plain data and uint8 tensors.

        The global random generators are the caller's to keep: only those given to the loader or its sampler
        are in it.
        """
        position = self._position
        return {
            "version": VERSION,
            "in_order": getattr(self, "in_order", True),
            "iterator": self._resumed if position is None else None if position.is_over else position.state(),
            "generators": [one.get_state() for one in generators_of(self)],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next ``iter()`` go on where ``state`` was taken: the same samples in the same order.

        Random transforms in workers draw new numbers, unless ``seed_by="sample"``.

        Raises:
            FeedError: it is no state of this version's Loader, or of one with ``in_order=False``.
        """
        if state.get("version") != VERSION:
            raise FeedError(f"not a state of this version's Loader: version {state.get('version')!r}")
        if not state["in_order"]:
            raise FeedError("batches of in_order=False have no order in which another loader could go on")
        for generator, one in zip(generators_of(self), state["generators"], strict=True):
            generator.set_state(one)
        self._resumed, self._position = state["iterator"], None
