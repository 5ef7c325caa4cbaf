"""``memory/out-of-memory`` from the texts runs end with, and from the kernel's counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from synthetic import evidence, steps

from hotloop.diagnose.diagnose import diagnose
from hotloop.diagnose.rules.memory.out_of_memory import read_failure
from hotloop.findings import Finding

GIB = 2**30

CUDA = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which "
    "1.20 GiB is free. Including non-PyTorch memory, this process has 22.48 GiB memory in use. Of the "
    "allocated memory {allocated} GiB is allocated by PyTorch, and {unused} GiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)
KILLED = "DataLoader worker (pid 4711) is killed by signal: Killed. "
BUS = (
    "DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. Please try to raise your shared memory limit."
)


def told(
    exception: str | None = None, message: str = "", *, exit_code: int = 1, rss: float = 0.0, **machine: Any
) -> Finding | None:
    """The finding of a run whose training process ended so, on a machine of 16 GiB."""
    run = steps({"forward": 0.5, "backward": 0.5}, num_steps=100)
    notes = (
        {"exit": [{"exception": exception, "message": message, "memory": {"VmHWM": GIB}}]}
        if exception
        else {}
    )
    pid = run.pid
    columns = {"t_s": np.arange(3.0), "rss_bytes": np.full(3, rss), "shared_bytes": np.zeros(3)}
    world = evidence(
        run,
        notes=notes,
        machine={"ram_bytes": 16 * GIB, **machine},
        process_system={pid: columns} if rss else {},
    )
    world = replace(world, recording=replace(world.recording, exit_code=exit_code))
    found = [one for one in diagnose(world) if one.id == "memory/out-of-memory"]
    return found[0] if found else None


def test_a_device_that_is_full() -> None:
    found = told("OutOfMemoryError", CUDA.format(allocated="22.00", unused="0.10"))
    assert found is not None
    assert found.message == "The device's memory of 23.7 GiB ran out: 2.00 GiB more did not fit."
    assert "gradient accumulation" in found.advice
    assert "tensors: 22.0 GiB" in found.evidence


def test_a_device_in_pieces_and_one_that_others_fill() -> None:
    pieces = told("OutOfMemoryError", CUDA.format(allocated="17.00", unused="5.00"))
    assert pieces is not None
    assert "expandable_segments" in pieces.advice
    shared = told("OutOfMemoryError", CUDA.format(allocated="9.00", unused="0.50"))
    assert shared is not None
    assert "other processes" in shared.advice


@pytest.mark.parametrize(
    ("message", "full"),
    [
        ("unable to allocate shared memory(shm) for file </torch_28829_1386_0>: Success (0)", True),
        ("unable to mmap 64 bytes from file </torch_1_2_3>: Cannot allocate memory (12)", True),
        ("unable to open shared memory object </torch_1_2> in read-write mode: Too many open files", False),
        ("unable to allocate shared memory(shm) for file </torch_1_2_3>: Operation not permitted (1)", False),
    ],
)  # fmt: skip
def test_what_torch_says_of_a_segment(message: str, full: bool) -> None:
    found = told("RuntimeError", message, shm_bytes=64 * 2**20)
    assert (found is not None and found.message.startswith("/dev/shm (64.0 MiB) ran full")) == full


def test_a_bus_error_is_a_full_shared_memory() -> None:
    found = told("RuntimeError", BUS, shm_bytes=64 * 2**20, shm_free_bytes=10 * 2**20)
    assert found is not None
    assert found.message.startswith("/dev/shm (64.0 MiB) ran full")
    assert "10.0 MiB of it were free when the run began" in found.evidence


@pytest.mark.parametrize(
    ("exception", "message", "asked"),
    [
        ("MemoryError", "", None),
        ("_ArrayMemoryError", "Unable to allocate 7.45 GiB for an array with shape (1000000000,)", 7.45),
        ("RuntimeError", "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate "
         "memory: you tried to allocate 1073741824 bytes. Error code 12 (Cannot allocate memory)", 1),
    ],
)  # fmt: skip
def test_what_the_host_refused(exception: str, message: str, asked: float | None) -> None:
    failure = read_failure(exception, message)
    assert failure is not None
    assert failure.kind == "host"
    assert failure.asked_bytes == (None if asked is None else pytest.approx(asked * GIB))
    found = told(exception, message)
    assert found is not None
    assert "refused" in found.message


@pytest.mark.parametrize(
    "message",
    ["shapes (3,4) and (5,6) not aligned", "CUDA error: device-side assert", "killed", "shm is nice"],
)
def test_other_exceptions_are_not_about_memory(message: str) -> None:
    assert read_failure("RuntimeError", message) is None
    assert told("RuntimeError", message, oom_kills={"machine": 1, "cgroup": 1}) is None


def test_sigkill_is_out_of_memory_only_where_something_proves_it() -> None:
    half = {"exit_code": 137, "rss": 8.0 * GIB}
    assert told(**half) is None
    assert told(**half, oom_kills={"machine": 0, "cgroup": 0}) is None
    by_cgroup = told(**half, oom_kills={"machine": 1, "cgroup": 1})
    assert by_cgroup is not None
    assert "the cgroup's count" in by_cgroup.evidence[0]
    by_machine = told(**half, oom_kills={"machine": 2})
    assert by_machine is not None
    assert "rose by 2" in by_machine.evidence[0]
    assert told(exit_code=137, rss=1.0 * GIB, oom_kills={"machine": 1}) is None  # somebody else's
    full = told(exit_code=137, rss=15.5 * GIB)
    assert full is not None
    assert "does not show its count" in full.evidence[0]
    assert told(exit_code=0, rss=15.5 * GIB, oom_kills={"machine": 1}) is None


def test_a_killed_worker_is_named() -> None:
    found = told("RuntimeError", KILLED, rss=8.0 * GIB, oom_kills={"machine": 1})
    assert found is not None
    assert "a DataLoader worker (pid 4711)" in found.message
    assert told("RuntimeError", KILLED, rss=8.0 * GIB, oom_kills={"machine": 0}) is None
    gone = "DataLoader worker (pid(s) 4711) exited unexpectedly"
    killed = told("RuntimeError", gone, rss=8.0 * GIB, oom_kills={"cgroup": 1, "machine": 1})
    assert killed is not None
    assert "(pid 4711)" in killed.message
    assert told("RuntimeError", gone, rss=15.5 * GIB) is None  # it may have crashed
