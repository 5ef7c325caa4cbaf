"""Processor and host memory: usable cores, memory nodes, limits, swap, shared memory, descriptors."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import psutil

from hotloop.doctor.line import Line, Patient, judged
from hotloop.units import size

#: 8 workers, 2 batches ahead of 64 float images of 224 x 224 each: 0.6 GB.
_SHM_WANTED_BYTES = 1 << 30
_DESCRIPTORS_WANTED = 4096
_NODES = Path("/sys/devices/system/node")


def check(patient: Patient) -> Iterator[Line]:
    """What there is, and what of it a training run would trip over."""
    yield _cores(patient)
    nodes = len(list(_NODES.glob("node[0-9]*")))
    if nodes > 1:
        advice = (
            "Keep a training process, its workers and its GPU on one node: "
            "numactl --cpunodebind=N --membind=N for each rank (nvidia-smi topo -m says which)."
        )
        data = {"nodes": nodes}
        yield Line(topic="processor", name="memory nodes", value=str(nodes), advice=advice, data=data)
    yield from _memory(patient)
    yield _shared_memory(patient)
    yield _descriptors()


def _cores(patient: Patient) -> Line:
    machine = patient.machine
    cores, count = float(machine["cores"]), int(machine.get("cpu_count") or 1)
    value = f"{cores:g} of {count}" + (f", {model}" if (model := machine.get("cpu_model")) else "")
    advice = (
        "A quota or an affinity keeps the others away; libraries that count cores start too many "
        f"threads: set OMP_NUM_THREADS={max(1, int(cores))} or less for the training process."
    )
    data = {"cores": cores, "cpu_count": count}
    return judged("processor", "cores", value, advice if cores < count else "", data=data)


def _memory(patient: Patient) -> Iterator[Line]:
    limit, now = patient.machine.get("memory_limit_bytes"), psutil.virtual_memory()
    usable = min(now.total, limit or now.total)
    of = f" of {size(now.total)} (limit of the cgroup)" if limit else ""
    advice = "Another process holds most of it: caches and workers will push this machine into swap or OOM."
    yield judged(
        "memory", "host", f"{size(usable)} usable{of}, {now.percent:.0f} % in use",
        advice if now.percent > 90 else "",
        data={"usable_bytes": usable, "total_bytes": now.total, "available_bytes": now.available},
    )  # fmt: skip
    swap = psutil.swap_memory()
    if swap.total and swap.percent > 20:
        advice = "Memory ran out before: what was swapped out comes back page by page during training."
        yield judged("memory", "swap", f"{size(swap.used)} of {size(swap.total)} used", advice)


def _shared_memory(patient: Patient) -> Line:
    total, free = patient.machine.get("shm_bytes"), patient.machine.get("shm_free_bytes")
    if total is None or free is None:
        return Line(topic="memory", name="/dev/shm", value="not there", state="unknown")
    advice = (
        "DataLoader workers pass batches through it and die with a bus error when it is full: docker run "
        "--shm-size=8g or --ipc=host; kubernetes: an emptyDir with medium: Memory mounted there; else mount "
        "-o remount,size=8g /dev/shm (as root)."
    )
    short = free < _SHM_WANTED_BYTES
    return judged("memory", "/dev/shm", f"{size(free)} free of {size(total)}", advice if short else "")


def _descriptors() -> Line:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    value = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    most = "" if hard == resource.RLIM_INFINITY else f" (at most {hard} without root)"
    advice = (
        f"Every tensor a worker ships takes one («too many open files»): ulimit -n {_DESCRIPTORS_WANTED}"
        f"{most}."
    )
    few = soft != resource.RLIM_INFINITY and soft < _DESCRIPTORS_WANTED
    return judged("memory", "open files", value, advice if few else "")
