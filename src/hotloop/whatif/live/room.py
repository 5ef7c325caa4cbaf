"""How many batches of the training loop may be held at a time."""

from __future__ import annotations

import os
import resource
from typing import Any

from hotloop.probe import batches

#: Of the memory that is left, and of the files that may be opened, a burst takes at most this part.
_PART = 0.25


def most_batches(batch: Any) -> int:
    """How many batches like this one may be held: of memory, of shared memory, and of open files."""
    fields = batches.fields(batch)
    num_bytes = max(1, sum(field["bytes"] for field in fields))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - len(os.listdir("/proc/self/fd"))
    limits = [_available() / num_bytes, files / max(1, len(fields))]
    return int(_PART * min(limits))


def _available() -> float:
    """Bytes of memory that are left, and of /dev/shm, whichever is less."""
    shared = os.statvfs("/dev/shm")
    left = float(shared.f_bavail * shared.f_frsize)
    with open("/proc/meminfo") as stream:
        for line in stream:
            if line.startswith("MemAvailable:"):
                return min(left, 1024.0 * int(line.split()[1]))
    return left
