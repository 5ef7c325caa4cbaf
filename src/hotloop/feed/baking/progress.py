"""A line on standard error for work that takes a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Work that is shorter shows no line; it is written again this often.
PATIENCE_S = 2.0
_EVERY_S = 0.5

Advance = Callable[[int], None]


@contextmanager
def progress_line(words: str, total: int, done: int, wanted: bool) -> Iterator[Advance]:
    """Gives a function to call with the number of samples that were added; none where no terminal looks."""
    begun, next_at = done, time.monotonic() + PATIENCE_S
    start = time.monotonic()
    shown = False

    def advance(count: int) -> None:
        nonlocal done, next_at, shown
        done += count
        now = time.monotonic()
        if wanted and now >= next_at and sys.stderr.isatty():
            left_s = (total - done) * (now - start) / max(1, done - begun)
            sys.stderr.write(f"\r{words}: {done:,} of {total:,} samples, {left_s:,.0f} s left \x1b[K")
            sys.stderr.flush()
            next_at, shown = now + _EVERY_S, True

    try:
        yield advance
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
