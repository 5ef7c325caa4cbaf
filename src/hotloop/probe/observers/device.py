"""The device clock on CUDA: timing events where the outermost phases of the training thread begin and end.

Run on an H200 (benchmarks/results/gpu-2026-11-28.md); the clock is tested against a simulated asynchronous
device (tests/probe). Nothing here costs anything before CUDA is in use: the
patches are put in place by the first housekeeping that finds it initialized.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Final, Protocol

from hotloop.clock import now_ns
from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.probe import Probe
from hotloop.record.rows import (
    BACKWARD,
    DEVICE,
    DEVICE_END,
    FETCH,
    FORWARD,
    OPTIMIZER,
    SAVE,
    SYNC,
    TRANSFER,
)

#: Events in flight, and kept for use again. A device further behind than this is busy: its boundaries are
#: dropped.
POOL: Final = 1024
#: A boundary this close behind the last one says the same.
CLOSE_NS: Final = 20_000
#: A synchronization that begins this close behind the last boundary finds the device about as that left it: a
#: loop that reads a number per parameter would else pay for two events at each.
SYNC_CLOSE_NS: Final = 300_000
#: The anchor is good enough when it is enclosed this tightly, or to a quarter of the lag: that device is
#: busy.
TIGHT_NS: Final = 200_000
#: How often to look again at once at an event that has nothing before it, and how many times.
LOOK_EVERY_NS: Final = 50_000_000
LOOKS: Final = 20
#: The enclosure widens by one part in this many: the drift of two crystals, with a margin.
DRIFT: Final = 20_000
#: A new base event after this long: elapsed times come as floats of milliseconds.
REBASE_NS: Final = 5_000_000_000

#: ``write(host_ns, lag_ns, kind, end)``
Write = Callable[[int, int, int, bool], None]


class DeviceEvent(Protocol):
    """What hotloop needs of a device clock; ``torch.cuda.Event(enable_timing=True)`` satisfies it."""

    def record(self) -> object:
        """Queue the event behind the work submitted so far."""

    def query(self) -> bool:
        """Whether the device has passed the event; never waits."""

    def elapsed_time(self, end_event: DeviceEvent) -> float:
        """Milliseconds of device time from this event to ``end_event``."""


class DeviceClock:
    """Marks boundaries and reads them later. Never waits for the device.

    At each boundary an event goes into the stream; later, whichever events the device has passed are read.
    The two clocks meet in an anchor: device time + anchor = host time. An event cannot complete before it was
    recorded, nor before a look that found it pending, nor after the look that found it done: with enough
    looks the anchor is enclosed tightly, whether the device drains or not. Until it is, nothing is written.

    ``make`` gives a new event with timing, ``now`` the host's clock in nanoseconds, ``write`` takes a
    finished boundary, ``may_record`` says whether an event may go into the stream now (not while a graph is
    captured).
    """

    def __init__(
        self,
        make: Callable[[], DeviceEvent],
        now: Callable[[], int],
        write: Write,
        may_record: Callable[[], bool] = lambda: True,
    ) -> None:
        self._make = make
        self._now = now
        self._write = write
        self._may_record = may_record
        self._free: list[DeviceEvent] = []
        self._made = 0
        self._pending: deque[tuple[int, int, bool, DeviceEvent]] = deque()
        self._base: DeviceEvent | None = None
        self._base_at = 0
        self._next_base: DeviceEvent | None = None
        self._low = self._high = 0  # the anchor is between these
        self._enclosed = False  # both are known
        self._enclosed_at = 0
        self._seen_pending = 0  # when the oldest event was last found pending
        self._last = 0
        self._next_look = 0
        self.dropped = 0

    def mark(self, kind: int, end: bool) -> None:
        """A phase begins or ends now."""
        now = self._now()
        if not end and now - self._last < (SYNC_CLOSE_NS if kind == SYNC else CLOSE_NS):
            return
        self._last = now
        self.poll()
        if end and kind == SYNC and self._enclosed:  # it has waited for the device: no event tells more
            self._write(now, 0, kind, end)
            return
        if not self._may_record():
            return
        event = self._event()
        if event is None:
            self.dropped += 1
            return
        if self._base is None:
            self._base, self._base_at = event, now
        elif now - self._base_at > REBASE_NS and self._next_base is None:
            self._next_base = event
        event.record()
        self._pending.append((now, kind, end, event))
        if len(self._pending) == 1 and now >= self._next_look:
            self._look(now)

    def poll(self) -> None:
        """Read every event the device has passed."""
        while self._pending:
            host, kind, end, event = self._pending[0]
            if not event.query():
                self._seen_pending = self._now()
                return
            self._pending.popleft()
            self._passed(host, self._now(), kind, end, event)

    def _look(self, now: int) -> None:
        """Nothing was in flight: this event passes at once, and seeing it pass encloses the anchor."""
        self._next_look = now + LOOK_EVERY_NS
        for _ in range(LOOKS):
            self.poll()
            if not self._pending:
                return

    def _event(self) -> DeviceEvent | None:
        if self._free:
            return self._free.pop()
        if self._made >= POOL:
            return None
        self._made += 1
        return self._make()

    def _passed(self, host: int, found: int, kind: int, end: bool, event: DeviceEvent) -> None:
        base = self._base
        if base is None:
            return
        device = 0 if event is base else round(base.elapsed_time(event) * 1e6)
        # What was pending at the last look completed between that look and this one.
        low, high = max(host, self._seen_pending) - device, found - device
        if not self._enclosed:
            self._low, self._high, self._enclosed = low, high, True
        else:
            slack = (found - self._enclosed_at) // DRIFT  # two crystals drift apart
            self._low, self._high = max(self._low - slack, low), min(self._high + slack, high)
        self._enclosed_at = found
        if self._high < self._low:  # a clock was set: begin the enclosure again
            self._low, self._high = low, high
        lag = device + self._low - host  # of a drained stream the low side is exact: a look can only be late
        if self._high - self._low <= max(TIGHT_NS, lag // 4):
            self._write(host, max(0, lag), kind, end)
        if event is self._next_base:
            self._rebase(event, device, host)
        elif event is not base:
            self._free.append(event)

    def _rebase(self, event: DeviceEvent, device: int, host: int) -> None:
        if self._base is not None:
            self._free.append(self._base)
        self._base, self._base_at, self._next_base = event, host, None
        self._low += device
        self._high += device


NAME: Final = "observers.device"

#: Path below torch (or a module's name), attribute, kind.
POINTS: Final = (
    ("autograd", "backward", BACKWARD),
    ("Tensor", "item", SYNC),
    ("Tensor", "tolist", SYNC),
    ("Tensor", "cpu", SYNC),
    ("Tensor", "__bool__", SYNC),
    ("Tensor", "__float__", SYNC),
    ("cuda", "synchronize", SYNC),
    ("Tensor", "cuda", TRANSFER),
    ("Tensor", "to", TRANSFER),
    ("", "save", SAVE),
)

_CALL: Final = """
def {name}(self, *args, **kwargs):
    if is_compiling() or inside[0] or get_ident() != owner[0]:
        return original(self, *args, **kwargs)
    inside[0] = True
    mark(kind, False)
    try:
        return original(self, *args, **kwargs)
    finally:
        inside[0] = False
        mark(kind, True)
