"""The probe: what every observer shares inside one observed process."""

from __future__ import annotations

import os
import sys
import weakref
from _thread import get_ident
from collections.abc import Callable
from time import perf_counter_ns
from types import FrameType
from typing import Any, Final

from hotloop.clock import now_ns
from hotloop.hooks.registry import Hooks, Switch
from hotloop.probe import process
from hotloop.probe.counting import WARM_UP, StepCount
from hotloop.probe.places import Places, UserCode
from hotloop.record.writer import Writer

#: Slow housekeeping (``on_second``) runs at step ends, at most this often.
_SECOND_NS: Final = 1_000_000_000
#: ``on_tick``: at most this often, later after this part of the time so far, and once a second in the end. So
#: a run of three seconds tells as much of its course as one of days.
_FIRST_TICK_NS: Final = 100_000_000
_TICK_PART: Final = 10
#: ... and not before this many times what it took.
_TICK_COST: Final = 333


class Callbacks:
    """The lists of callbacks of one process."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.count = StepCount()
        self.callbacks: list[tuple[Switch, Callable[[], None]]] = []  # of updates
        self._on_second: list[Callable[[], None]] = []
        self._on_tick: list[Callable[[], None]] = []
        self._first_tick = self._next_second = 0
        self._on_made: list[Callable[[int], None]] = []
        self._on_exit: list[Callable[[], None]] = []
        self._on_fork: list[Callable[[], None]] = []

    def on_update(self, observer: str, function: Callable[[], None]) -> None:
        """Call at the end of every outermost ``Optimizer.step`` of the recorded thread, after its row."""
        self.callbacks = [*self.callbacks, (self.hooks.switch(observer), function)]
        self.count.callbacks = len(self.callbacks)

    def off_update(self, function: Callable[[], None]) -> None:
        """Call it no more."""
        self.callbacks = [entry for entry in self.callbacks if entry[1] != function]
        self.count.callbacks = len(self.callbacks)

    def on_second(self, observer: str, function: Callable[[], None]) -> None:
        """Call at the end of an update (or of a backward, where nothing updates), at most once a second."""
        self._on_second.append(self.hooks.guard(observer, function))

    def on_tick(self, observer: str, function: Callable[[], None]) -> None:
        """Like ``on_second``, and more often in the first ten seconds."""
        self._on_tick.append(self.hooks.guard(observer, function))

    def on_made(self, observer: str, function: Callable[[int], None]) -> None:
        """Call in a DataLoader worker between two batches, at most once a second, with how many it made."""
        self._on_made.append(self.hooks.guard(observer, function))

    def on_exit(self, observer: str, function: Callable[[], None]) -> None:
        """Call when the interpreter exits, before the files are closed; also in workers that exit orderly."""
        self._on_exit.append(self.hooks.guard(observer, function))

    def on_fork(self, observer: str, function: Callable[[], None]) -> None:
        """Call in a forked child, right after the fork. Keep it small: most children do nothing of
        interest.
        """
        self._on_fork.append(self.hooks.guard(observer, function))

    def updated(self) -> None:
        """Call what waits for the end of an update (called by the observer of optimizers)."""
        for switch, function in self.callbacks:
            try:
                function()
            except Exception as error:  # a guard without its call: this runs in every step
                self.hooks.failed(switch, error)
                self.off_update(function)

    def tick(self, now: int) -> None:
        """Slow housekeeping; due at ``count.next_tick``."""
        self._first_tick = self._first_tick or now
        part = (now - self._first_tick) // _TICK_PART
        for function in self._on_tick:
            function()
        cost = _TICK_COST * (perf_counter_ns() - now)
        self.count.next_tick = now + min(_SECOND_NS, max(_FIRST_TICK_NS, part, cost))
        if now < self._next_second:
            return
        self._next_second = now + _SECOND_NS
        for function in self._on_second:
            function()

    def made(self, count: int) -> None:
        """A worker made so many batches (called by the observer of workers)."""
        for function in self._on_made:
            function(count)


class Probe(Callbacks):
    """One process under observation.

    ``emit(kind, start, dur, value, site, obj, extra, flags)`` appends a row, ``note(type, **fields)`` a
    note, ``site(frame)`` and ``stack(frame)`` give ids. ``updates`` counts optimizer updates. All of it
    keeps working after a fork.
    """

    def __init__(self, torch: Any, raw_dir: str, *, start_ns: int) -> None:
        super().__init__(Hooks(self._observer_failed))
        self.torch = torch
        self.raw_dir = raw_dir
        self.start_ns = start_ns
        self.role = "main"
        self.worker: dict[str, Any] = {}  # what a worker adds to its process note
        self.parent_main_pid: int | None = process.parent_main_pid()
        self.rank = process.rank()
        self._introduced: tuple[Any, ...] | None = None  # rank and world_size as they were written
        self.main_thread = get_ident()
        self.hooks.owner = self.main_thread
        #: 1: in an outermost forward, 2: in a backward, 3: in a forward of the window. Behind it the window,
        #: which takes over the calls of modules; None but for a few steps.
        self.inside: list[Any] = [0, None]
        self.finished = False
        self._unseen_told = False
        self._scaled: Any = None  # weak: what GradScaler.scale returned last
        self._loss: Any = None  # weak: the accelerator tensor backward began with last
        self.facts: dict[str, Any] = {}  # small observations that notes at exit carry
        self.modules: Any = None  # the observer of modules, for the ids of modules
        self.optimizers: Any = None
        self.loaders: Any = None  # the observer of loaders, for the ids of loaders
        self.losses: Any = None  # with --evidence: what reads every loss
        self.handed: Any = None  # with --evidence: what reads every batch
        self._sources: set[str] = set()
        # Not only at exit: a run that is killed shows its lines too.
        self.on_second("sources", self.write_sources)
        self._until, self._why = os.environ.get("HOTLOOP_UNTIL", ""), ""
        if self._until:
            self.on_second("until-sure", self._end_where_told)
        # A child of multiprocessing sleeps until it makes batches or trains: most of them do neither.
        self.asleep = process.is_multiprocessing_child()
        if self.asleep:
            self.owner = 0
        eager = not self.asleep
        self.writer = Writer(raw_dir, os.getpid(), start_ns, eager=eager, on_open=self._opened)
        self.emit = self.writer.row
        self.note = self.writer.note
        self.is_user = UserCode(os.path.dirname(torch.__file__))
        self.places = Places(self.is_user, self.note)
        self.site = self.places.site
        self.stack = self.places.stack
        self.user_frame = self.places.user_frame

    def _end_where_told(self) -> None:
        """End with this step where the launcher wrote into the file ``HOTLOOP_UNTIL`` why."""
        if os.path.exists(self._until):
            with open(self._until, encoding="utf-8") as file:
                self._why = file.read()
            self.count.limit = max(1, self.count.steps)

    @property
    def updates(self) -> int:
        """Optimizer updates so far."""
        return self.count.updates

    @property
    def training_started(self) -> bool:
        """Whether a first backward was seen."""
        return self.count.backwards > 0

    @property
    def owner(self) -> int:
        """Ident of the recorded thread; 0 when nothing is recorded."""
        return self.hooks.owner

    @owner.setter
    def owner(self, ident: int) -> None:
        self.hooks.owner = ident

    # -- training -------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """A child of multiprocessing turns out to train: record its main thread."""
        if self.asleep and get_ident() == self.main_thread:
            self.asleep = False
            self.owner = self.main_thread

    def claim(self) -> bool:
        """Record the calling thread from now on, because it goes backward and the recorded one never did, or
        has ended. Of two that train at once the second one is only told of.
        """
        if self.role == "worker" or self.finished:
            return False
        if self.training_started and self.owner in sys._current_frames():
            self._tell_unseen(sys._getframe(1))
            return False
        self.asleep = False
        self.owner = get_ident()
        return True

    def _tell_unseen(self, frame: FrameType) -> None:
        """Say once that another thread trains beside the recorded one."""
        if not self._unseen_told:
            self._unseen_told = True
            user = self.user_frame(frame)
            where = f" ({user.f_code.co_filename}:{user.f_lineno})" if user is not None else ""
            self.note("warning", text=f"a second thread trains{where}: only the first one was observed")

    def note_scaled(self, scaled: Any) -> None:
        """A gradient scaler made this loss: its value is not the loss."""
        self._scaled = weakref.ref(scaled) if isinstance(scaled, self.torch.Tensor) else None

    def is_scaled(self, loss: Any) -> bool:
        """Whether a gradient scaler made this tensor last."""
        return self._scaled is not None and self._scaled() is loss

    def note_loss(self, loss: Any) -> None:
        """Backward began with this accelerator tensor; its value is seen only if the script reads it."""
        self._loss = weakref.ref(loss)

    def is_loss(self, tensor: Any) -> bool:
        """Whether backward began with this tensor last."""
        return self._loss is not None and self._loss() is tensor and not self.is_scaled(tensor)

    # -- processes ----------------------------------------------------------------------------------------

    def become_worker(self, **fields: Any) -> None:
        """This process is a DataLoader worker; ``fields`` (worker, loader ...) join its process note."""
        self.role = "worker"
        self.worker = fields
        self.owner = 0  # only its batches are of interest
        self.asleep = False

    def after_fork(self) -> None:
        """In a forked child: another process, with files of its own as soon as it does something of
        interest.
        """
        parent = self.writer.pid
        self.parent_main_pid = parent if self.role != "helper" else self.parent_main_pid
        self.start_ns = now_ns()
        self.writer.restart(os.getpid(), self.start_ns, eager=False)
        self.places.restart()
        self._sources.clear()
        self.main_thread = get_ident()
        self.owner = 0
        self.asleep = True
        self.role = "main"
        self.count.restart()
        self.inside[:] = 0, None
        self.finished = self._unseen_told = False
        self._scaled = self._loss = self._introduced = None
        self.facts.clear()
        for function in self._on_fork:
            function()

    def finish(self) -> None:
        """Write what is known only at the end, and close the files."""
        if self.finished:
            return
        self.finished = True
        if not self.writer.opened:  # a child that did nothing of interest
            self.writer.close()
            return
        for function in self._on_exit:
            function()
        self.write_sources()
        error = getattr(sys, "last_type", None)
        asked = os.environ.get("HOTLOOP_STEPS") if self.count.stopped else None
        self.note(
            "exit",
            reason="exception" if error is not None else "steps" if self.count.stopped else "exit",
            exception=getattr(error, "__name__", None),
            **(process.failure_facts(self.is_user) if error is not None else {}),
            why=self._why or (asked and f"--steps {asked}, and {WARM_UP} before them as warm-up"),
            steps=self.count.steps,
            updates=self.updates,
            **process.seed_facts(self.torch),
        )
        self.owner = 0
        self.writer.close()

    def write_sources(self) -> None:
        """Write the text of the user's files seen so far, each once."""
        for file in sorted(self.places.files - self._sources):
            self._sources.add(file)
            text = process.source_text(file)
            if text is not None:
                self.note("source", file=file, sha256=text[1], text=text[0])

    def introduce(self) -> None:
        """Write what is known of this process, and again where its rank is another by now."""
        facts = process.facts(self)
        known = facts["rank"], facts["world_size"]
        if known != self._introduced:
            self._introduced = known
            self.note("process", **facts)

    def _opened(self) -> None:
        """The writer is about to write its first note."""
        self.introduce()
        process.at_multiprocessing_exit(self.finish)

    def _observer_failed(self, observer: str, error: BaseException) -> None:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else ""
        self.note("disabled", observer=observer, error=f"{type(error).__name__}: {error}", place=where)
