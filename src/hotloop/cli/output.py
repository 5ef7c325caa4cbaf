"""Standard streams, the terminal, progress, and files that a verb was asked to write."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TextIO

from hotloop.errors import UsageError
from hotloop.foreign import clean
from hotloop.language import lines, said
from hotloop.record.publish import write_bytes_atomic


def takes_color(stream: TextIO) -> bool:
    """Whether it is a terminal that was not told to stay plain (``NO_COLOR``, ``TERM=dumb``)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """Columns of the terminal or of ``COLUMNS``, 80 where there is neither; from 40 to 100."""
    known = sys.stderr.isatty() or "COLUMNS" in os.environ
    return max(40, min(100, shutil.get_terminal_size((80, 24)).columns)) if known else 80


def silence(stream: TextIO) -> None:
    """Send what is still to come nowhere: the interpreter's last flush would change the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def say(words: str) -> None:
    """A line on standard error."""
    print(f"hotloop: {said(shown(words))}", file=sys.stderr, flush=True)


def shown(words: object) -> str:
    """Lines whose control characters are escaped: they may hold names of files, and what a script said."""
    return "\n".join(map(clean, str(words).split("\n")))


def folded(words: str) -> str:
    """At most as wide as the terminal; what is to be copied stays whole."""
    return "\n".join(lines(shown(" ".join(words.split("\n"))), terminal_width(), indent="    "))


def publish(path: Path, data: str | bytes, words: str = "") -> None:
    """Write a file whole and say so on standard error; a UsageError where it cannot be written."""
    try:
        write_bytes_atomic(path, data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}", hint="give a file in a folder that is there"
        ) from error
    say(f"wrote {path}{words}")


class Bar:
    """A bar on a terminal that goes when it is done; nothing elsewhere."""

    def __init__(self, what: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        words = TextColumn("{task.fields[words]}")
        columns = (TextColumn(what), BarColumn(20), TaskProgressColumn(), words)
        hidden = not sys.stderr.isatty()
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden)
        self._task = self._bar.add_task("", total=1.0, words="")
        self._bar.start()

    def show(self, share: float, words: str) -> None:
        """How far, and where."""
        self._bar.update(self._task, completed=min(1.0, share), words=clean(words)[-44:])

    def line(self, words: str) -> None:
        """A line that stays, above the bar."""
        self._bar.console.print(words, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()


def status(words: str) -> AbstractContextManager[object]:
    """Says what takes long: a spinner on a terminal, a line elsewhere."""
    if sys.stderr.isatty():
        from rich.console import Console

        return Console(stderr=True).status(said(words))
    say(words)
    return nullcontext()


@contextmanager
def progress(what: str) -> Iterator[Callable[[float, str], None]]:
    """A function of the share done and where, shown as a bar."""
    bar = Bar(what)
    try:
        yield bar.show
    finally:
        bar.close()
