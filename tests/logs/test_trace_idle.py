"""Idle time is charged to its cause: on schedules whose truth is known, and on random ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.logs.kineto import BACKWARD, BASE_US, LATENCY_US, MAIN, NCCL, PID, STREAM, Machine

from hotloop.logs.trace.analysis import Analysis, Device, analyzed
from hotloop.logs.trace.idle import HELD, LAUNCHED, QUEUED
from hotloop.logs.trace.table import read_trace
from hotloop.phases import PHASES

US = 1e-6


def analysis(machine: Machine, folder: Path) -> Analysis:
    found = analyzed(read_trace(machine.save(folder / "trace.json")))
    assert found is not None
    return found


def device(machine: Machine, folder: Path) -> Device:
    found = analysis(machine, folder).device
    assert found is not None
    return found


def idle_us(found: Device, *kinds: int) -> dict[str, float]:
    by_phase = zip(PHASES, found.idle.by_phase(*kinds), strict=True)
    return {name: round(float(seconds) / US) for name, seconds in by_phase if seconds > 0}


def test_small_kernels_are_held_up_by_launching(tmp_path: Path) -> None:
    machine = Machine()
    with machine.step(0):
        for _ in range(100):
            machine.op(host_us=46, device_us=5)
    found = device(machine, tmp_path)
    # 50 us a round, 5 us of them work; the last kernel ends after the step.
    assert idle_us(found, LAUNCHED) == {"forward": round(found.idle_s / US)}
    assert found.idle_s / US == pytest.approx(100 * 45, abs=LATENCY_US)


def test_a_pause_of_the_host_inside_forward_is_no_launching(tmp_path: Path) -> None:
    machine = Machine()
    with machine.step(0):
        machine.op(host_us=10, device_us=100)
        machine.op("cudnn_init", host_us=50_000, device_us=100)
        machine.python(200)
    found = device(machine, tmp_path)
    assert idle_us(found, HELD)["forward"] > 49_000
    assert idle_us(found, LAUNCHED).get("forward", 0) < 100


def test_item_on_a_launch_bound_host_does_not_take_the_blame(tmp_path: Path) -> None:
    machine = Machine()
    with machine.step(0):
        for _ in range(10):
            for _ in range(20):
                machine.op(host_us=50, device_us=5)
            machine.item()
    found = idle_us(device(machine, tmp_path))
    assert found["sync"] < 0.05 * found["forward"]


def test_a_wait_takes_no_more_than_it_lasted(tmp_path: Path) -> None:
    machine = Machine()
    with machine.step(0):
        for _ in range(10):
            machine.op(host_us=6, device_us=80)
            machine.item()  # waits some 70 us
            for _ in range(20):
                machine.op(host_us=50, device_us=5)
    found = idle_us(device(machine, tmp_path))
    waited = sum(event["dur"] for event in machine.events if "Synchronize" in event["name"])
    assert 0.5 * waited < found["sync"] < 1.1 * waited
    assert found["forward"] > 3 * found["sync"]


def test_pageable_copies_are_transfer(tmp_path: Path) -> None:
    machine = Machine()
    with machine.step(0):
        for _ in range(5):
            machine.copy(64 << 20, 5000, pinned=False, non_blocking=True)
            for _ in range(20):
                machine.op(host_us=6, device_us=50)
    found = device(machine, tmp_path)
    assert found.copy_alone_s / US == pytest.approx(25_000, rel=0.05)
    assert idle_us(found)["transfer"] > 0.5 * found.idle_s / US


def test_backward_on_its_own_thread(tmp_path: Path) -> None:
    machine = Machine()
    with machine.step(0):
        machine.op(host_us=30, device_us=5)
        with machine.on(BACKWARD):
            for _ in range(20):
                with machine.span("autograd::engine::evaluate_function: MmBackward0", "cpu_op"):
                    machine.op(host_us=40, device_us=5)
        with machine.span("Optimizer.step#SGD.step"):
            machine.op("aten::_foreach_add_", host_us=200, device_us=5)
        machine.python(10)
    found = device(machine, tmp_path)
    assert idle_us(found)["backward"] == pytest.approx(20 * 39, abs=45)
    assert idle_us(found)["optimizer"] == pytest.approx(200, abs=20)
    work = {name: round(s / US) for name, s in zip(PHASES, found.compute_by_phase, strict=True) if s}
    assert work == {"forward": 5, "backward": 100, "optimizer": 5}


def test_work_that_was_queued_and_waited_for_another_stream_is_not_the_hosts(tmp_path: Path) -> None:
    machine = Machine()
    with machine.step(0):
        machine.op(host_us=10, device_us=100)
        machine.launch("ampere_sgemm", 100, after=4000)
        machine.python(5000)
    found = idle_us(device(machine, tmp_path), QUEUED)
    assert found == {"forward": pytest.approx(4000 - 116, abs=1)}


def test_what_is_inside_evaluation_stays_evaluation(tmp_path: Path) -> None:
    machine = Machine()
    with machine.step(0), machine.span("## eval_step ##"):
        machine.load(3000)
        machine.op(host_us=10, device_us=100)
        machine.item()
    assert set(idle_us(device(machine, tmp_path))) == {"evaluation"}


def test_collectives_count_only_where_nothing_computes(tmp_path: Path) -> None:
    machine = Machine()
    with machine.step(0):
        machine.op(host_us=10, device_us=1000)
        machine.launch(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 3000, stream=NCCL
        )
        machine.python(5000)
    found = device(machine, tmp_path)
    assert found.collective_s / US == pytest.approx(3000)
    assert found.collective_alone_s / US == pytest.approx(2000, abs=10)
    assert found.compute_s / US == pytest.approx(1000)


ACTIONS = st.one_of(
    st.tuples(st.just("op"), st.integers(1, 60), st.integers(0, 80)),
    st.tuples(st.just("op"), st.integers(1, 400), st.integers(0, 400)),
    st.tuples(st.just("backward"), st.integers(1, 60), st.integers(1, 80)),
    st.tuples(st.just("optimizer"), st.integers(1, 60), st.integers(1, 40)),
    st.tuples(st.just("load"), st.integers(1, 600), st.just(0)),
    st.tuples(st.just("python"), st.integers(1, 600), st.just(0)),
    st.tuples(st.just("nccl"), st.integers(1, 20), st.integers(1, 300)),
    st.tuples(st.just("item"), st.just(0), st.just(0)),
)
#: Without waits every idle moment has one cause, which the plain reading below finds too.
CALM = ACTIONS.filter(lambda action: action[0] != "item")


def run(program: list[tuple[str, int, int]]) -> Machine:
    machine = Machine()
    with machine.step(0):
        for kind, host_us, device_us in program:
            if kind == "op":
                machine.op(host_us=host_us, device_us=device_us)
            elif kind == "backward":
                name = "autograd::engine::evaluate_function: MmBackward0"
                with machine.on(BACKWARD), machine.span(name, "cpu_op"):
                    machine.op(host_us=host_us, device_us=device_us)
            elif kind == "optimizer":
                with machine.span("Optimizer.step#Adam.step"):
                    machine.op(host_us=host_us, device_us=device_us)
            elif kind == "nccl":
                machine.op(
                    "aten::cat", host_us=host_us, device_us=device_us, kernel="ncclKernel", stream=NCCL
                )
            elif kind == "load":
                machine.load(host_us)
            elif kind == "python":
                machine.python(host_us)
            else:
                machine.item()
    return machine


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTIONS, min_size=4, max_size=30))
def test_causes_add_up_to_the_idle_time(
    tmp_path_factory: pytest.TempPathFactory, program: list[tuple[str, int, int]]
) -> None:
    machine = run(program)
    found = analysis(machine, tmp_path_factory.mktemp("trace"))
    length, busy = ticks(machine)
    if found.device is None:
        assert not any(busy)
        return
    assert found.device.idle_s == pytest.approx((length - sum(busy)) * US, abs=US / 2)
    whole = found.device.compute_s + found.device.collective_alone_s + found.device.copy_alone_s
    assert whole + found.device.idle_s == pytest.approx(found.window.span_s)
    waited = sum(event["dur"] for event in machine.events if "Synchronize" in event["name"])
    copied = sum(event["dur"] for event in machine.events if event["name"] == "cudaMemcpyAsync")
    assert idle_us(found.device).get("sync", 0) <= 2 * (waited + copied + LATENCY_US)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(CALM, min_size=8, max_size=30))
def test_causes_are_those_of_a_plain_reading(
    tmp_path_factory: pytest.TempPathFactory, program: list[tuple[str, int, int]]
) -> None:
    machine = run(program)
    found = analysis(machine, tmp_path_factory.mktemp("trace")).device
    if found is not None:
        assert idle_us(found) == plain_reading(machine)


def ticks(machine: Machine) -> tuple[int, list[bool]]:
    """How long the step is, and for every microsecond of it whether the device worked."""
    length = next(event["dur"] for event in machine.events if event["name"].startswith("ProfilerStep"))
    busy = [False] * length
    for event in machine.events:
        if event["pid"] != PID:
            for tick in range(event["ts"], min(length, event["ts"] + event["dur"])):
                busy[tick] = True
    return length, busy


def plain_reading(machine: Machine) -> dict[str, int]:
    """Microsecond by microsecond: what did the thread do that should have launched the next work?"""
    length, busy = ticks(machine)
    work = sorted((event for event in machine.events if event["pid"] != PID), key=lambda event: event["ts"])
    calls = {e["args"]["correlation"]: e for e in machine.events if e["cat"] == "cuda_runtime"}
    activity = {thread: doing(machine, thread, length) for thread in (MAIN, BACKWARD)}
    found: dict[str, int] = {}
    for tick in range(length):
        if busy[tick]:
            continue
        following = next((event for event in work if event["ts"] > tick), None)
        call = calls[following["args"]["correlation"]] if following else None
        at = min(tick, call["ts"]) if call else tick
        thread = call["tid"] if call else MAIN
        cause = activity[thread][at] or activity[MAIN][at] or quiet(activity, thread, at, length)
        found[cause] = found.get(cause, 0) + 1
    return found


def doing(machine: Machine, thread: int, length: int) -> list[str]:
    """The phase of a thread at every microsecond, "" where it does nothing that is known."""
    phases = [""] * (length + 1)
    names = {"enumerate": "data_wait", "Optimizer": "optimizer", "autograd": "backward"}
    mine = [e for e in machine.events if e["pid"] == PID and e["tid"] == thread and e["dur"]]
    for event in sorted(mine, key=lambda event: event["dur"]):  # the outermost last
        if event["name"].startswith("ProfilerStep"):
            continue
        phase = next((phase for start, phase in names.items() if event["name"].startswith(start)), "forward")
        for tick in range(event["ts"], event["ts"] + event["dur"]):
            phases[tick] = phase
    return phases


def quiet(activity: dict[int, list[str]], thread: int, at: int, length: int) -> str:
    """What a stretch of nothing is: short and beside launching it belongs there."""
    both = [a or b for a, b in zip(activity[thread], activity[MAIN], strict=True)]
    first, last = at, at
    while first > 0 and not both[first - 1]:
        first -= 1
    while last < length and not both[last]:
        last += 1
    launching = ("forward", "backward", "optimizer")
    if first == 0 or last == length or last - first > 200:
        return "other"
    return next((phase for phase in (both[last], both[first - 1]) if phase in launching), "other")


def test_times_are_kept_to_the_nanosecond(tmp_path: Path) -> None:
    machine = Machine()
    with machine.step(0):
        machine.op(host_us=10, device_us=100)
    trace = read_trace(machine.save(tmp_path / "trace.json"))
    assert trace.device.start.tolist() == [(BASE_US + 10 + LATENCY_US) * 1000]
    assert trace.threads[int(trace.device.thread[0])] == ("0", str(STREAM))
