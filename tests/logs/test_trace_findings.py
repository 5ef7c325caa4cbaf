"""What a trace proves is said under the ids of a run; what it cannot tell is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.logs.kineto import A100, NCCL, V100, Machine

from hotloop.logs.analyze import analyze as analyze_all
from hotloop.logs.log import Part
from hotloop.logs.trace import analyze

HALF = "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"


def healthy(machine: Machine) -> None:
    machine.load(20)
    machine.copy(1 << 20, 50, pinned=True, non_blocking=True)
    for _ in range(40):
        machine.op(host_us=8, device_us=200, kernel=HALF)


def small_kernels(machine: Machine) -> None:
    for _ in range(200):
        machine.op(host_us=40, device_us=4, kernel=HALF)


def workers(machine: Machine) -> None:
    machine.load(9000)
    healthy(machine)
    machine.python(7000)


def in_process(machine: Machine) -> None:
    machine.load(9000, "SingleProcess")
    healthy(machine)
    machine.python(7000)


def pageable(machine: Machine) -> None:
    machine.copy(64 << 20, 5000, pinned=False, non_blocking=False)
    healthy(machine)


def blocking(machine: Machine) -> None:
    machine.copy(4 << 20, 200, pinned=True, non_blocking=False)
    machine.python(60)
    for _ in range(10):
        machine.op(host_us=40, device_us=60, kernel=HALF)


def many_small(machine: Machine) -> None:
    healthy(machine)
    for _ in range(60):
        machine.copy(256, 1, pinned=False, non_blocking=False)


def sync(machine: Machine) -> None:
    for _ in range(30):
        for _ in range(4):
            machine.op(host_us=8, device_us=40, kernel=HALF)
        machine.item()


def python(machine: Machine) -> None:
    healthy(machine)
    machine.python(14_000)


def collectives(machine: Machine) -> None:
    healthy(machine)
    machine.launch("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 12_000, stream=NCCL)
    machine.python(12_000)


def float32(machine: Machine) -> None:
    for _ in range(40):
        machine.op(host_us=8, device_us=200, kernel="ampere_sgemm_128x64_tn")


def part(loop: Callable[[Machine], None], folder: Path, device: dict[str, object] = A100) -> Part:
    machine = Machine()
    for number in range(8):
        with machine.step(number):
            loop(machine)
            machine.python(max(0, machine.free.get(7, 0) - machine.now - 2000))  # not too far ahead
    return analyze(machine.save(folder / "trace.json.gz", device=device))


CASES: dict[str, tuple[Callable[[Machine], None], tuple[str, ...]]] = {
    "healthy": (healthy, ()),
    "small kernels": (small_kernels, ("host/launch-bound",)),
    "workers": (workers, ("input/data-wait",)),
    "in process": (in_process, ("input/single-process",)),
    "pageable": (pageable, ("transfer/pageable",)),
    "blocking": (blocking, ("transfer/blocking",)),
    "many small": (many_small, ("transfer/many-small",)),
    "sync": (sync, ("host/sync-in-step",)),
    "python": (python, ("host/python-in-step",)),
    "collectives": (collectives, ("distributed/unoverlapped-collective",)),
    "float32": (float32, ("device/amp-off", "device/tf32-off")),
}


@pytest.mark.parametrize("name", CASES)
def test_each_cause_is_found_and_no_other(tmp_path: Path, name: str) -> None:
    loop, expected = CASES[name]
    found = part(loop, tmp_path)
    assert tuple(one.id for one in found.findings) == expected
    step_s = next(section for section in found.sections if section.title == "Steps").data["median_s"]
    for one in found.findings:
        assert one.severity != "info"
        assert one.share == pytest.approx(one.cost_s_per_step / step_s, rel=0.2)


def test_tf32_is_not_asked_of_a_device_without_it(tmp_path: Path) -> None:
    found = part(float32, tmp_path, V100)
    assert [one.id for one in found.findings] == ["device/amp-off"]
    assert "float16" in found.findings[0].advice


def test_what_a_trace_says_fits_a_terminal(tmp_path: Path) -> None:
    for name, (loop, _) in CASES.items():
        found = part(loop, tmp_path)
        assert all(len(line) <= 76 for section in found.sections for line in section.lines), name
        assert sum(phase.share for phase in found.phases) == pytest.approx(1)
        assert found.verdict


def test_where_it_comes_from(tmp_path: Path) -> None:
    found = part(collectives, tmp_path)
    assert found.source.kind == "torch.profiler trace"
    assert found.source.rank == 3
    assert "ProfilerStep#0 to 7" in found.source.recognized
    assert len(found.throughput) == 8


def test_what_may_have_holes_gives_no_causes(tmp_path: Path) -> None:
    machine = Machine()
    for number in range(8):
        with machine.step(number):
            small_kernels(machine)
    whole = analyze(machine.save(tmp_path / "trace.json"))
    assert [one.id for one in whole.findings] == ["host/launch-bound"]
    size = (tmp_path / "trace.json").stat().st_size
    cut = analyze(machine.save(tmp_path / "trace.json", truncate=int(0.9 * size)))
    assert (cut.phases, cut.findings) == ((), ())
    assert cut.verdict.startswith("The trace breaks off")
    kept = list(machine.events)
    machine.events = [e for e in kept if e["cat"] in ("cpu_op", "user_annotation")]  # the device's come last
    size = machine.save(tmp_path / "trace.json").stat().st_size
    before_device = analyze(machine.save(tmp_path / "trace.json", truncate=int(0.9 * size)))
    assert before_device.phases == () and before_device.verdict.startswith("The trace breaks off")
    machine.events = [e for e in kept if e["cat"] != "kernel" or e["args"]["correlation"] % 4]
    assert "25 % of the launches" in analyze(machine.save(tmp_path / "trace.json")).verdict
    machine.events = kept
    for event in [event for event in machine.events if event["cat"] == "cuda_runtime"]:
        machine.events.remove(event)
    without_calls = analyze(machine.save(tmp_path / "trace.json"))
    assert without_calls.findings == ()
    assert "or its launch not recorded" in str(without_calls.sections)
    other = [event | {"pid": event["pid"] + 1, "tid": event["tid"] + 1} for event in machine.events]
    machine.events += other
    assert analyze(machine.save(tmp_path / "trace.json")).verdict.startswith(
        "These are the traces of several"
    )


def test_the_rank_that_the_others_wait_for_is_named(tmp_path: Path) -> None:
    for rank in range(4):
        machine = Machine()
        for number in range(5):
            with machine.step(number):
                if rank == 2:
                    machine.load(6000)
                healthy(machine)
                late = 0 if rank == 2 else 6000  # the others' all-reduce begins earlier and lasts longer
                machine.launch("ncclDevKernel_AllReduce", 500 + late, after=machine.free[7], stream=NCCL)
                machine.python(machine.free[NCCL] - machine.now)
        machine.save(tmp_path / f"rank-{rank}.pt.trace.json.gz", rank=rank)
    found = analyze_all([tmp_path]).findings
    (finding,) = (one for one in found if one.id.startswith("distributed/unb"))
    assert (finding.id, finding.rank) == ("distributed/unbalanced-input", 2)
    assert finding.cost_s_per_step == pytest.approx(6e-3, rel=0.1)
