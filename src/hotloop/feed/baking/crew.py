"""Worker processes that write parts: one pipe each, a part at a time, none left behind."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch

from hotloop.feed.baking import folder as folders
from hotloop.feed.baking.manifest import Manifest
from hotloop.feed.baking.part import SampleError, write_part
from hotloop.feed.errors import BakeError

#: A worker says how far it is this often.
_REPORT_S = 0.2
#: A worker that waits looks this often whether its parent lives.
_PARENT_POLL_S = 1.0

Advance = Callable[[int], None]


def write_parts(
    folder: Path,
    manifest: Manifest,
    dataset: Any,
    parts: Iterable[int],
    *,
    num_workers: int,
    context: Any,
    advance: Advance,
) -> None:
    """Write ``parts`` with ``num_workers`` processes (0: in this one); ``advance(n)`` follows the samples.

    A part whose worker was killed is given to another once.

    Raises:
        BakeError: a sample raised, the disk is full, or a worker was killed twice on one part.
    """
    if num_workers == 0:
        for part in parts:
            with told(part, folder):
                write_part(folder, manifest, dataset, part, on_sample=lambda: advance(1))
        return
    crew = _Crew(folder, manifest, dataset, num_workers, context, advance)
    try:
        crew.run(list(parts))
    finally:
        crew.end()


@contextlib.contextmanager
def told(part: int, folder: Path) -> Iterator[None]:
    """Turns what goes wrong while writing a part into a :class:`BakeError` that names it."""
    try:
        yield
    except SampleError as error:
        raise failure(part, error.index, _trace(error)) from error.__cause__
    except OSError as error:
        if folders.is_no_space(error):
            raise folders.no_space(folder, f"it ran full while part {part} was written") from error
        raise BakeError(f"part {part} could not be written to {folder}: {error}") from error


def failure_of(write: Callable[[], None], part: int, folder: Path) -> tuple[str, str | None] | None:
    """Runs ``write``; the words and the hint of what went wrong, which cross any process boundary."""
    try:
        with told(part, folder):
            write()
    except BakeError as error:
        return error.message, error.hint
    return None


def failure(part: int, index: int, trace: str) -> BakeError:
    """The error for a dataset that raised."""
    return BakeError(
        f"sample {index} (part {part}) could not be baked:\n{trace.rstrip()}",
        hint="finished parts are kept: once the sample can be read, run the same bake again",
    )


def _trace(error: SampleError) -> str:
    cause = error.__cause__ or error
    return "".join(traceback.format_exception(cause))


class _Worker:
    def __init__(self, folder: Path, manifest: Manifest, dataset: Any, context: Any) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(theirs, self.pipe, folder, manifest, dataset), daemon=True
        )
        self.process.start()
        theirs.close()
        self.part: int | None = None
        self.counted = 0

    def give(self, part: int | None) -> None:
        """Send a part to write, or None: there are no more.

        Closing the pipe would not say so: siblings hold copies of it.
        """
        self.part, self.counted = part, 0
        with contextlib.suppress(BrokenPipeError):  # it died: the sentinel tells
            self.pipe.send(part)


class _Crew:
    def __init__(
        self, folder: Path, manifest: Manifest, dataset: Any, num_workers: int, context: Any, advance: Advance
    ) -> None:
        self._folder = folder
        self._advance = advance
        self._lost: set[int] = set()
        self._start: Callable[[], _Worker] = lambda: _Worker(folder, manifest, dataset, context)
        self._num_workers = num_workers
        self._workers: list[_Worker] = []

    def run(self, parts: list[int]) -> None:
        waiting = parts[::-1]
        for _ in range(min(self._num_workers, len(parts))):
            self._workers.append(self._start())
            self._workers[-1].give(waiting.pop())
        while self._workers:
            by_handle: dict[Any, _Worker] = {w.pipe: w for w in self._workers}
            by_handle |= {w.process.sentinel: w for w in self._workers}
            ready = connection.wait(list(by_handle))
            for worker in {id(w): w for w in (by_handle[handle] for handle in ready)}.values():
                self._hear(worker, waiting)

    def end(self) -> None:
        """Stop whoever still works."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()

    def _hear(self, worker: _Worker, waiting: list[int]) -> None:
        try:
            while worker.pipe.poll():
                self._take(worker, worker.pipe.recv(), waiting)
                if worker not in self._workers:
                    return
        except (EOFError, ConnectionResetError):
            self._replace(worker, waiting)

    def _take(self, worker: _Worker, message: tuple[Any, ...], waiting: list[int]) -> None:
        kind, *rest = message
        if kind == "samples":
            worker.counted += rest[0]
            self._advance(rest[0])
        elif kind == "done":
            self._advance(rest[0])
            if waiting:
                worker.give(waiting.pop())
            else:
                worker.give(None)
                self._dismiss(worker)
        else:
            raise BakeError(rest[0], hint=rest[1])

    def _dismiss(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.pipe.close()
        worker.process.join()

    def _replace(self, worker: _Worker, waiting: list[int]) -> None:
        self._dismiss(worker)
        part = worker.part
        assert part is not None
        self._advance(-worker.counted)
        if part in self._lost:
            raise BakeError(
                f"a worker that wrote part {part} was killed twice ({_cause(worker.process.exitcode)})",
                hint="finished parts are kept: run it again, with fewer workers if memory is short",
            )
        self._lost.add(part)
        self._workers.append(self._start())
        self._workers[-1].give(part)


def _cause(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        name = signal.Signals(-exit_code).name
        return f"{name}, probably for want of memory" if name == "SIGKILL" else name
    return f"exit code {exit_code}"


class _Parent:
    """Tells a worker whether the process that started it is gone, whatever the start method."""

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._process = multiprocessing.parent_process()

    def is_gone(self) -> bool:
        # A sibling may hold the other end of what is_alive looks at; forkserver's pid is not the parent's.
        return os.getppid() != self._pid or (self._process is not None and not self._process.is_alive())


def _work(
    pipe: connection.Connection,
    other_end: connection.Connection,
    folder: Path,
    manifest: Manifest,
    dataset: Any,
) -> None:
    other_end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells when to end
    torch.set_num_threads(1)
    parent = _Parent()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError), folders.working(folder):
        while not parent.is_gone():
            if pipe.poll(_PARENT_POLL_S):
                part = pipe.recv()
                if part is None:
                    return
                # A parent that died just now may have a successor already, if this is the first part.
                if not parent.is_gone():
                    _write_one(pipe, parent, folder, manifest, dataset, part)


def _write_one(
    pipe: connection.Connection, parent: _Parent, folder: Path, manifest: Manifest, dataset: Any, part: int
) -> None:
    waiting, last = 0, time.monotonic()

    def on_sample() -> None:
        nonlocal waiting, last
        waiting += 1
        now = time.monotonic()
        if now - last >= _REPORT_S:
            if parent.is_gone():
                os._exit(1)
            pipe.send(("samples", waiting))
            waiting, last = 0, now

    failed = failure_of(
        lambda: write_part(folder, manifest, dataset, part, on_sample=on_sample), part, folder
    )
    pipe.send(("done", waiting) if failed is None else ("failed", *failed))


def default_context(method: Any) -> Any:
    """The multiprocessing context for a name, a context, or None (Python's default)."""
    return multiprocessing.get_context(method) if method is None or isinstance(method, str) else method
