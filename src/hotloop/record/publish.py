"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO


def write_text_atomic(path: Path, text: str) -> None:
    """Write ``text`` beside ``path`` and rename it there: readers see the old file or the new, never half."""
    write_bytes_atomic(path, text.encode())


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Like ``write_text_atomic`` for bytes; raises OSError and leaves no temporary file behind."""
    with whole_file(path) as out:
        out.write(data)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to beside ``path``, renamed there at the end and removed where that is not reached."""
    temporary = path.with_name(f".{path.name}.{token_hex(8)}")
    try:
        with temporary.open("xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
