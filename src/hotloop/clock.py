"""The one clock: ``CLOCK_MONOTONIC`` in nanoseconds, comparable between the processes of a machine."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Protocol

#: What every timestamp of a recording comes from. On Linux perf_counter is CLOCK_MONOTONIC.
now_ns: Callable[[], int] = perf_counter_ns


class DeviceEvent(Protocol):
    """What hotloop needs of a device clock; ``torch.cuda.Event(enable_timing=True)`` satisfies it."""

    def record(self) -> object:
        """Queue the event behind the work submitted so far."""

    def query(self) -> bool:
        """Whether the device has passed the event; never waits."""

    def elapsed_time(self, end_event: DeviceEvent) -> float:
        """Milliseconds of device time from this event to ``end_event``."""
