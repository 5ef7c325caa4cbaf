"""``hotloop.observe()`` and ``%%hotloop``: what runs inside of a block is observed, in this very process.

What ``hotloop run`` does around a command is done here by a thread; the probe comes late and goes again.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import perf_counter_ns, time
from typing import Any, Final

from hotloop.flow.examine import examine, publish, read
from hotloop.flow.load import Run
from hotloop.flow.observe import new_run_folder
from hotloop.launch.command import Outcome
from hotloop.launch.machine import facts
from hotloop.launch.system import Sampler
from hotloop.probe.install import current, install, uninstall
from hotloop.record.store import Store

_EVERY_S: Final = 1.0
_LAST: Final = ("last_type", "last_value", "last_traceback")


@dataclass
class Seen:
    """What a block did; ``run`` is there when it has ended, ``error`` is what it raised."""

    folder: Path
    run: Run | None = None
    error: BaseException | None = None


@contextmanager
def observe(out: str | os.PathLike[str] | None = None) -> Iterator[Seen]:
    """Observe what runs inside of the ``with``, of the thread that entered it.

    ``out`` is a new folder for the recording (default: hotloop-runs/TIME-notebook). In a process that is
    observed already the block belongs to that recording, and has no ``run``.
    """
    if (probe := current()) is not None:
        print("hotloop: this block is a part of what is observed already", file=sys.stderr)
        yield Seen(Path(probe.raw_dir).parent)
        return
    torch = importlib.import_module("torch")
    seen = Seen(new_run_folder(Path(out) if out is not None else None, ["notebook"]))
    store = Store(seen.folder)
    store.begin([], facts())
    over, begun_s, begun_ns = Event(), time(), perf_counter_ns()
    watch = Thread(target=_watch, args=(store, seen, over, begun_s, begun_ns), daemon=True)
    install(torch, str(store.raw_dir), start_ns=begun_ns, import_start_ns=begun_ns)
    watch.start()
    try:
        yield seen
    except BaseException as error:
        seen.error = error
        raise
    finally:
        _end_probe(seen.error)
        over.set()
        watch.join()
        words = str(seen.folder / "report.html")
        try:
            examination = examine(read(seen.folder))
            seen.run = Run(examination=examination, report=publish(examination, seen.folder))
        except Exception as error:  # what the block made is worth more
            words = f"no report could be made: {type(error).__name__}: {error}"
        print(f"hotloop: {words}", file=sys.stderr)


def _watch(store: Store, seen: Seen, over: Event, begun_s: float, begun_ns: int) -> None:
    """The launching side. SQLite wants one thread from its first row to the last."""
    sampler = Sampler()
    with suppress(Exception):  # without samples less is known, and no harm done
        while not over.wait(_EVERY_S):
            store.take_in(sampler.sample(os.getpid(), extra_pids=store.living_pids))
    over.wait()
    store.take_in()  # it is known now, so that its end is
    store.finish(
        Outcome(
            exit_code=int(seen.error is not None),
            pid=os.getpid(),
            start_ns=begun_ns,
            end_ns=perf_counter_ns(),
            start_unix_s=begun_s,
        )
    )


def _end_probe(error: BaseException | None) -> None:
    """The probe asks the interpreter what was raised last: that is of this block, not of an earlier cell."""
    names: dict[str, Any] = vars(sys)
    before: dict[str, Any] = {name: names.pop(name) for name in _LAST if name in names}
    if error is not None:
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    uninstall()
    for name in _LAST:
        names.pop(name, None)
    names.update(before)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext hotloop``: adds ``%%hotloop [FOLDER]``, which observes its cell and shows the report."""

    def cell(line: str, text: str) -> Run | None:
        """Observe this cell: %%hotloop [FOLDER]."""
        with observe(line.strip() or None) as seen:
            seen.error = shell.run_cell(text).error_in_exec
        return seen.run

    shell.register_magic_function(cell, "cell", "hotloop")
