"""Idle time of a device is charged to the host phase that let it run dry."""

from __future__ import annotations

import pytest
from tests.scenarios.builder import MS, Script
from tests.scenarios.loops import PLAIN

from hotloop.measure.measure import measure
from hotloop.record import rows as row


class Device:
    """A device that starts work when it is submitted or when it is free, and events that tell when."""

    def __init__(self, run: Script) -> None:
        self.run, self.free = run, 0
        self.busy = 0

    def launch(self, ms: float) -> None:
        self.free = max(self.run.now, self.free) + int(ms * MS)
        self.busy += int(ms * MS)

    def event(self, kind: int, *, end: bool = False) -> None:
        lag = max(0, self.free - self.run.now)
        self.run._emit(row.DEVICE, self.run.now, lag, obj=kind, flags=row.DEVICE_END if end else 0)


def loop(*, fetch_ms: float, device_ms: float, log_ms: float = 0.0, steps: int = 60):
    run = Script(PLAIN)
    device = Device(run)

    def phase(kind: int, call, work_ms: float = 0.0) -> None:
        device.event(kind)
        if work_ms:
            device.launch(work_ms)
        call()
        device.event(kind, end=True)

    run.at("fetch").iterate(1)
    for _ in range(steps):
        phase(row.FETCH, lambda: run.fetch(1, fetch_ms))
        phase(row.FORWARD, lambda: run.forward(1), device_ms / 2)
        phase(row.BACKWARD, lambda: run.backward(1), device_ms / 2)
        phase(row.OPTIMIZER, lambda: run.update(0.5))
        if log_ms:
            phase(row.LOG, lambda: run.call(row.LOG, log_ms))
    steps_seen = measure(run.process())
    return steps_seen, device.busy / 1e9


def test_data_bound_device_idles_in_the_fetch():
    steps, busy_s = loop(fetch_ms=10, device_ms=8)
    idle = steps.device.idle_s_by_phase
    # The device ends 8 ms after the forward began; the host is back in the fetch after 2.5 ms.
    assert idle["data_wait"] / 60 == pytest.approx(0.0045, rel=0.05)
    assert idle.get("forward", 0) / 60 < 0.0005
    assert steps.device.busy_ratio == pytest.approx(busy_s / steps.span_s, abs=0.05)


def test_device_bound_run_has_no_idle_device():
    steps, _ = loop(fetch_ms=1, device_ms=12)
    assert steps.device.busy_ratio > 0.98


def test_logging_that_lets_the_device_run_dry_is_charged():
    steps, _ = loop(fetch_ms=0.5, device_ms=6, log_ms=20)
    idle = steps.device.idle_s_by_phase
    assert max(idle, key=idle.get) == "logging"
    assert idle["logging"] / 60 == pytest.approx(0.0155, rel=0.1)


def test_without_a_device_nothing_is_said():
    run = Script(PLAIN)
    run.forward(1)
    assert measure(run.process()).device is None
