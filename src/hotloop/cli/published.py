"""A file that a verb was asked to write."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hotloop.errors import UsageError
from hotloop.record.publish import write_text_atomic


def publish(path: Path, text: str) -> None:
    """Write a file whole and say so on standard error; a UsageError where it cannot be written."""
    with published(path):
        write_text_atomic(path, text)


@contextmanager
def published(path: Path, words: str = "") -> Iterator[None]:
    """Around the writing of a file: says that it was written, and ``words``, or raises UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}", hint="give a file in a folder that is there"
        ) from error
    print(f"hotloop: wrote {path}{words}", file=sys.stderr)
