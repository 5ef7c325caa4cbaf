"""Synthetic runs for the tests of the report: one with everything in it, a healthy one, an empty one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.findings import Finding, Gain, Place
from hotloop.measure.steps import (
    DeviceUse,
    Interval,
    LineCost,
    LoaderUse,
    ModuleCost,
    Setting,
    SiteCost,
    Steps,
)
from hotloop.phases import COLUMN, PHASES
from hotloop.record.recording import ROW_DTYPE, Process, Recording
from hotloop.record.rows import BACKWARD, FETCH, FETCH_WORKERS, FORWARD, LOSS, MAKE, OPTIMIZER, SAMPLE, SYNC
from hotloop.report import model
from hotloop.source.written import Written

CWD = "/home/ana/projects/tcn-state"
DATA = f"{CWD}/src/tcn_state/data/windows.py"
TRAIN = f"{CWD}/train.py"
LONG = (
    "/mnt/shared/teams/perception/experiments/2026-11/überlange-Verzeichnisse/モデル/"
    "very_long_package_name/augment/pipeline_transforms.py"
)
DATA_TEXT = '''"""Sliding windows over recordings."""

import numpy as np
import torch
from torch.utils.data import Dataset


class Windows(Dataset):
    def __init__(self, frames, scaler, length=64):
        self.frames = frames
        self.scaler = scaler
        self.length = length

    def __len__(self):
        return len(self.frames) - self.length

    def __getitem__(self, index):
        window = self.frames[index : index + self.length]
        scaled = self.scaler.transform(window)  # </script><script>alert("größer & <b>")</script>
        return {
            "x": torch.tensor(scaled.tolist(), dtype=torch.float32),
            "y": torch.tensor(self.frames[index + self.length]),
            "id": index,
        }
'''
TRAIN_TEXT = "\n".join(
    ["import torch", "", ""]
    + [f"# line {i}" for i in range(4, 120)]
    + ["for batch in loader:", "    step(batch)"]
)

PLACES = (
    Place(file=DATA, line=19, function="__getitem__"),
    Place(file=TRAIN, line=120, function="main"),
    Place(file=LONG, line=1204, function="RandomPerspectiveWithÜberlangemNamen.forward"),
)
#: Mean seconds of each phase in a step.
STEP = {
    "data_wait": 0.0604, "transfer": 0.0011, "forward": 0.0085, "backward": 0.0098, "optimizer": 0.0021,
    "sync": 0.0009, "logging": 0.0007, "other": 0.0024,
}  # fmt: skip


def table(
    num_steps: int, step: dict[str, float], *, start_s: float = 0.0, seed: int = 0
) -> tuple[Any, Any, Any]:
    """start, end and phases of ``num_steps`` contiguous noisy steps; every 300th holds an evaluation."""
    rng = np.random.default_rng(seed)
    phases = np.zeros((num_steps, len(PHASES)))
    for name, seconds in step.items():
        phases[:, COLUMN[name]] = seconds * rng.lognormal(0.0, 0.12, num_steps)
    phases[:, COLUMN["forward"]] *= np.linspace(1.0, 1.15, num_steps)
    if num_steps > 300:
        phases[299::300, COLUMN["evaluation"]] = 2.4
        phases[299::300, COLUMN["checkpoint"]] = 0.6
        phases[300::300, COLUMN["epoch_gap"]] = 0.9
    ends = start_s + np.cumsum(phases.sum(axis=1))
    return np.concatenate([[start_s], ends[:-1]]), ends, phases


def steps(
    num_steps: int = 1200, *, rank: int = 0, step: dict[str, float] | None = None, **more: Any
) -> Steps:
    """A measured rank whose totals agree with its table; starts at 11.8 s, ends with a tail of 1.5 s."""
    start, end, phases = table(num_steps, step or STEP, start_s=11.8, seed=rank)
    span = (11.8, float(end[-1]))
    span_totals = {name: float(phases[:, i].sum()) for i, name in enumerate(PHASES)}
    totals = {**span_totals, "startup": 11.8, "checkpoint": span_totals["checkpoint"] + 1.2}
    steady = np.ones(num_steps, bool)
    steady[:3] = False
    fields: dict[str, Any] = {
        "rank": rank, "pid": 4100 + rank, "start_s": start, "end_s": end, "phases": phases,
        "samples": np.full(num_steps, 32.0), "steady": steady, "totals": totals, "span_totals": span_totals,
        "wall_s": span[1] + 1.5, "span": span, "unaccounted_s": 0.3, "num_updates": num_steps,
        "num_epochs": 4,
        "startup": {
            "import torch": 4.1, "setup": 5.2, "first batch": 1.3, "interpreter": 0.2, "other imports": 1.0,
        },
    }  # fmt: skip
    return Steps(**{**fields, **more})


def full_steps(rank: int = 0) -> Steps:
    """A rank with every view filled."""
    data, train, long = PLACES
    worker_lines = (
        LineCost(
            place=data, phase="data_wait", seconds=61.2, num_samples=6120, role="input", nature="native",
            library="sklearn.preprocessing._data", source="scaled = self.scaler.transform(window)",
        ),
        LineCost(
            place=replace(data, line=21), phase="data_wait", seconds=9.7, num_samples=970, role="input",
            nature="python",
        ),
    )  # fmt: skip
    loader = LoaderUse(
        id=1, role="train", where=Place(file=TRAIN, line=48, function="main"),
        settings={
            "batch_size": 32, "num_workers": 2, "prefetch_factor": 2, "pin_memory": False,
            "persistent_workers": False, "shuffle": True, "drop_last": True, "class": "DataLoader",
            "multiprocessing_context": None,
        },
        dataset={
            "class": "Windows", "module": "tcn_state.data.windows", "len": 38400, "file": DATA, "line": 17,
        },
        num_iterators=4, batches_per_epoch=300, num_batches=1200, wait_s=np.full(1200, 0.0604),
        ready=np.zeros(1200), iter_s=np.array([0.9, 0.9, 0.9, 0.9]),
        first_batch_s=np.array([1.1, 0.8, 0.8, 0.8]), shutdown_s=np.array([0.1, 0.1, 0.1]),
        make_s=np.full(1200, 0.118), sample_s=0.0036, slowest_sample_s=np.full(1200, 0.009),
        collate_s=0.0012, batch_bytes=3.2e6,
        batch_fields=(
            {"path": "x", "dtype": "float32", "shape": [32, 64, 24], "bytes": 196608},
            {"path": "id", "dtype": "int64", "shape": [32], "bytes": 256},
        ),
        unused_fields=("id",), make_on_cpu_ratio=0.97, busy_ratio=0.99, deliver_s=0.0006,
        lines=worker_lines, lines_total_s=74.0, num_worker_processes=8,
        worker_stats={"read_bytes": 1.2e9, "cpu_s": 141.0, "major_faults": 12},
    )  # fmt: skip
    evaluation = replace(
        loader, id=2, role="evaluation", unused_fields=(), lines=(),
        where=Place(file=TRAIN, line=55, function="main"), num_batches=160,
    )  # fmt: skip
    rng = np.random.default_rng(7)
    return steps(
        rank=rank,
        step={
            **STEP, "data_wait": 0.0604 if rank == 1 else 0.054,
            "collective": 0.0011 if rank == 1 else 0.0075,
        },
        lines=(
            LineCost(
                place=data, phase="data_wait", seconds=58.1, num_samples=5810, role="input",
                nature="native", library="sklearn.preprocessing._data", statement=train,
            ),
            LineCost(place=train, phase="other", seconds=2.2, num_samples=220, nature="python"),
            LineCost(
                place=long, phase="forward", seconds=1.9, num_samples=190, role="forward", nature="native",
                source="grid = F.affine_grid(θ, x.shape, align_corners=False)",
            ),
            LineCost(
                place=replace(train, line=4), phase="startup", seconds=3.1, num_samples=300,
                nature="native", library="pandas.io.parsers",
            ),
        ),
        loaders=(loader, evaluation),
        evaluations=(Interval(start_s=30.0, end_s=32.4, after_step=300, place=train),),
        checkpoints=(Interval(start_s=32.4, end_s=33.0, after_step=300, place=train),),
        sites={
            "sync": (SiteCost(place=replace(train, line=88), operation="item", count=1200, seconds=1.08),),
            "logging": (
                SiteCost(place=replace(train, line=90), operation="scalar", count=2400, seconds=0.84),
            ),
            "transfer": (
                SiteCost(
                    place=replace(train, line=80), operation="to", count=2400, seconds=1.3,
                    num_bytes=3_800_000_000, flags={"pinned": 0.0, "non_blocking": 1.0},
                ),
            ),
        },
        gc_s=0.4, gc_count=31, graph_breaks=2, compile_s=0.0,
        modules=(
            ModuleCost(
                name="encoder.blocks.0", cls="TemporalBlock", forward_share=0.41, backward_share=0.44,
                depth=2, num_params=1_204_224,
            ),
            ModuleCost(
                name="head", cls="Linear", forward_share=0.08, backward_share=0.05, depth=1,
                num_params=24_600,
            ),
        ),
        device=DeviceUse(
            busy_ratio=0.27, idle_s_by_phase={"data_wait": 71.0, "sync": 0.8}, launch_bound_ratio=0.02,
            kernels=({"name": "void cutlass::Kernel<sgemm>(Params)", "count": 1200, "device_s": 0.4},),
        ),
        losses=np.concatenate([2.0 * np.exp(-np.arange(600) / 150) + rng.normal(0, 0.05, 600), [np.nan]]),
        loss_steps=np.arange(601) * 2,
        settings=(
            Setting(
                name="num_workers", in_effect=2, configured=24, where=f"{CWD}/configs/überbau.yaml:12",
                differs=True, by=Written(file=DATA, line=44, text="num_workers=2"),
            ),
            Setting(name="batch_size", in_effect=32, configured="32", where="--batch-size"),
            Setting(
                name="amp", in_effect=False, configured="true", where=f"{CWD}/configs/überbau.yaml:31",
                differs=True,
            ),
            Setting(name="cudnn.benchmark", in_effect=False),
        ),
        facts={"torch": {"version": "2.13.0", "threads": 2}, "accelerator": True}, source_loop=train,
    )  # fmt: skip


def process(rank: int = 0, *, num_steps: int = 1200, num_workers: int = 2) -> Process:
    """A process with rows that look like its steps, stack samples, and its workers."""
    origin = 10_000_000_000 + rank * 20_000_000
    rows, at = [], origin + 11_800_000_000
    for index in range(num_steps):
        for kind, length, value, flags in (
            (FETCH, 60_400_000, 32, FETCH_WORKERS),
            (FORWARD, 8_500_000, 0, 15),
            (LOSS, 0, 0x3F800000, 0),
            (BACKWARD, 9_800_000, 0, 0),
            (OPTIMIZER, 2_100_000, 0, 0),
        ):
            rows.append((at, length, value, 1, 1, 2 if kind == FETCH else 0, flags, kind))
            at += length + 5_000
        rows.append((at - 1_000_000, 700_000, 0, 2, 0, 0, 0, SYNC))
        rows.append((at, 10_000_000, 1 + index % 2, 0, 1000, 40, 0, SAMPLE))
    table = np.sort(np.array(rows, ROW_DTYPE), order="start")
    notes: dict[str, list[dict[str, Any]]] = {
        "process": [{"note": "process", "cwd": CWD, "argv": ["train.py"]}],
        "site": [
            {"id": 1, "file": TRAIN, "line": 120, "func": "main", "stack": [[TRAIN, 120, "main", 40]]},
            {"id": 2, "file": LONG, "line": 1204, "func": "forward", "stack": []},
        ],
        "stack": [
            {
                "id": 1,
                "frames": [[TRAIN, 120, "main", 40], [DATA, 19, "__getitem__", 17]],
                "library": ["sklearn:f"],
            },
            {"id": 2, "frames": [[TRAIN, 120, "main", 40]], "library": []},
        ],
        "source": [{"file": DATA, "text": DATA_TEXT}, {"file": TRAIN, "text": TRAIN_TEXT}],
        "memory": [{"device_peak": 3_200_000_000, "host_rss": 2_100_000_000}],
    }
    workers = tuple(_worker(rank, index, origin) for index in range(num_workers))
    return Process(
        pid=4100 + rank, ppid=1, role="main", rank=rank, start_ns=origin, end_ns=at, rows=table,
        notes=notes, workers=workers,
    )  # fmt: skip


def _worker(rank: int, index: int, origin: int) -> Process:
    starts = origin + 12_000_000_000 + np.arange(50) * 125_000_000
    table = np.array(
        [(start, 118_000_000, 3_200_000, 0, index + 1, 32, 0, MAKE) for start in starts], ROW_DTYPE
    )
    pid = 5000 + 10 * rank + index
    return Process(
        pid=pid, ppid=4100 + rank, role="worker", rank=rank, start_ns=origin, end_ns=int(starts[-1]),
        rows=table, notes={},
    )  # fmt: skip


def recording(num_ranks: int = 1, **more: Any) -> Recording:
    """A recording with a sampled system around ``num_ranks`` processes."""
    ranks = tuple(process(rank) for rank in range(num_ranks))
    t_s = np.arange(0.0, 130.0, 0.5)
    wave = np.sin(t_s / 5.0)
    system = {
        "t_s": t_s, "cpu_ratio": 0.55 + 0.2 * wave, "memory_used_bytes": 2e10 + 1e8 * t_s,
        "page_cache_bytes": 9e9 + 0 * t_s, "disk_read_bytes_per_s": 4e7 * (1 + wave),
        "disk_write_bytes_per_s": 1e6 * (1 + wave), "net_recv_bytes_per_s": 2e5 * (1 - wave),
        "net_sent_bytes_per_s": 1e5 * (1 - wave), "cpu_pressure_ratio": 0.2 + 0.1 * wave,
        "io_pressure_ratio": 0 * t_s, "gpu0_util_ratio": 0.27 + 0.1 * wave,
        "gpu0_memory_bytes": 3.2e9 + 0 * t_s, "gpu0_power_w": 40 + 10 * wave,
        "gpu0_power_limit_w": 72 + 0 * t_s, "gpu1_util_ratio": 0.9 + 0 * t_s,
    }  # fmt: skip
    system["disk_read_bytes_per_s"][0] = np.nan  # a rate has no first value
    per_process = {
        item.pid: {"t_s": t_s, "cpu_ratio": 0.8 + 0.1 * wave, "rss_bytes": 1.6e9 + 4e6 * t_s}
        for rank in ranks
        for item in (rank, *rank.workers)
    }
    fields: dict[str, Any] = {
        "folder": Path("/home/ana/projects/tcn-state/hotloop-runs/20261120-234500-train"),
        "command": (
            "torchrun", "--nproc-per-node", "3", "train.py", "--config", "configs/überbau.yaml", "--data",
            "/mnt/shared/teams/perception/モデル",
        ),
        "exit_code": 0, "wall_s": 128.4, "start_ns": 9_800_000_000, "start_unix_s": 1_795_000_000.0,
        "ranks": ranks,
        "machine": {
            "cores": 8, "cpu_count": 8, "cpu_model": "AMD EPYC 9B14", "ram_bytes": 68719476736,
            "memory_limit_bytes": None, "hostname": "gpu-07", "python": "3.11.7", "kernel": "6.8.0",
            "gpus": [
                {"name": "NVIDIA L4", "memory_bytes": 24e9, "visible": True},
                {"name": "NVIDIA L4", "visible": False},
            ],
        },
        "system": system, "process_system": per_process,
        "warnings": ("Worker 3 of rank 1 was killed before it could write its last rows.",),
    }  # fmt: skip
    return Recording(**{**fields, **more})


def findings() -> list[Finding]:
    """Twelve findings, sorted by cost, with every field in use somewhere."""
    data, train, long = PLACES
    first = Finding(
        id="input/slow-sample",
        message="self.scaler.transform takes 3.3 of the 3.6 ms it takes to make a sample, and runs once per "
        "sample although it could run once per dataset",
        advice="Transform all frames once in __init__ and index the result.",
        evidence=(
            "making a batch takes 118 ms in each of 2 workers, the step needs one every 24 ms",
            "83 % of sampled worker time is at windows.py:19 (6,120 samples)",
            "sklearn.preprocessing._data: input validation on a 64 x 24 array each time",
        ),
        cost_s_per_step=0.0571,
        cost_ci95=(0.0552, 0.059),
        share=0.62,
        severity="high",
        where=data,
        remedies=("cache-samples", "bake"),
        gain=Gain(ratio=2.6, ci95=(2.5, 2.7), measured=True),
        data={"line_share": 0.83},
    )
    second = Finding(
        id="numerics/non-finite-loss",
        message="The loss was NaN once, at step 1,200",
        advice="Look at the batch of step 1,200, and clip gradients.",
        evidence=("1 of 601 seen losses is not finite",),
        severity="high",
        where=train,
        rank=1,
    )
    rest = [
        ("cadence/evaluation", "medium", 0.0081, 0.11), ("input/respawned-workers", "medium", 0.0031, 0.05),
        ("cadence/checkpoint", "medium", 0.0026, 0.04), ("host/sync-in-step", "low", 0.0009, 0.012),
        ("cadence/logging", "low", 0.0007, 0.009), ("transfer/pageable", "low", 0.0006, 0.008),
        ("input/unused-fields", "low", 0.0002, 0.002), ("device/amp-off", "info", 0.0, 0.0),
        ("config/ignored-value", "info", 0.0, 0.0), ("device/tf32-off", "info", 0.0, 0.0),
    ]  # fmt: skip
    others = [
        Finding(
            id=id_,
            message=f"A <b>sentence</b> about {id_} & what it does to the step",
            advice="Do this & not that.",
            evidence=("numbers: 1 < 2", "π ≈ 3.14"),
            cost_s_per_step=cost,
            share=share,
            severity=severity,
            where=long if cost else None,
        )
        for id_, severity, cost, share in rest
    ]
    return [first, second, *others]


VERDICT = (
    "Input-bound: the training loop spends 63 % of its time waiting for data. "
    "First: scaler.transform runs once per sample."
)


def full(**more: Any) -> dict[str, Any]:
    """The report of the full run with three ranks."""
    ranks = [full_steps(rank) for rank in range(3)]
    return model.build(recording(3, **more), ranks, findings(), bottleneck="input", verdict=VERDICT)


def healthy() -> dict[str, Any]:
    """The report of a compute-bound run with nothing to fix."""
    step = {"data_wait": 0.0003, "forward": 0.012, "backward": 0.024, "optimizer": 0.004}
    verdict = "Nothing worth fixing: compute-bound: 99 % of the time goes to forward and backward."
    return model.build(recording(), [steps(200, step=step)], [], bottleneck="device", verdict=verdict)


def empty(**more: Any) -> dict[str, Any]:
    """The report of a command that never reached torch."""
    seen = recording(0, system={}, process_system={}, **more)
    verdict = "No training process was seen: the command never reached torch."
    return model.build(seen, [], [], bottleneck="none", verdict=verdict)
