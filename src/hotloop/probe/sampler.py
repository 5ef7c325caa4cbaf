"""Stack samples of the training thread, driven by a kernel timer.

Each sample weighs the time since the last one, so a sample that native code held up counts for all of it. A
helper thread would see no Python code at all. SIGURG, because its default action is to do
nothing: a signal that arrives after Python has shut its handlers down, or after an exec, harms nobody.
"""

from __future__ import annotations

import functools
import io
import os
import signal
import sys
from _thread import get_ident, get_native_id
from collections.abc import Callable
from os import getpid, pread  # by name: the script may replace those of the module
from time import thread_time_ns
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from hotloop import fast
from hotloop.clock import now_ns
from hotloop.hooks.dynamo import frame_evaluation
from hotloop.hooks.registry import handler_in
from hotloop.probe.ending import ending
from hotloop.probe.timer import KernelTimer, at_tick, supported
from hotloop.record.rows import SAMPLE, U16_MAX

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

SIGNAL: Final = signal.SIGURG
#: A sample costs a busy thread about 0.1 ms (the signal, and a handler that is cold in the caches): 0.3 %.
DEFAULT_HZ: Final = 25.0
MAX_HZ: Final = 1000.0
#: After this long (ns) the rate is divided by this: by then 200 samples say where time goes.
SLOWER_NS: Final = 8_000_000_000
SLOWER: Final = 2.5
#: Less time off the CPU than this (ns) is small beside any sample: what of it was waiting for a core is not
#: asked.
WORTH_A_READING_NS: Final = 200_000
_NEVER: Final = 2**63 - 1


