"""A progress bar on standard error for work that takes a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Work that is shorter shows no bar.
PATIENCE_S = 2.0

Advance = Callable[[int], None]


@contextmanager
def progress_bar(words: str, total: int, done: int, wanted: bool) -> Iterator[Advance]:
    """Gives a function to call with the number of samples that were added; the bar appears after a while.

    Without rich, or where standard error is no terminal, there is none.
    """
    bar = _Bar(words, total, done) if wanted and sys.stderr.isatty() else None
    try:
        yield bar.advance if bar else (lambda _: None)
    finally:
        if bar:
            bar.stop()


class _Bar:
    def __init__(self, words: str, total: int, done: int) -> None:
        self._words = words
        self._total = total
        self._begun_at = done
        self._done = done
        self._start = time.monotonic()
        self._shown: Any = None
        self._task: Any = None

    def advance(self, count: int) -> None:
        self._done += count
        if self._shown is None and time.monotonic() - self._start >= PATIENCE_S:
            self._show()
        if self._shown:
            self._shown.update(self._task, completed=self._done)

    def stop(self) -> None:
        if self._shown:
            self._shown.stop()

    def _show(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        except ImportError:  # the feeding library stands on torch and numpy alone
            self._shown = False
            return
        self._shown = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("samples, left:"),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr, stderr=True),
        )
        self._task = self._shown.add_task(self._words, total=self._total, completed=self._done)
        self._shown.start()
