"""Standard output and error without a buffer, where Python drops what a write leaves.

With ``PYTHONUNBUFFERED`` or ``-u`` a text goes to the file in one ``write(2)``, and Python does not look at
how much of it was taken. To a pipe that is all of it, unless a signal comes in between, as the sampler's do.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any


def keep_whole() -> None:
    """Have such streams write the rest as well."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        file: Any = getattr(stream, "buffer", None)
        if type(file) is io.FileIO and "write" not in vars(file):
            vars(file)["write"] = _whole(file.write)


def _whole(write: Callable[[Any], int | None]) -> Callable[[Any], int | None]:
    def whole(data: Any) -> int | None:
        done = write(data)
        size = data.nbytes if isinstance(data, memoryview) else len(data)
        while done is not None and done < size:
            more = write(memoryview(data).cast("B")[done:])
            if more is None:  # a file that does not wait
                break
            done += more
        return done

    return whole
