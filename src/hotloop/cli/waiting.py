"""Progress on standard error, for work that takes longer than two seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final

_QUIET_S: Final = 2.0


@contextmanager
def progress(what: str) -> Iterator[Callable[[float, str], None]]:
    """A function that is told the share done and where: a bar on a terminal, one line elsewhere."""
    start = monotonic()
    bar: Any = None
    said = False

    def advance(share: float, words: str) -> None:
        nonlocal bar, said
        if bar is None and not said and monotonic() - start > _QUIET_S:
            said = True
            if sys.stderr.isatty():
                bar = _bar(what)
                bar.start()
            else:
                print(
                    f"hotloop: {what}, {share:.0%} done after {_QUIET_S:.0f} s", file=sys.stderr, flush=True
                )
        if bar is not None:
            bar.update(bar.task_ids[0], completed=share, words=words[-40:])

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()


def _bar(what: str) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn(what), BarColumn(20), TaskProgressColumn(), TextColumn("{task.fields[words]}"))
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(what, total=1.0, words="")
    return bar
