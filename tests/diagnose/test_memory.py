"""The memory family against machines and processes whose memory is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from synthetic import DATASET, TRAIN, found, input_run, line, loader, on_accelerator, steps

from hotloop.findings import Finding, Place
from hotloop.measure.steps import DeviceUse, Steps
from hotloop.record.recording import ROW_DTYPE, Process

MIB = float(2**20)
GIB = float(2**30)


def long_run(**fields: Any) -> Steps:
    """100 s of healthy training."""
    return steps({"forward": 0.5, "backward": 0.5}, num_steps=100, num_epochs=4, **fields)


def process(rss: Any, shared: float = 0.0) -> dict[str, Any]:
    seconds = np.arange(1, 101, 1.0)
    values = np.broadcast_to(np.asarray(rss, float), seconds.shape)
    return {"t_s": seconds, "rss_bytes": values, "shared_bytes": np.full(100, shared)}


NOISE = np.random.default_rng(0).normal(0, 2 * MIB, 100)
RISE = np.arange(100.0)


def test_steady_growth_is_told_with_its_slope_and_end() -> None:
    columns = process(GIB + 10 * MIB * RISE + NOISE)
    machine = {"ram_bytes": 16 * GIB}
    system = {"memory_available_bytes": np.full(100, 6 * GIB)}
    growth = found(long_run(), process_system={100: columns}, machine=machine, system=system)[
        "memory/host-growth"
    ]
    assert growth.data["bytes_per_s"] == pytest.approx(10 * MIB, rel=0.05)
    assert growth.data["seconds_to_limit"] == pytest.approx(614, rel=0.05)
    assert growth.severity == "high"


@pytest.mark.parametrize(("epoch", "severity"), [(25, "medium"), (95, "info")])
def test_growth_in_a_second_epoch_that_has_just_begun_may_be_the_first_ones(
    epoch: int, severity: str
) -> None:
    run = long_run(loaders=(loader(num_batches=epoch, num_iterators=1 + 100 // epoch),))
    machine = {"ram_bytes": 64 * GIB}
    system = {"memory_available_bytes": np.full(100, 60 * GIB)}
    columns = process(GIB + 10 * MIB * RISE + NOISE)
    growth = found(run, process_system={100: columns}, machine=machine, system=system)["memory/host-growth"]
    assert growth.severity == severity


@pytest.mark.parametrize(
    "rss",
    [
        GIB + NOISE,
        GIB + 500 * MIB * (RISE > 60),  # one step up: something was loaded
        GIB + 800 * MIB * (1 - np.exp(-RISE / 15)),  # levels off: a cache that got full
        GIB + 0.1 * MIB * RISE,
        GIB - 10 * MIB * RISE,
    ],
)  # fmt: skip
def test_memory_that_stays_or_levels_off_is_no_growth(rss: Any) -> None:
    assert "memory/host-growth" not in found(long_run(), process_system={100: process(rss)})


def test_growth_that_slows_is_noted_without_an_end() -> None:
    high_water = GIB + 60 * MIB * np.sqrt(RISE)  # of batches of ever-changing lengths
    system = {"memory_available_bytes": np.full(100, 6 * GIB)}
    growth = found(long_run(), process_system={100: process(high_water)}, system=system)["memory/host-growth"]
    assert growth.severity == "info" and growth.data["seconds_to_limit"] is None
    assert growth.message.endswith(" per step), slower in the later half of the run.")
    warm = GIB + 10 * MIB * RISE + 20 * MIB * np.minimum(RISE, RISE.max() / 5)  # then a steady leak
    growth = found(long_run(), process_system={100: process(warm)}, system=system)["memory/host-growth"]
    assert growth.data["seconds_to_limit"] is not None


def test_a_memory_map_read_from_start_to_end_is_no_growth() -> None:
    columns = process(GIB + 10 * MIB * RISE)
    columns["shared_bytes"] = 10 * MIB * RISE
    assert "memory/host-growth" not in found(long_run(), process_system={100: columns})


LEAK = """
def main():
    losses = []
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        losses.append(loss)
"""


def test_a_leak_of_three_seconds_is_seen_by_the_process_itself() -> None:
    run = long_run(source_loop=Place(file=TRAIN, line=4, function="main"))
    few = {name: column[:3] for name, column in process(GIB).items()}
    notes = [{"note": "memory", "t": int(i * 3e7), "host_rss": GIB + 10 * MIB * i} for i in range(100)]
    growth = found(run, process_system={100: few}, sources={TRAIN: LEAK}, notes={"memory": notes})
    assert growth["memory/host-growth"].where == Place(file=TRAIN, line=7, function="main")
    steady = [{**note, "host_rss": GIB} for note in notes]
    assert "memory/host-growth" not in found(run, process_system={100: few}, notes={"memory": steady})


@pytest.mark.parametrize(
    ("kept", "line_number"),
    [("loss", 7), ("loss.item()", None), ("loss + 0.1 * penalty", 7), ("float(loss) * len(x)", None)],
)
def test_the_line_that_keeps_the_graph_is_named(kept: str, line_number: int | None) -> None:
    run = long_run(source_loop=Place(file=TRAIN, line=4, function="main"))
    text = LEAK.replace("append(loss)", f"append({kept})")
    growth = found(run, process_system={100: process(GIB + 10 * MIB * RISE)}, sources={TRAIN: text})[
        "memory/host-growth"
    ]
    assert (growth.where.line if growth.where else None) == line_number


def workers(rss: Any) -> tuple[tuple[Process, ...], dict[int, dict[str, Any]]]:
    made = tuple(
        Process(
            pid=pid,
            ppid=100,
            role="worker",
            rank=0,
            start_ns=0,
            end_ns=0,
            rows=np.zeros(0, ROW_DTYPE),
            notes={},
        )
        for pid in (201, 202)
    )
    return made, {pid: process(rss) for pid in (201, 202)}


def fed(**fields: Any) -> Steps:
    return input_run(make_s=0.4, busy_s=1.0, workers=2, wait_s=0.0, num_steps=100, **fields)


def test_workers_that_copy_the_dataset() -> None:
    made, columns = workers(200 * MIB + 20 * MIB * RISE)
    copies = found(fed(), workers=made, process_system=columns, machine={"ram_bytes": 8 * GIB})[
        "memory/worker-copies"
    ]
    assert copies.severity == "medium"
    assert copies.data["bytes_per_worker"] == pytest.approx(79 * 20 * MIB, rel=0.05)


def test_workers_of_steady_size_copy_nothing() -> None:
    made, columns = workers(200 * MIB + 0.1 * MIB * RISE)
    assert "memory/worker-copies" not in found(fed(), workers=made, process_system=columns)


CACHE = """
class Windows:
    def __init__(self, files):
        self.files = files
        self.kept = {}

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if index not in self.kept:
            self.kept[index] = decode(self.files[index])
        return self.kept[index]
