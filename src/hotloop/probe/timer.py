"""A kernel timer that signals one thread: the only in-process sampler that is not blind to Python code.

A sampling thread wakes only when the main thread lets go of the interpreter lock; a timer of the kernel
interrupts whatever runs. Linux only (``SIGEV_THREAD_ID``). The timer ends with the process image: exec drops
it, fork does not copy it.
"""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any, Final

CLOCK_MONOTONIC: Final = 1
#: Moves on at every tick of the kernel.
CLOCK_MONOTONIC_COARSE: Final = 6
SIGEV_THREAD_ID: Final = 4
TIMER_ABSTIME: Final = 1


class _SigEvent(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("tid", ctypes.c_int),
        ("pad", ctypes.c_char * 48),
    )


class _TimerSpec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


def supported() -> bool:
    """Whether this platform has timers that signal a chosen thread."""
    return sys.platform == "linux" and ctypes.sizeof(ctypes.c_void_p) == 8


def at_tick(time_ns: int) -> int:
    """The first tick of the kernel at or after a time of the monotonic clock.

    What is due with a tick is seen to in its interrupt; one of its own costs the interrupted thread several
    times as much on a virtual machine. Ticks fall on multiples of their length from Linux 6.4 on.
    """
    tick = round(time.clock_getres(CLOCK_MONOTONIC_COARSE) * 1e9)
    return -(-time_ns // tick) * tick if tick > 0 else time_ns


class KernelTimer:
    """``timer_create`` for one thread of this process. Raises OSError where the kernel refuses."""

    def __init__(self, signum: int, thread_id: int) -> None:
        self._libc = _library()
        self._timer: ctypes.c_void_p | None = ctypes.c_void_p()
        event = _SigEvent(signo=signum, notify=SIGEV_THREAD_ID, tid=thread_id)
        self._call("timer_create", CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer))

    def schedule(self, first_ns: int, interval_ns: int) -> None:
        """Signal at ``first_ns`` of the monotonic clock and every ``interval_ns`` after it."""
        spec = _TimerSpec(
            interval_s=interval_ns // 1_000_000_000,
            interval_ns=interval_ns % 1_000_000_000,
            value_s=first_ns // 1_000_000_000,
            value_ns=first_ns % 1_000_000_000,
        )
        self._call("timer_settime", self._timer, TIMER_ABSTIME, ctypes.byref(spec), None)

    def delete(self) -> None:
        """Stop and free the timer; does nothing the second time."""
        timer, self._timer = self._timer, None
        if timer is not None:
            self._libc.timer_delete(timer)

    def _call(self, name: str, *arguments: Any) -> None:
        if getattr(self._libc, name)(*arguments) != 0:
            raise OSError(ctypes.get_errno(), f"{name} failed")


def _library() -> Any:
    """The C library, or librt where an older glibc keeps the timers."""
    libc = ctypes.CDLL(None, use_errno=True)
    return libc if hasattr(libc, "timer_create") else ctypes.CDLL("librt.so.1", use_errno=True)