"""


class Device:
    """Marks the outermost phases on the device clock; a phase inside a phase belongs to the outer one."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._inside = [False]
        self._on = False
        cuda = probe.torch.cuda
        self.clock = DeviceClock(
            lambda: cuda.Event(enable_timing=True),
            now_ns,
            self._write,
            lambda: not cuda.is_current_stream_capturing(),
        )

    def start(self) -> None:
        """Begin as soon as CUDA is in use."""
        if self._on or not self._probe.torch.cuda.is_initialized():
            return
        self._on = True
        probe = self._probe
        hooks, torch = probe.hooks, probe.torch
        for path, name, kind in POINTS:
            owner = getattr(torch, path) if path else torch
            hooks.around(owner, name, NAME, self._begins(kind), self._ends(kind))
        mark = hooks.guard(NAME, self.clock.mark)
        for owner, name, kind in (
            (torch.nn.Module, "__call__", FORWARD),
            (torch.utils.data.dataloader._BaseDataLoaderIter, "__next__", FETCH),
        ):
            hooks.patch(owner, name, partial(self._marked, kind=kind, mark=mark))
        module = __import__("torch.optim.optimizer", fromlist=["Optimizer"])
        for register, end in (
            (module.register_optimizer_step_pre_hook, False),
            (module.register_optimizer_step_post_hook, True),
        ):
            hook = hooks.guard(
                NAME, lambda *_, end=end: self.clock.mark(OPTIMIZER, end) if self._recorded() else None
            )
            hooks.hand_over(register, hook)

    def _marked(self, original: Any, kind: int, mark: Any) -> Any:
        switch = self._probe.hooks.switch(NAME)
        return compile_beside(original, _CALL, inside=self._inside, switch=switch, mark=mark, kind=kind)

    def _recorded(self) -> bool:
        return not self._inside[0] and not self._probe.torch.compiler.is_compiling()

    def _begins(self, kind: int) -> Any:
        is_cuda = self._probe.torch.Tensor.is_cuda.__get__

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
            if self._inside[0]:
                return None
            if kind == TRANSFER:  # where it goes shows at its end; what is there already is cast, not copied
                self._inside[0] = not is_cuda(args[0])
                return self._inside[0] or None
            if kind == SYNC and args and not is_cuda(args[0]):
                return None
            self._inside[0] = True
            self.clock.mark(kind, False)
            return True

        return begin

    def _ends(self, kind: int) -> Any:
        def end(token: Any, start: int, stop: int, result: Any) -> None:
            self._inside[0] = False
            if kind != TRANSFER or getattr(result, "is_cuda", False):
                self.clock.mark(kind, True)

        return end

    def _write(self, host: int, lag: int, kind: int, end: bool) -> None:
        self._probe.emit(DEVICE, host, lag, 0, 0, kind, 0, DEVICE_END if end else 0)


def install(probe: Probe) -> None:
    """Wait for CUDA to be in use."""
    device = Device(probe)
    probe.on_second(NAME, device.start)
    probe.on_exit(NAME, device.clock.poll)