class Sampler(fast.Ticks):
    """Samples the training thread of this process. ``paused``: ticks go on, nothing is written."""

    def __init__(self, probe: Probe, hz: float | None = None) -> None:
        self._probe = probe
        self._hz = _rate() if hz is None else hz
        self._timer: KernelTimer | None = None
        self._tried = 0  # the process that started, or tried to
        self._pid = 0
        self._main = 0
        self._last = 0
        self._last_cpu = 0
        self._last_queued = 0
        self._off_cpu = 0
        self._schedstat = -1
        self._inside = False
        self._first = 0
        self._interval = 0
        self._slower_at = 0
        self._interrupts = False
        self._evaluate = frame_evaluation()
        self.paused = False
        asked = (self, WORTH_A_READING_NS, self._on_signal)
        #: What the signal is given to.
        self.handler: Any = ending(probe, "sampler", "sampled", SAMPLE, *asked) or self._on_signal

    def start(self) -> bool:
        """Start sampling this process; False, with a warning note, where that cannot be done."""
        if self._hz <= 0 or self._tried == getpid():
            return self._timer is not None
        self._tried = getpid()
        problem = self._obstacle()
        if problem is None:
            try:
                self._arm()
                return True
            except (OSError, ValueError, AttributeError) as error:
                problem = str(error)
        self._probe.note("warning", text=f"no stack samples: {problem}")
        return False

    def stop(self) -> None:
        """Stop sampling; the signal's handler becomes what it was."""
        timer, self._timer = self._timer, None
        if timer is None or self._pid != getpid():
            return
        timer.delete()
        try:
            if signal.getsignal(SIGNAL) == self.handler:
                signal.signal(SIGNAL, signal.SIG_DFL)
        except (ValueError, TypeError):
            pass  # not the main thread, or Python is shutting down: the signal's default is to be ignored

    def follow(self) -> None:
        """Training goes on: in a forked child, start; behind a main thread that waits for another, interrupt
        its wait.

        The kernel would resume such a wait unseen, and no sample would be taken before it ends.
        """
        self.start()
        if self._timer is not None and not self._interrupts and self._probe.owner not in (0, self._main):
            self._interrupts = True
            signal.siginterrupt(SIGNAL, True)  # Python repeats its own interrupted calls (PEP 475)

    def _obstacle(self) -> str | None:
        if not supported():
            return "this platform has no timer that signals one thread"
        if signal.getsignal(SIGNAL) not in (signal.SIG_DFL, signal.SIG_IGN, self.handler):
            return "the script handles SIGURG itself"
        return None

    def _arm(self) -> None:
        signal.signal(SIGNAL, self.handler)  # ValueError outside the main thread
        signal.siginterrupt(SIGNAL, False)
        self._timer = KernelTimer(SIGNAL, get_native_id())
        keep_whole()
        self._open_schedstat()
        self._pid, self._main = getpid(), get_ident()
        self._inside = False
        self._interrupts = False
        self._schedule(now_ns(), int(1e9 / self._hz), slower=False)

    def _open_schedstat(self) -> None:
        # One inherited by fork is the parent's. It stays open: its number may be somebody else's file by now.
        try:
            self._schedstat = os.open(
                f"/proc/self/task/{get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC
            )
        except OSError:
            self._schedstat = -1

    def _queued(self) -> int:
        """How long the main thread was ready without a core so far (ns); 0 where the kernel does not say."""
        if self._schedstat < 0:
            return 0
        try:
            return int(pread(self._schedstat, 64, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return self._last_queued

    def _schedule(self, now: int, interval: int, *, slower: bool) -> None:
        self._interval, self._first, self._off_cpu = interval, at_tick(now + interval), 0
        self._last, self._last_cpu, self._last_queued = now, thread_time_ns(), self._queued()
        self._slower_at = _NEVER if slower else self._first + SLOWER_NS
        if self._timer is not None:
            self._timer.schedule(self._first, interval)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self._inside:
            return  # a signal during a sample: the next one stands for its time
        evaluation: Any = self
        try:  # at once: a handler of the user's may raise at any call below
            self._inside = True
            evaluation = self._evaluate(None)
            self._sample(now_ns(), frame)
        except Exception as error:
            if handler_in(error) is not None:
                raise  # another handler, an alarm of the script's, raised through us
            self.stop()
            self._probe.note("disabled", observer="sampler", error=repr(error), place="")
        finally:
            if evaluation is not self:
                self._evaluate(evaluation)
            self._inside = False

    def _sample(self, now: int, frame: FrameType | None) -> None:
        last = self._last
        weight = now - last
        cpu = thread_time_ns()
        on_cpu, ready = cpu - self._last_cpu, 0
        self._last, self._last_cpu = now, cpu
        self._off_cpu += max(0, weight - on_cpu)
        if self._off_cpu > WORTH_A_READING_NS:
            self._off_cpu, queued = 0, self._queued()
            ready, self._last_queued = queued - self._last_queued, queued
        if self.paused or self._pid != getpid():
            return
        probe = self._probe
        first, interval = self._first, self._interval
        due = first if last <= first else first - (first - last) // interval * interval
        share = U16_MAX
        owner = probe.owner
        if owner == self._main or probe.role == "worker":  # a worker records its batches only: no owner
            share = _share(on_cpu, ready, weight, now - due)
        else:
            frame = sys._current_frames().get(owner) if owner else None
        if frame is None:
            return
        late = (now - due) // 1000
        probe.writer.row(
            SAMPLE,
            now,
            weight,
            probe.stack(frame),
            0,
            share,
            late if 0 <= late < U16_MAX else U16_MAX - 1 if late > 0 else 0,
        )
        if now >= self._slower_at:
            self._schedule(now, int(1e9 / self._hz * SLOWER), slower=True)


def _share(on_cpu: int, ready: int, weight: int, late: int) -> int:
    """Thousandths of the weight on a CPU or ready for one. All in ns.

    Ready without a core is no waiting: on a crowded machine half of all compute would look like it. But what
    a sleeper waits for a core after our own signal woke it is our doing: that is left out on both sides.
    """
    own = max(0, min(late, ready))
    busy, length = on_cpu + ready - own, weight - own
    return 1000 if busy >= length else busy * 1000 // length if length > 0 else 0


_running: Sampler | None = None


def install(probe: Probe) -> None:
    """Sample this process from here on, until it exits."""
    start(probe)
    if _running is not None:
        for name, takes in _TAKES.items():
            probe.hooks.patch(signal, name, end_where(_running, name, takes))
        probe.hooks.at_undo(_running.stop)


def start(probe: Probe) -> None:
    """Start the sampler of this process, also in a forked child."""
    global _running
    if _running is None:
        _running = Sampler(probe)
        probe.on_exit("sampler", _running.stop)
        probe.on_second("sampler", _running.follow)
    if probe.role != "helper":
        _running.start()


def pause(paused: bool) -> None:
    """Write no samples until told otherwise: a worker that waits for its next task."""
    if _running is not None:
        _running.paused = paused


#: Functions of ``signal`` -> whether a call with these arguments takes the sampler's signal, or sees it come.
_TAKES: Final[dict[str, Callable[[tuple[Any, ...]], bool]]] = {
    "signal": lambda given: given[:1] == (SIGNAL,) and given[-1] is not signal.SIG_DFL,
    "set_wakeup_fd": lambda given: given[:1] != (-1,),
    "pause": lambda given: True,
}


def end_where(sampler: Sampler, name: str, takes: Callable[[tuple[Any, ...]], bool]) -> Callable[[Any], Any]:
    """A wrapper for a function of ``signal``: after a call that takes SIGURG nothing is sampled any more."""

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            given = (*args, *kwargs.values())
            ours = sampler._timer is None or any(one is sampler.handler for one in given)
            if not ours and takes(given):
                text = f"stack samples, by SIGURG, end here: the script calls signal.{name}"
                sampler._probe.note("warning", text=text)
                sampler.stop()
            return original(*args, **kwargs)

        return wrapper

    return make


def _rate() -> float:
    try:
        return min(float(os.environ.get("HOTLOOP_HZ", DEFAULT_HZ)), MAX_HZ)
    except ValueError:
        return DEFAULT_HZ


def keep_whole() -> None:
    """Have standard output and error without a buffer write what a signal makes a write leave: with
    ``PYTHONUNBUFFERED`` or ``-u`` Python does not look at how much of a text ``write(2)`` took.
    """
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
