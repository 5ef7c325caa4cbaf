"""Host memory: size, limit, swap, shared memory, descriptors."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import psutil

from hotloop.doctor.line import Line, Patient
from hotloop.units import size

#: 8 workers, 2 batches ahead of 64 float images of 224 x 224 each: 0.6 GB.
_SHM_WANTED_BYTES = 1 << 30
_DESCRIPTORS_WANTED = 4096


def check(patient: Patient) -> Iterator[Line]:
    """What there is, and what of it a training run would trip over."""
    yield from _memory(patient)
    yield from _shared_memory(patient)
    yield _descriptors()


def _memory(patient: Patient) -> Iterator[Line]:
    total, limit = patient.machine.get("ram_bytes"), patient.machine.get("memory_limit_bytes")
    now = psutil.virtual_memory()
    usable = min(value for value in (total or now.total, limit) if value)
    of = f" of {size(now.total)} (limit of the cgroup)" if limit else ""
    full = now.percent > 90
    advice = "Another process holds most of it: caches and workers will push this machine into swap or OOM."
    yield Line(
        topic="memory",
        name="host",
        value=f"{size(usable)} usable{of}, {now.percent:.0f} % in use",
        state="warn" if full else "ok",
        advice=advice if full else "",
        data={"usable_bytes": usable, "total_bytes": now.total, "available_bytes": now.available},
    )
    swap = psutil.swap_memory()
    if swap.total and swap.percent > 20:
        yield Line(
            topic="memory", name="swap", value=f"{size(swap.used)} of {size(swap.total)} used", state="warn",
            advice="Memory ran out before: what was swapped out comes back page by page during training.",
        )  # fmt: skip


def _shared_memory(patient: Patient) -> Iterator[Line]:
    total, free = patient.machine.get("shm_bytes"), patient.machine.get("shm_free_bytes")
    if total is None or free is None:
        yield Line(topic="memory", name="/dev/shm", value="not there", state="unknown")
        return
    value = f"{size(free)} free of {size(total)}"
    if free < _SHM_WANTED_BYTES:
        container = patient.machine.get("container")
        way = (
            "docker run --shm-size=8g (or --ipc=host)"
            if container in ("docker", "podman")
            else "an emptyDir with medium: Memory mounted at /dev/shm"
            if container == "kubernetes"
            else "mount -o remount,size=8g /dev/shm (as root)"
        )
        advice = (
            f"DataLoader workers pass batches through it and die with a bus error when it is full: {way}."
        )
        yield Line(topic="memory", name="/dev/shm", value=value, state="warn", advice=advice)
    else:
        yield Line(topic="memory", name="/dev/shm", value=value, state="ok")


def _descriptors() -> Line:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    value = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    if soft != resource.RLIM_INFINITY and soft < _DESCRIPTORS_WANTED:
        most = "" if hard == resource.RLIM_INFINITY else f" (at most {hard} without root)"
        advice = (
            f"Every tensor a worker ships takes one («too many open files»): ulimit -n {_DESCRIPTORS_WANTED}"
            f"{most}."
        )
        return Line(topic="memory", name="open files", value=value, state="warn", advice=advice)
    return Line(topic="memory", name="open files", value=value, state="ok")
