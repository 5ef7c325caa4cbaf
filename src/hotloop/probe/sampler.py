"""Stack samples of the training thread, by a clock that reaches no system call of the script's.

Each sample weighs the time since the last one, so a sample that native code held up counts for all of it. A
thread of Python would see no Python code at all, and a signal would cut sleeps short: a native thread has the
main thread itself look where it is (``_hooks.c``).
"""

from __future__ import annotations

import os
import time
from os import getpid  # by name: the script may replace that of the module
from threading import main_thread
from types import FrameType
from typing import Any, Final

from hotloop import fast
from hotloop.clock import now_ns
from hotloop.hooks.registry import frame_evaluation
from hotloop.probe.ending import ending
from hotloop.probe.probe import Probe
from hotloop.record.rows import SAMPLE

#: A sample costs a busy thread less than 0.1 ms (its code is cold in the caches): 0.3 %.
DEFAULT_HZ: Final = 25.0
MAX_HZ: Final = 1000.0
#: After this long (ns) the rate is divided by this: by then 200 samples say where time goes.
SLOWER_NS: Final = 8_000_000_000
SLOWER: Final = 2.5


class Sampler(fast.Ticks):
    """Samples the training thread of this process. ``paused``: nothing is written."""

    def __init__(self, probe: Probe, hz: float | None = None) -> None:
        self._probe = probe
        self._hz = _rate() if hz is None else hz
        self._tried = 0  # the process that started, or tried to
        self._evaluate = frame_evaluation()
        self.paused = False
        self._sampled: Any = ending(probe, "sampler", "sampled", SAMPLE, self, self._stack)

    def start(self) -> None:
        """Start sampling this process, or say in a note why that cannot be done."""
        if self._hz <= 0 or self._tried == getpid():
            return
        self._tried = getpid()
        self._worker = self._probe.role == "worker"
        try:
            if self._sampled is None:
                raise OSError("hotloop's compiled part is missing: install hotloop for this Python, with gcc")
            if self._worker or self._probe.writer.eager:
                self._probe.writer.ready()  # a thread that is blocked at once is sampled too
            interval = int(1e9 / self._hz)
            first = at_tick(now_ns() + interval)
            slower = first + SLOWER_NS, int(interval * SLOWER)
            self._sampled(first, interval, *slower, main_thread().ident, _schedstat())
        except (OSError, ValueError, OverflowError) as error:
            self._probe.note("warning", text=f"no stack samples: {error}")

    def stop(self) -> None:
        """Sample no more."""
        if self._sampled is not None:
            self._sampled()

    def _stack(self, frame: FrameType) -> int:
        """The id of a stack that was not seen yet. Dynamo compiles none of this, nor what it calls."""
        evaluation: Any = self
        try:  # at once: a handler of the user's may raise at any call below
            evaluation = self._evaluate(None)
            return self._probe.stack(frame)
        finally:
            if evaluation is not self:
                self._evaluate(evaluation)


def at_tick(time_ns: int) -> int:
    """The first tick of the kernel at or after a time of the monotonic clock.

    What is due with a tick is seen to in its interrupt; one of its own costs the interrupted thread several
    times as much on a virtual machine. Ticks fall on multiples of their length from Linux 6.4 on.
    """
    tick = round(time.clock_getres(_COARSE) * 1e9)
    return -(-time_ns // tick) * tick if tick > 0 else time_ns


#: CLOCK_MONOTONIC_COARSE: moves on at every tick of the kernel.
_COARSE: Final = 6


def _schedstat() -> int:
    """What the kernel says of the main thread's time, -1 nothing. It stays open: of one inherited by fork the
    number may be somebody else's file by now.
    """
    try:
        return os.open(f"/proc/self/task/{getpid()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


_running: Sampler | None = None


def install(probe: Probe) -> None:
    """Sample this process from here on, until it exits."""
    start(probe)
    if _running is not None:
        probe.hooks.at_undo(_running.stop)
    if fast.hold is not None:
        os.register_at_fork(before=fast.hold, after_in_parent=fast.go_on)


def start(probe: Probe) -> None:
    """Start the sampler of this process, also in a forked child."""
    global _running
    if _running is None:
        _running = Sampler(probe)
        probe.on_exit("sampler", _running.stop)
        probe.on_second("sampler", _running.start)
    if probe.role != "helper":
        _running.start()


def pause(paused: bool) -> None:
    """Write no samples until told otherwise: a worker that waits for its next task."""
    if _running is not None:
        _running.paused = paused


def _rate() -> float:
    try:
        return min(float(os.environ.get("HOTLOOP_HZ", DEFAULT_HZ)), MAX_HZ)
    except ValueError:
        return DEFAULT_HZ