"""


def test_an_unbounded_cache_is_named_instead_of_copies() -> None:
    made, columns = workers(200 * MIB + 20 * MIB * RISE)
    run = fed(lines=[line(12, 5.0)])
    findings = found(
        run, workers=made, process_system=columns, sources={DATASET: CACHE}, machine={"ram_bytes": 8 * GIB}
    )
    assert findings["memory/unbounded-cache"].where == Place(
        file=DATASET, line=12, function="Windows.__getitem__"
    )
    assert "memory/worker-copies" not in findings


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("        if index not", "        key = (index, self.epoch)\n        if key not", True),
        ("        if index not", "        key = f'{index}'\n        if key not", True),
        ("        if index not", "        key = index % 100\n        if key not", False),
        ("        if index not", "        key = self.epoch\n        if key not", False),
        ("{}", "np.ones(1000)", False),  # weights of the samples
        ("\n    def __len__", "\n    def trim(self):\n        self.kept.popitem()\n\n    def __len__", False),
    ],
)
def test_a_cache_is_unbounded_where_it_keeps_every_sample(old: str, new: str, kept: bool) -> None:
    made, columns = workers(200 * MIB + 20 * MIB * RISE)
    text = CACHE.replace(old, new)
    if "key" in new:
        text = text.replace("self.kept[index]", "self.kept[key]")
    assert text != CACHE
    findings = found(
        fed(lines=[line(12, 5.0)]), workers=made, process_system=columns, sources={DATASET: text}
    )
    assert ("memory/unbounded-cache" in findings) is kept


@pytest.mark.parametrize(("used", "severity"), [(15.5, "high"), (14.6, "medium"), (12.0, None)])
def test_memory_near_a_container_limit(used: float, severity: str | None) -> None:
    machine = {"ram_bytes": 64 * GIB, "memory_limit_bytes": 16 * GIB}
    finding = found(long_run(), machine=machine, process_system={100: process(used * GIB)}).get(
        "memory/near-limit"
    )
    assert (finding.severity if finding else None) == severity


def test_a_machine_that_others_fill_is_not_the_runs_fault() -> None:
    system = {"memory_available_bytes": np.full(100, 0.2 * GIB)}
    world = {"machine": {"ram_bytes": 16 * GIB}, "system": system, "process_system": {100: process(2 * GIB)}}
    assert "memory/near-limit" not in found(long_run(), **world)


@pytest.mark.parametrize(("shm", "severity"), [(64 * MIB, "high"), (150 * MIB, "medium"), (4 * GIB, None)])
def test_shared_memory_against_the_batches_in_it(shm: float, severity: str | None) -> None:
    run = fed(batch_bytes=20 * MIB)
    finding = found(run, machine={"shm_bytes": shm}).get("memory/shared-memory-small")
    assert (finding.severity if finding else None) == severity


def device_notes(allocated: Any, reserved: Any, **fields: Any) -> dict[str, list[dict[str, Any]]]:
    rows = [
        {
            "note": "memory",
            "t": int(i * 1e9),
            "device_allocated": float(a),
            "device_reserved": float(r),
            **fields,
        }
        for i, (a, r) in enumerate(
            zip(np.broadcast_to(allocated, 100), np.broadcast_to(reserved, 100), strict=True)
        )
    ]
    return {"memory": rows}


GPU = {"gpus": [{"memory_bytes": 80 * GIB}]}


def test_device_memory_that_grows() -> None:
    run = on_accelerator(long_run())
    growth = found(run, notes=device_notes(GIB + 8 * MIB * RISE, 2 * GIB), machine=GPU)[
        "memory/device-growth"
    ]
    assert growth.data["bytes_per_s"] == pytest.approx(8 * MIB, rel=0.05)
    assert "memory/device-growth" not in found(run, notes=device_notes(GIB, 2 * GIB), machine=GPU)


def test_a_device_that_waits_for_the_driver_is_not_launch_bound() -> None:
    run = on_accelerator(
        long_run(), device=DeviceUse(busy_ratio=0.5, idle_s_by_phase={"backward": 0.5 * long_run().span_s})
    )
    calm = device_notes(GIB, 2 * GIB)
    assert "host/launch-bound" in found(run, notes=calm, machine=GPU)
    grows = device_notes(GIB + 8 * MIB * RISE, 2 * GIB + 8 * MIB * RISE)
    assert "host/launch-bound" not in found(run, notes=grows, machine=GPU)


def test_an_allocator_that_had_to_retry() -> None:
    run = on_accelerator(long_run())
    notes = device_notes(40 * GIB, 78 * GIB, device_peak=50 * GIB, alloc_retries=7)
    assert found(run, notes=notes, machine=GPU)["memory/fragmentation"].severity == "medium"
    calm = device_notes(40 * GIB, 44 * GIB, device_peak=43 * GIB, alloc_retries=0)
    assert "memory/fragmentation" not in found(run, notes=calm, machine=GPU)


def thrash(refaults_per_s: float) -> dict[str, Finding]:
    lines = [line(60, 8.0, source="raw = np.load(path)", on_cpu_ratio=0.1, nature="waiting")]
    run = input_run(
        make_s=0.8, busy_s=0.2, workers=2, wait_s=0.2, num_steps=250, make_on_cpu_ratio=0.2, num_iterators=5,
        lines=lines, worker_stats={"read_bytes": 5 * GIB, "rchar_bytes": 5 * GIB},
    )  # fmt: skip
    system = {"t_s": np.arange(100.0), "refaults_per_s": np.full(100, refaults_per_s)}
    return found(run, system=system)


def test_pages_read_again_are_a_cache_that_is_too_small() -> None:
    assert "memory/page-cache-thrash" in thrash(12000.0)
    assert "memory/page-cache-thrash" not in thrash(10.0)


def test_a_run_without_samples_says_nothing() -> None:
    assert [id for id in found(replace(long_run())) if id.startswith("memory/")] == []


# page faults


@pytest.mark.parametrize(
    ("per_step", "grows", "env", "told"),
    [
        (100_000, 0, {}, True),
        (40_000, 0, {}, False),
        (100_000, 90_000, {}, False),
        (100_000, 0, {"LD_PRELOAD": "libjemalloc.so.2"}, False),
        (100_000, 0, {"OMP_NUM_THREADS": "2"}, True),
    ],
)
def test_pages_asked_for_in_each_step_are_for_a_launch_to_price(
    per_step: float, grows: float, env: dict[str, str], told: bool
) -> None:
    sampled = process(GIB + grows * 4096 * RISE)
    sampled = {**sampled, "minor_faults": per_step * sampled["t_s"]}  # a step a second
    items = found(long_run(facts={"env": env}), process_system={100: sampled})
    assert ("memory/page-faults" in items) is told
    if told:
        item = items["memory/page-faults"]
        assert (item.severity, item.cost_s_per_step) == ("info", 0)
        assert item.data["faults_per_step"] == pytest.approx(per_step, rel=0.02)
        assert "390.6 MiB" in item.message or "391 MiB" in item.message


def test_pages_cost_no_more_than_the_kernel_worked() -> None:
    sampled = process(GIB)
    at = sampled["t_s"]

    def cost(kernel_s: float, **fields: Any) -> float:
        world = {100: {**sampled, "minor_faults": 100_000 * at, "system_s": kernel_s * at}}
        return found(long_run(**fields), process_system=world)["memory/page-faults"].cost_s_per_step

    assert cost(0.4, facts={"accelerator": True}) == 0
    assert cost(0.4) == pytest.approx(0.1, rel=0.02)
    assert cost(0.06) == pytest.approx(0.06, rel=0.02)


def test_pages_that_were_not_counted_say_nothing() -> None:
    assert "memory/page-faults" not in found(long_run(), process_system={100: process(GIB)})
