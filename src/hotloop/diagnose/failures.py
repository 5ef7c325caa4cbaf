"""What the text of an exception says about memory: the device's, the host's, shared, a killed worker's.

The texts are torch's (c10/cuda/CUDACachingAllocator.cpp, c10/core/impl/alloc_cpu.cpp, torch/_utils.py and
torch/utils/data/_utils/signal_handling.py) and numpy's ``_ArrayMemoryError``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["device", "host", "shared-memory", "killed-worker"]

_UNITS: Final = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE: Final = r"([\d.]+) (bytes|B|KiB|MiB|GiB|TiB)"

_DEVICE: Final = re.compile(r"\b(CUDA|HIP|XPU|MPS|MPS backend) out of memory", re.IGNORECASE)
_HOST: Final = re.compile(
    r"DefaultCPUAllocator: (can't allocate|not enough) memory|Unable to allocate .* for an array|"
    r"Cannot allocate memory|std::bad_alloc"
)
#: A bus error of a worker is a full /dev/shm; so is a segment of torch's that cannot be written or grown.
_SHARED: Final = re.compile(
    r"Bus error|shared memory object|allocate shared memory.*Success|"
    r"</?torch_\d+\S*>.*(No space left|Cannot allocate)|"
    r"No space left on device.*(shm|torch_)|(shm|torch_).*No space left on device",
    re.DOTALL,
)
#: What a segment of torch's fails for beside want of memory: the limit on open files (``ulimit -n``), rights.
_ELSE: Final = re.compile(r"Too many open files|Permission denied|Operation not permitted")
#: How a worker ends that the kernel killed; «unexpectedly» may be a crash as well.
_KILLED: Final = re.compile(r"DataLoader worker \(pid.*\) (is killed by signal: Killed|exited unexpectedly)")
_WORKER_PID: Final = re.compile(r"DataLoader worker \(pid(?:\(s\))? (\d+)")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One exception that memory caused; sizes in bytes, None where its text does not say."""

    kind: Kind
    asked_bytes: float | None = None
    capacity_bytes: float | None = None
    free_bytes: float | None = None
    allocated_bytes: float | None = None  # tensors, in torch's allocator
    unused_bytes: float | None = None  # held by torch's allocator without a tensor in it
    worker_pid: int | None = None


def read_failure(exception: str, message: str) -> Failure | None:
    """The failure of an exception's class and text, None where memory was not the cause."""
    if _DEVICE.search(message) or exception == "OutOfMemoryError":
        return Failure(
            kind="device",
            asked_bytes=_size(message, rf"Tried to allocate {_SIZE}"),
            capacity_bytes=_size(message, rf"total capacity of {_SIZE}"),
            free_bytes=_size(message, rf"of which {_SIZE} is free"),
            allocated_bytes=_size(message, rf"{_SIZE} is allocated by PyTorch"),
            unused_bytes=_size(message, rf"{_SIZE} is reserved by PyTorch but unallocated"),
        )
    worker = _WORKER_PID.search(message)
    pid = int(worker[1]) if worker else None
    if _KILLED.search(message):
        return Failure(kind="killed-worker", worker_pid=pid)
    if _SHARED.search(message) and not _ELSE.search(message):
        return Failure(kind="shared-memory", asked_bytes=_size(message, rf"mmap {_SIZE}"), worker_pid=pid)
    if exception in ("MemoryError", "_ArrayMemoryError") or _HOST.search(message):
        asked = _size(message, rf"tried to allocate {_SIZE}") or _size(
            message, rf"Unable to allocate {_SIZE}"
        )
        return Failure(kind="host", asked_bytes=asked)
    return None


def _size(text: str, pattern: str) -> float | None:
    found = re.search(pattern, text)
    return float(found[1]) * _UNITS[found[2]] if found else None
