"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_hex


def write_text_atomic(path: Path, text: str) -> None:
    """Write ``text`` beside ``path`` and rename it there: readers see the old file or the new, never half."""
    write_bytes_atomic(path, text.encode())


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Like ``write_text_atomic`` for bytes; raises OSError and leaves no temporary file behind."""
    temporary = path.with_name(f".{path.name}.{token_hex(8)}")
    try:
        with temporary.open("xb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
