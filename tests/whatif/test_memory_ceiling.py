"""Memory as the ceiling: told only where what the run would need more of it does not fit for certain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotloop.findings import Finding
from hotloop.record.recording import ROW_DTYPE, Process, Recording
from hotloop.record.rows import FETCH
from hotloop.whatif import words
from hotloop.whatif.estimate import WhatIf, estimate

GIB = 2**30


def finding(name: str, cost_s: float) -> Finding:
    return Finding(id=name, message="", advice="", evidence=(), cost_s_per_step=cost_s)


def found(
    *findings: Finding, step_s: float = 0.1, loader_s: float = 0.01, forward: int = 20, samples: int = 1000
) -> WhatIf:
    """Ten GiB kept on a device of 40, ``forward`` by one forward of 32 samples of 1 MiB each."""
    usual = {"valid": True, "leads": True, "steps": 10, "wait_s": 0.0, "cpu_s": 0.0}
    fill = [{"place": 0, "per_step": 1, "workers": 2, "alone_batches": 10, "alone_s": 10 * loader_s}]
    blocks: list[dict[str, Any]] = [
        {"name": name, "cycle": i, "mean_s": mean_s, "fill": fill, **usual}
        for name, mean_s in (("baseline", 2 * max(step_s, loader_s)), ("free-data", step_s))
        for i in range(3)
    ]
    rows = np.zeros(10, ROW_DTYPE)
    rows["kind"], rows["obj"], rows["value"] = FETCH, 1, 32
    note = {"host_rss": GIB, "device_allocated": 10 * GIB, "device_peak": (11 + forward) * GIB}
    note |= {"device_reserved": (11 + forward) * GIB, "forward_bytes": forward * GIB}
    notes = {
        "block": blocks,
        "intervention": [{"name": "free-data", "status": "", "exact": "", "leads": True}],
        "loader": [{"id": 1, "batch_size": 32, "shuffle": True, "dataset": {"len": samples}}],
        "iterator": [{"id": 1, "loader": 1}],
        "batch": [{"iterator": 1, "bytes": 32 * 2**20, "fields": []}],
        "memory": [{"host_rss": GIB}, *([note] * 6)],
    }
    process = Process(pid=1, ppid=0, role="main", rank=0, start_ns=0, end_ns=10**9, rows=rows, notes=notes)
    recording = Recording(
        folder=Path(), command=("train",), exit_code=0, wall_s=1.0, start_ns=0, start_unix_s=0.0,
        ranks=(process,), system={},
        machine={"cores": 4, "ram_bytes": 64 * GIB, "gpus": [{"index": 0, "memory_bytes": 40 * GIB}]},
    )  # fmt: skip
    result = estimate(recording, None, findings)
    assert result is not None
    return result


def test_a_device_that_waits_for_launches_and_has_no_room_for_a_larger_batch_is_held_by_memory() -> None:
    result = found(finding("host/launch-bound", 0.05))
    assert result.ceiling == "memory"
    assert "a batch of 64 needs 50.0 GiB of its 40.0 GiB" in result.memory
    assert "ceiling (memory): the device waits for launches" in words.render(result)


@pytest.mark.parametrize(("names", "forward"), [(("host/launch-bound",), 10), ((), 20)])
def test_where_it_may_fit_or_would_not_help_the_step_is_the_ceiling(
    names: tuple[str, ...], forward: int
) -> None:
    result = found(*(finding(name, 0.05) for name in names), forward=forward)
    assert (result.ceiling, result.memory) == ("device", "")


@pytest.mark.parametrize(("cost_s", "ceiling"), [(0.3, "memory"), (0.1, "input")])
def test_an_input_that_mostly_reads_again_is_held_by_memory(cost_s: float, ceiling: str) -> None:
    result = found(finding("memory/page-cache-thrash", cost_s), loader_s=0.4)
    assert result.ceiling == ceiling


def test_a_cache_that_does_not_fit_is_told_beside_the_ceiling() -> None:
    result = found(loader_s=0.4, samples=128 * 1024)
    assert result.ceiling == "input"
    assert "a cache of all samples would take 128 GiB: 25 % of them fit" in result.memory
    assert "memory: a cache" in words.render(result)
    assert not found(loader_s=0.4).memory
