"""Standard streams: whether they take colours, and what to do with one that cannot be written."""

from __future__ import annotations

import os
from typing import TextIO


def takes_color(stream: TextIO) -> bool:
    """Whether it is a terminal that was not told to stay plain (``NO_COLOR``, ``TERM=dumb``)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def silence(stream: TextIO) -> None:
    """Send what is still to come nowhere: the interpreter's last flush would change the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
