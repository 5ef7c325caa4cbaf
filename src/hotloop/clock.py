"""The one clock: ``CLOCK_MONOTONIC`` in nanoseconds, comparable between the processes of a machine."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

#: What every timestamp of a recording comes from. On Linux perf_counter is CLOCK_MONOTONIC.
now_ns: Callable[[], int] = perf_counter_ns
