"""The probe: what every observer shares inside one observed process."""

from __future__ import annotations

import os
import sys
import weakref
from _thread import get_ident
from types import FrameType
from typing import Any

from hotloop.clock import now_ns
from hotloop.hooks.registry import Hooks
from hotloop.probe import process
from hotloop.probe.callbacks import Callbacks
from hotloop.probe.places import Places, UserCode
from hotloop.record.writer import Writer


class Probe(Callbacks):
    """One process under observation.

    ``emit(kind, start, dur, value, site, obj, extra, flags)`` appends a row, ``note(type, **fields)`` a
    note, ``site(frame)`` and ``stack(frame)`` give ids. ``updates`` counts optimizer updates. All of it
    keeps working after a fork.
    """

    def __init__(self, torch: Any, raw_dir: str, *, start_ns: int, import_start_ns: int) -> None:
        super().__init__(Hooks(self._observer_failed))
        self.torch = torch
        self.raw_dir = raw_dir
        self.start_ns = start_ns
        self.import_start_ns = import_start_ns
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
        self.note(
            "exit",
            reason="exception" if error is not None else "steps" if self.count.stopped else "exit",
            exception=getattr(error, "__name__", None),
            **(process.failure_facts(self.is_user) if error is not None else {}),
            why=self._why or None,
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
