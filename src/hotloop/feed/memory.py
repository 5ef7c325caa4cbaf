"""Shared memory that dies with its last user: anonymous files, reserved before use.

A memfd is not limited by the size of ``/dev/shm`` and leaves nothing behind, however its users die. Pages are
reserved with ``posix_fallocate`` before anything is written: a full machine is an ``OSError``, not a SIGBUS.
``mmap.mmap`` keeps a descriptor per mapping; these mappings keep none: a ring of many slots costs one.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
import os
import re
import threading
from collections.abc import Mapping as Pairs
from multiprocessing import reduction
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAGE_BYTES = mmap.PAGESIZE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
]  # fmt: skip
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_FAILED = ctypes.c_void_p(-1).value

#: ``malloc.h``: what is free at the end of the heap goes back above this; larger pieces are mapped alone.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 << 20
_MAPPED_FROM_BYTES = 32 << 20  # the most that glibc takes before 2.35
_OTHER_HEAPS = re.compile(r"jemalloc|tcmalloc|mimalloc")
#: What a whole step frees, as far as an ``int`` goes: glibc takes no more by ``mallopt``.
STEP_BYTES = (1 << 31) - 1


def round_up(num_bytes: int, to: int = PAGE_BYTES) -> int:
    """``num_bytes`` rounded up to a multiple of ``to``."""
    return -(-num_bytes // to) * to


def keep_freed_memory(most_bytes: int = _KEPT_BYTES) -> str:
    """Let this process's heap keep up to 64 MiB that were freed, or ``most_bytes``. Why it does not; "" else.

    The samples of a batch are freed together, and glibc would give their pages back to the kernel every time,
    to be zeroed and mapped anew for the next batch. Who set glibc's thresholds in the environment keeps them.
    """
    why = heap_chosen(os.environ)
    if why or not hasattr(_libc, "mallopt"):
        return why or "this system's C library is not glibc"
    mapped = max(_MAPPED_FROM_BYTES, most_bytes // 2)
    if not _libc.mallopt(_M_MMAP_THRESHOLD, mapped):
        _libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
    _libc.mallopt(_M_TRIM_THRESHOLD, most_bytes)
    return ""


def heap_chosen(environ: Pairs[str, str]) -> str:
    """What of an environment says how the heap keeps what is freed, "" where nothing does."""
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_"):
        if name in environ:
            return f"{name} is set in the environment"
    if "glibc.malloc" in environ.get("GLIBC_TUNABLES", ""):
        return "GLIBC_TUNABLES is set in the environment"
    other = _OTHER_HEAPS.search(environ.get("LD_PRELOAD", ""))
    return f"LD_PRELOAD has {other[0]} in glibc's place" if other else ""


class Mapping:
    """A shared, writable window on a file: ``num_bytes`` from ``offset``, unmapped with its last reference.

    Arrays made by :meth:`array` hold the mapping, so they stay valid after :meth:`__del__` of the owner.

    Raises:
        OSError: the kernel refused the mapping (``RLIMIT_AS``, no memory).
    """

    def __init__(self, descriptor: int, num_bytes: int, *, offset: int = 0, writable: bool = True) -> None:
        self.num_bytes = num_bytes
        self.address = 0  # where the window begins in this process
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        address = _libc.mmap(None, num_bytes, protection, mmap.MAP_SHARED, descriptor, offset)
        if address == _FAILED or address is None:
            number = ctypes.get_errno()
            raise OSError(number, f"mapping {num_bytes} bytes of shared memory: {os.strerror(number)}")
        self.address = address
        #: Whoever else hands this on keeps the mapping alive.
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (num_bytes,),
            "data": (address, not writable),
        }

    def array(self) -> NDArray[np.uint8]:
        """All bytes of the window as a flat uint8 array whose base keeps this mapping alive."""
        return np.asarray(self)

    def will_need(self, offset: int, num_bytes: int) -> None:
        """Ask the kernel to read these bytes from the file without waiting for them; only a hint."""
        first = offset // PAGE_BYTES * PAGE_BYTES
        _libc.madvise(self.address + first, offset + num_bytes - first, mmap.MADV_WILLNEED)

    def __del__(self) -> None:
        if self.address:
            _libc.munmap(self.address, self.num_bytes)
            self.address = 0


class SharedFile:
    """An anonymous file in memory, inherited by forked children and sent along with spawned ones.

    Sparse: only what :meth:`reserve` asked for takes memory. Pickling works only while a child process is
    being started.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self.descriptor = os.memfd_create(f"hotloop-{name}", os.MFD_CLOEXEC)

    @classmethod
    def adopt(cls, descriptor: int, name: str) -> SharedFile:
        """The file behind a descriptor that this process owns from now on."""
        file = cls.__new__(cls)
        file.name, file.descriptor, file._lock = name, descriptor, threading.Lock()
        return file

    def reserve(self, num_bytes: int, *, offset: int = 0) -> None:
        """Take memory for a range, growing the file where it is too short.

        Raises:
            OSError: there is not that much (``ENOSPC``, ``ENOMEM``); nothing was damaged.
        """
        with self._lock:
            os.posix_fallocate(self.descriptor, offset, num_bytes)

    def map(self, num_bytes: int, *, offset: int = 0) -> Mapping:
        """A window on the file; reserve its range first."""
        return Mapping(self.descriptor, num_bytes, offset=offset)

    def close(self) -> None:
        """Let go of the descriptor; mappings stay valid."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (reduction.DupFd(self.descriptor), self.name)

    def __del__(self) -> None:
        if getattr(self, "descriptor", -1) >= 0:
            self.close()


def _rebuilt(descriptor: Any, name: str) -> SharedFile:
    return SharedFile.adopt(descriptor.detach(), name)
