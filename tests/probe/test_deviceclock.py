"""The device clock against a simulated asynchronous device: lags are true, idle time goes to its cause."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from tests.probe.simulated_device import Event, Simulation

from hotloop.probe.observers.device import POOL, TIGHT_NS, DeviceClock
from hotloop.record.rows import BACKWARD, FETCH, FORWARD, LOG, OPTIMIZER, SYNC

#: A device less than this behind the host has drained.
DRAINED_NS = 300_000

Boundary = tuple[int, int, int, bool]
Run = tuple[Simulation, list[Boundary]]


def run(
    step: Callable[[Simulation, Callable[[int, float], None]], None], num_steps: int, **device: float
) -> Run:
    """Drive ``num_steps`` steps; ``phase(kind, host seconds)`` marks begin and end around host work."""
    simulation = Simulation(**device)  # type: ignore[arg-type]
    found: list[Boundary] = []
    clock = DeviceClock(simulation.event, lambda: simulation.now, lambda *row: found.append(row))

    for _ in range(num_steps):
        step(simulation, lambda *args: marked(simulation, clock, *args))
    simulation.host(1.0)
    clock.poll()
    return simulation, found


def marked(
    simulation: Simulation, clock: DeviceClock, kind: int, seconds: float, kernels: int = 0, each: float = 0.0
) -> None:
    """A phase of the host that launches kernels, its begin and end marked."""
    clock.mark(kind, False)
    for _ in range(kernels):
        simulation.launch(each)
    if kind == SYNC:
        simulation.synchronize()
    simulation.host(seconds)
    clock.mark(kind, True)


def idle_by_kind(found: list[Boundary]) -> dict[int, float]:
    """Idle seconds by the phase in which the device ran dry (0: between phases), as measure computes them."""
    idle: dict[int, float] = {}
    for (before, before_lag, _, _), (host, lag, kind, end) in pairwise(found):
        if lag < DRAINED_NS:
            dry = host - max(before, before + before_lag)
            idle[kind if end else 0] = idle.get(kind if end else 0, 0.0) + max(0, dry) / 1e9
    return idle


def data_bound(simulation: Simulation, phase: Callable[..., None]) -> None:
    phase(FETCH, 0.006)
    phase(FORWARD, 0.0, 40, 40e-6)
    phase(BACKWARD, 0.0, 80, 40e-6)
    phase(OPTIMIZER, 0.0, 10, 40e-6)


def device_bound(simulation: Simulation, phase: Callable[..., None]) -> None:
    phase(FETCH, 0.0003)
    phase(FORWARD, 0.0, 40, 100e-6)
    phase(BACKWARD, 0.0, 80, 100e-6)
    phase(OPTIMIZER, 0.0, 10, 100e-6)
    if simulation.tail - simulation.now > 60_000_000:  # as a full launch queue does
        simulation.now = simulation.tail - 60_000_000


def sync_and_log(simulation: Simulation, phase: Callable[..., None]) -> None:
    phase(FETCH, 0.001)
    phase(FORWARD, 0.0, 40, 40e-6)
    phase(BACKWARD, 0.0, 80, 40e-6)
    phase(OPTIMIZER, 0.0, 10, 40e-6)
    phase(SYNC, 0.0001)
    phase(LOG, 0.004)


@pytest.mark.parametrize("drift", [0.0, 20e-6, -20e-6])
def test_idle_is_charged_to_the_slow_fetch(drift: float) -> None:
    simulation, found = run(data_bound, 300, drift=drift)
    idle = idle_by_kind(found)
    assert idle[FETCH] / sum(idle.values()) > 0.9
    first, last = found[0][0], found[-1][0]
    truth = sum(max(0, min(end, last) - max(start, first)) for start, end in simulation.idle) / 1e9
    assert sum(idle.values()) == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize("drift", [0.0, 20e-6, -20e-6])
def test_a_device_that_never_drains_is_never_idle(drift: float) -> None:
    _, found = run(device_bound, 400, drift=drift)
    assert len(found) > 1000
    watched = (found[-1][0] - found[0][0]) / 1e9
    assert sum(idle_by_kind(found[50:]).values()) < 0.05 * watched


def test_idle_is_divided_between_fetch_and_log() -> None:
    _, found = run(sync_and_log, 300)
    idle = idle_by_kind(found)
    assert idle[LOG] == pytest.approx(300 * 0.004, rel=0.1)
    assert idle[FETCH] == pytest.approx(300 * 0.001, rel=0.1)
    assert idle.get(SYNC, 0.0) < 0.15 * idle[LOG]


@pytest.mark.parametrize("step", [data_bound, device_bound, sync_and_log])
@pytest.mark.parametrize("drift", [0.0, 20e-6, -20e-6])
def test_every_lag_that_is_written_is_the_true_one(
    step: Callable[..., None], drift: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth: dict[int, int] = {}
    record = Simulation._submit

    def remember(self: Simulation, duration: int) -> int:
        done = record(self, duration)
        if not duration:
            truth[self.now] = done
        return done

    monkeypatch.setattr(Simulation, "_submit", remember)
    simulation, found = run(step, 400, drift=drift)
    assert len(found) > 500
    wrong = 0
    for host, lag, _, _ in found:
        done = truth.get(host + simulation.event_cost)
        if done is not None:
            wrong += abs(lag - (done - host)) > max(2 * TIGHT_NS, 0.3 * lag)
    assert wrong == 0


def test_a_device_far_behind_costs_no_more_than_the_pool() -> None:
    simulation = Simulation()
    made = 0

    def make() -> object:
        nonlocal made
        made += 1
        return simulation.event()

    found: list[Boundary] = []
    clock = DeviceClock(make, lambda: simulation.now, lambda *row: found.append(row))  # type: ignore[arg-type]
    simulation.launch(100.0)
    for _ in range(5000):
        clock.mark(FORWARD, True)
        simulation.host(0.0001)
    assert made == POOL
    assert clock.dropped == 5000 - POOL
    simulation.synchronize()
    for _ in range(5000):
        clock.mark(FORWARD, True)
        simulation.host(0.0001)
    assert made == POOL
    assert found


def test_nothing_is_recorded_while_a_graph_is_captured() -> None:
    simulation = Simulation()
    capturing = True
    clock = DeviceClock(simulation.event, lambda: simulation.now, lambda *row: None, lambda: not capturing)
    before = simulation.now
    clock.mark(FORWARD, True)
    assert simulation.now == before
    capturing = False
    simulation.host(0.001)
    clock.mark(FORWARD, True)
    assert simulation.now > before + 1_000_000


def test_the_host_never_waits() -> None:
    simulation = Simulation()
    clock = DeviceClock(simulation.event, lambda: simulation.now, lambda *row: None)
    simulation.launch(5.0)
    before = simulation.now
    for _ in range(100):
        clock.mark(FORWARD, True)
    assert simulation.now - before < 1_000_000


def test_numbers_read_one_by_one_cost_hardly_an_event() -> None:
    recorded = 0

    def norms(simulation: Simulation, phase: Callable[..., None]) -> None:
        nonlocal recorded
        phase(FORWARD, 0.0, 40, 40e-6)
        made = Counted.records
        for _ in range(100):
            simulation.launch(5e-6, cost=60e-6)
            phase(SYNC, 0.0)
        recorded += Counted.records - made

    class Counted(Event):
        records = 0

        def record(self) -> None:
            Counted.records += 1
            super().record()

    simulation = Simulation()
    found: list[Boundary] = []
    simulation.event = lambda: Counted(simulation)  # type: ignore[method-assign]
    clock = DeviceClock(simulation.event, lambda: simulation.now, lambda *row: found.append(row))
    for _ in range(20):
        norms(simulation, lambda *args: marked(simulation, clock, *args))
    assert recorded <= 2 * 20
    drained = [lag for _, lag, kind, end in found if kind == SYNC and end]
    assert len(drained) > 1900
    assert not any(drained)
