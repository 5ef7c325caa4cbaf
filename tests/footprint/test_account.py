"""The account of crafted recordings whose memory is known: device parts, copies, leaks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.report.report_samples import full_steps

from hotloop.diagnose.worker_memory import worker_memory
from hotloop.footprint.account import account, growing
from hotloop.record.recording import ROW_DTYPE, Process, Recording
from hotloop.report.footprint import render

MIB, GIB = 2**20, 2**30


def process(pid: int = 1, **fields: Any) -> Process:
    """A training process with the given notes and workers."""
    rows = np.zeros(0, ROW_DTYPE)
    return Process(
        pid=pid, ppid=0, role="main", rank=0, start_ns=0, end_ns=10**9, rows=rows,
        **{"notes": {}, **fields},
    )  # fmt: skip


def recording(*ranks: Process, machine: dict[str, Any] | None = None, **fields: Any) -> Recording:
    return Recording(
        folder=None, command=("python", "train.py"), exit_code=0, wall_s=100.0, start_ns=0, start_unix_s=0.0,
        ranks=ranks, machine={"ram_bytes": 64 * GIB, **(machine or {})},
        system=fields.pop("system", {}), **fields,
    )  # fmt: skip


def on_device(batch: int = 32, per_sample: float = 0.25 * GIB) -> dict[str, list[dict[str, Any]]]:
    """2 GiB of weights and gradients each, 4 of Adam's state, 1 frozen: 9 GiB kept; the rest by sample."""
    note = {
        "host_rss": GIB, "device_allocated": 9 * GIB, "device_reserved": 12 * GIB + batch * per_sample,
        "device_peak": 10 * GIB + batch * per_sample,
    }  # fmt: skip
    return {
        "memory": [{"host_rss": GIB, "device_reserved": 0}, *([note] * 6)],
        "optimizer": [{"held": {"cuda": [2 * GIB, 2 * GIB, 4 * GIB], "cpu": [0, 0, 400]}}],
        "module": [
            {"id": id_, "devices": ["cuda:0"], "param_bytes": of * GIB, "trainable_bytes": trained * GIB,
             "buffer_bytes": 0} for id_, of, trained in ((1, 2, 2), (2, 1, 0))
        ],
    }  # fmt: skip


GPU = {"gpus": [{"index": 0, "memory_bytes": 80 * GIB}]}
USED = {"t_s": np.arange(3.0), "gpu0_memory_bytes": np.full(3, 22 * GIB)}


def test_device_memory_by_what_it_is_for() -> None:
    found = account(recording(process(notes=on_device()), machine=GPU, system=USED), None)["device"]
    parts = {part["name"]: part["bytes"] / GIB for part in found["parts"]}
    assert parts == {
        "parameters": 2, "gradients": 2, "optimizer state": 4, "frozen, buffers": 1, "other tensors kept": 0,
        "activations, workspace": 9,
    }  # fmt: skip
    assert sum(parts.values()) * GIB == found["peak_bytes"] == 18 * GIB
    assert found["outside_bytes"] == 2 * GIB  # of 22 used, torch's allocator holds 20


def sampled(uss: list[float], anonymous: list[float]) -> dict[str, np.ndarray[Any, Any]]:
    count = len(uss)
    return {
        "t_s": np.arange(count) * 5.0,
        "rss_bytes": (np.array(anonymous) + 20) * MIB,
        "shared_bytes": np.full(count, 20.0 * MIB),
        "uss_bytes": np.array(uss) * MIB,
        "pss_bytes": np.array(uss) * MIB,
    }


