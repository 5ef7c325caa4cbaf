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
    start, shown = time.monotonic(), None
    wanted = wanted and sys.stderr.isatty()

    def advance(count: int) -> None:
        nonlocal done, shown, wanted
        done += count
        if wanted and time.monotonic() - start >= PATIENCE_S:
            wanted, shown = False, _begun(words, total)
        if shown is not None:
            shown.update(shown.task_ids[0], completed=done)

    try:
        yield advance
    finally:
        if shown is not None:
            shown.stop()


def _begun(words: str, total: int) -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:  # the feeding library stands on torch and numpy alone
        return None
    what, left = TextColumn("{task.description}"), TextColumn("samples, left:")
    console = Console(file=sys.stderr, stderr=True)
    bar = Progress(what, BarColumn(), MofNCompleteColumn(), left, TimeRemainingColumn(), console=console)
    bar.add_task(words, total=total)
    bar.start()
    return bar