@pytest.mark.parametrize(
    ("method", "uss", "anonymous", "copied", "own"),
    [
        ("fork", [np.nan, 20, 80], [300, 300, 300], 80, 0),  # pages copied: resident stays
        ("fork", [np.nan, 20, 80], [300, 320, 380], 0, 80),  # its own: resident grows as much
        ("fork", [np.nan, 30, 90], [300, 310, 330], 60, 30),
        ("spawn", [np.nan, 200, 250], [150, 200, 250], 0, 250),
    ],
)
def test_copies_are_told_from_what_a_worker_allocates(
    method: str, uss: list[float], anonymous: list[float], copied: float, own: float
) -> None:
    empty = np.zeros(0, ROW_DTYPE)
    worker = Process(
        pid=2, ppid=1, role="worker", rank=0, start_ns=0, end_ns=1, rows=empty,
        notes={"process": [{"start_method": method}]},
    )  # fmt: skip
    (found,) = worker_memory(
        recording(process(workers=(worker,)), process_system={2: sampled(uss, anonymous)})
    )
    assert found.copied_bytes / MIB == pytest.approx(copied)
    assert found.own_bytes / MIB == pytest.approx(own)


def test_workers_that_followed_each_other_are_not_added_up() -> None:
    workers = tuple(
        Process(
            pid=pid, ppid=1, role="worker", rank=0, start_ns=0, end_ns=1, rows=np.zeros(0, ROW_DTYPE),
            notes={"process": [{"start_method": "fork"}]},
        )
        for pid in (2, 3, 4)
    )  # fmt: skip
    lived = {pid: sampled([60, 80], [300, 300]) for pid in (2, 3, 4)}
    lived[3]["t_s"] = lived[3]["t_s"] + 2  # beside the first
    lived[4]["t_s"] = lived[4]["t_s"] + 20  # forked anew when both had ended
    run = recording(process(workers=workers, notes=on_device()), process_system=lived)
    memory = {**account(run, None), "limit_bytes": None, "ram_bytes": GIB}
    found = memory["workers"]
    assert (found["at_once"], found["private_bytes"] / MIB) == (2, pytest.approx(160))
    assert len(found["each"]) == 3
    text = render({"command": ["train.py"], "memory": memory, "findings": []})
    assert re.search(r"^2 +80 MiB +(\S+ \S+) \(\+\S+ \S+\)", text.replace(".0", ""), re.MULTILINE), text


def look(steps: int, **fields: Any) -> dict[str, Any]:
    return {"steps": steps, "seconds": steps / 100, "lines": [], "types": [], "containers": [], **fields}


def test_only_what_grows_with_the_steps_is_named() -> None:
    notes = [
        look(
            steps,
            lines=[
                [["/a.py", 3], 1000 * steps, steps],
                [["/a.py", 9], 10**6, 50],  # made once
                [["/a.py", 5], 10**6 * (1 + steps // 200 % 2), 5],  # comes and goes
            ],
            types=[["Node", 0, 2 * steps], ["dict", 0, 30]],
            containers=[["list", "main", "kept", steps, steps], ["list", "", "", 4096, 4064]],
        )
        for steps in (100, 200, 300, 400)
    ]
    found = growing(process(notes={"growth": notes}))
    assert found is not None
    assert [(one["line"], one["bytes_per_step"]) for one in found["lines"]] == [(3, 1000)]
    assert [(one["name"], one["count_per_step"]) for one in found["types"]] == [("Node", 2)]
    assert [(one["name"], one["items_per_step"]) for one in found["containers"]] == [("kept", 1)]
    assert growing(process(notes={"growth": notes[:2]})) is None


def test_the_dataset_is_what_the_batches_show() -> None:
    rank = full_steps()
    rank.samples[:] = 32.0
    loader = replace(
        rank.loaders[0], dataset={"len": 1000}, settings={"num_workers": 2, "prefetch_factor": 2},
        batch_bytes=32 * 3000, batch_fields=({"path": "0", "dtype": "uint8", "shape": [32, 3, 1000]},),
        worker_stats={},
    )  # fmt: skip
    found = account(recording(process()), replace(rank, loaders=(loader,)))["dataset"]
    assert found["stages"] == [
        {"name": "in the batch", "fields": ("uint8[3,1000]",), "sample_bytes": 3000.0, "total_bytes": 3e6}
    ]
    assert (found["num_workers"], found["batches_ahead"]) == (2, 5)


def test_a_recording_without_training_has_no_account() -> None:
    assert account(recording(), None) == {}
    assert account(recording(process()), None)["dataset"] is None
