"""Memory that is nearly used up, or ended the run: which memory, and the numbers that prove it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from hotloop import units
from hotloop.diagnose.device_state import smallest_device_bytes
from hotloop.diagnose.evidence import Evidence, cause, rule
from hotloop.diagnose.memory_use import device_notes, limit_of, note_column, peak_of
from hotloop.diagnose.worker_memory import private, shared_since_fork
from hotloop.findings import Finding, Place
from hotloop.measure.steps import LoaderUse
from hotloop.record.recording import Process
from hotloop.record.samples import finite
from hotloop.units import share, size

Kind = Literal["device", "host", "shared-memory", "killed-worker"]

_UNITS: Final = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE: Final = r"([\d.]+) (bytes|B|KiB|MiB|GiB|TiB)"

_DEVICE: Final = re.compile(r"\b(CUDA|HIP|XPU|MPS|MPS backend) out of memory", re.IGNORECASE)
_HOST: Final = re.compile(
    r"DefaultCPUAllocator: (can't allocate|not enough) memory|Unable to allocate .* for an array|"
    r"Cannot allocate memory|std::bad_alloc"
)
#: A bus error of a worker is a full /dev/shm; so is a segment of torch's that cannot be written or grown.
_SHARED: Final = re.compile(
    r"Bus error|shared memory object|allocate shared memory.*Success|"
    r"</?torch_\d+\S*>.*(No space left|Cannot allocate)|"
    r"No space left on device.*(shm|torch_)|(shm|torch_).*No space left on device",
    re.DOTALL,
)
#: What a segment of torch's fails for beside want of memory: the limit on open files (``ulimit -n``), rights.
_ELSE: Final = re.compile(r"Too many open files|Permission denied|Operation not permitted")
#: How a worker ends that the kernel killed; «unexpectedly» may be a crash as well.
_KILLED: Final = re.compile(r"DataLoader worker \(pid.*\) (is killed by signal: Killed|exited unexpectedly)")
_WORKER_PID: Final = re.compile(r"DataLoader worker \(pid(?:\(s\))? (\d+)")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One exception that memory caused; sizes in bytes, None where its text does not say."""

    kind: Kind
    asked_bytes: float | None = None
    capacity_bytes: float | None = None
    free_bytes: float | None = None
    allocated_bytes: float | None = None  # tensors, in torch's allocator
    unused_bytes: float | None = None  # held by torch's allocator without a tensor in it
    worker_pid: int | None = None


def read_failure(exception: str, message: str) -> Failure | None:
    """The failure of an exception's class and text, None where memory was not the cause."""
    if _DEVICE.search(message) or exception == "OutOfMemoryError":
        return Failure(
            kind="device",
            asked_bytes=_size(message, rf"Tried to allocate {_SIZE}"),
            capacity_bytes=_size(message, rf"total capacity of {_SIZE}"),
            free_bytes=_size(message, rf"of which {_SIZE} is free"),
            allocated_bytes=_size(message, rf"{_SIZE} is allocated by PyTorch"),
            unused_bytes=_size(message, rf"{_SIZE} is reserved by PyTorch but unallocated"),
        )
    worker = _WORKER_PID.search(message)
    pid = int(worker[1]) if worker else None
    if _KILLED.search(message):
        return Failure(kind="killed-worker", worker_pid=pid)
    if _SHARED.search(message) and not _ELSE.search(message):
        return Failure(kind="shared-memory", asked_bytes=_size(message, rf"mmap {_SIZE}"), worker_pid=pid)
    if exception in ("MemoryError", "_ArrayMemoryError") or _HOST.search(message):
        asked = _size(message, rf"tried to allocate {_SIZE}") or _size(
            message, rf"Unable to allocate {_SIZE}"
        )
        return Failure(kind="host", asked_bytes=asked)
    return None


def _size(text: str, pattern: str) -> float | None:
    found = re.search(pattern, text)
    return float(found[1]) * _UNITS[found[2]] if found else None


@rule("memory/near-limit", short_runs=True)
def near_limit(evidence: Evidence) -> Iterator[Finding]:
    """Compare the peak of the run's processes with the memory of the machine or of its cgroup."""
    limit, used, limits = limit_of(evidence.machine), peak_of(evidence.recording), evidence.limits
    if limit is None or used <= 0:
        return
    cgroup = float(evidence.machine.get("memory_limit_bytes") or 0.0) == limit
    left = finite(evidence.recording.system.get("memory_available_bytes"))
    of_machine = 1.0 - float(left.min()) / limit if len(left) else 0.0
    full = used / limit if cgroup else of_machine
    # On a machine that others fill the run is not what to change.
    if full < limits.near_limit_ratio or used < 0.5 * limit:
        return
    yield cause(
        evidence,
        message=(
            f"The run used {size(used)} of memory at its peak; {share(full)} of "
            f"{'its limit' if cgroup else 'the machine'} ({size(limit)}) was taken."
        ),
        numbers=[
            f"peak of all processes of the run {size(used)}",
            f"{'cgroup limit' if cgroup else 'memory of the machine'} {size(limit)}",
        ],
        severity="high" if full >= limits.at_limit_ratio else "medium",
        data={"used_bytes": used, "limit_bytes": limit},
    )


@rule("memory/fragmentation", short_runs=True)
def fragmentation(evidence: Evidence) -> Iterator[Finding]:
    """Needs retries (the allocator freed its cache to go on), or far more reserved than ever allocated near
    the limit.
    """
    found = device_notes(evidence)
    if len(found) < 3 or not evidence.on_accelerator:
        return
    reserved = float(np.nanmax(note_column(found, "device_reserved")))
    allocated = np.append(note_column(found, "device_peak"), note_column(found, "device_allocated"))
    peak = float(np.nanmax(allocated))
    retries = float(np.nanmax(np.append(note_column(found, "alloc_retries"), 0)))
    capacity = smallest_device_bytes(evidence.recording)
    tight = capacity is not None and reserved > 0.9 * capacity
    loose = reserved > evidence.limits.fragmentation_ratio * peak
    if not (retries > 0 or (tight and loose)) or reserved < 1.1 * peak:
        return
    emptied = f", and emptied its cache {retries:.0f} times to go on" if retries else ""
    yield cause(
        evidence,
        message=f"The allocator holds {size(reserved)} of device memory for tensors of {size(peak)} at "
        f"most{emptied}.",
        numbers=[
            f"reserved {size(reserved)}, allocated at peak {size(peak)}, retries {retries:.0f}",
            *([f"the device has {size(capacity)}"] if capacity else []),
        ],
        severity="medium" if retries else "low",
        data={"reserved_bytes": reserved, "peak_bytes": peak, "retries": retries, "unpriced": retries > 0},
    )


@rule("memory/shared-memory-small", short_runs=True)
def shared_memory_small(evidence: Evidence) -> Iterator[Finding]:
    """Add up the batches of every loader with workers that may wait in shared memory at once."""
    held = float(evidence.machine.get("shm_bytes") or 0.0)
    used = (loader for loader in evidence.steps.loaders if loader.role != "unused")
    need = sum(waiting(loader) * loader.batch_bytes for loader in used)
    if held <= 0 or need < evidence.limits.shm_ratio * held:
        return
    train = evidence.steps.train_loader()
    yield cause(
        evidence,
        message=(
            f"Up to {size(need)} of batches wait in /dev/shm, which holds {size(held)}: a full one kills the "
            "workers with a bus error."
        ),
        numbers=[
            f"num_workers × prefetch_factor + 1 batches of each loader: {size(need)}",
            f"/dev/shm holds {size(held)}",
        ],
        severity="high" if need > 0.9 * held else "medium",
        where=train.where if train is not None else None,
        data={"need_bytes": need, "shm_bytes": held},
    )


def waiting(loader: LoaderUse) -> int:
    """Batches of a loader that may lie in shared memory at once."""
    workers = int(loader.settings.get("num_workers") or 0)
    return workers * int(loader.settings.get("prefetch_factor") or 2) + 1 if workers else 0


ID = "memory/out-of-memory"

#: Exit code of a command that SIGKILL ended, as a shell says it.
_SIGKILL = 137
#: Memory counts as used up from this share on.
_MET = 0.9


@rule(ID, short_runs=True)
def out_of_memory(evidence: Evidence) -> Iterator[Finding]:
    """Read the exception that ended a rank; where there is none, what the kernel counted."""
    for process in evidence.recording.ranks:
        note = process.last("exit")
        failure = read_failure(str(note.get("exception") or ""), str(note.get("message") or ""))
        if failure is None or failure.kind == "killed-worker":
            continue
        tell = {"device": _device, "shared-memory": _shared, "host": _host}[failure.kind]
        message, advice, proof = tell(evidence, failure, note.get("memory") or {})
        yield _finding(process, message, advice, proof, failure.kind, note.get("place"))
        return
    yield from _killed(evidence)


def _finding(
    process: Process, message: str, advice: str, proof: list[str], kind: str, place: Mapping[str, Any] | None
) -> Finding:
    where = Place(file=place["file"], line=place["line"], function=place["function"]) if place else None
    return Finding(
        id=ID,
        message=message,
        advice=advice,
        evidence=tuple(proof),
        severity="high",
        where=where,
        rank=process.rank,
        data={"severity_fixed": True, "kind": kind},
    )


def _device(evidence: Evidence, failure: Failure, memory: Mapping[str, Any]) -> tuple[str, str, list[str]]:
    asked, capacity = failure.asked_bytes, failure.capacity_bytes
    tensors, unused, free = failure.allocated_bytes, failure.unused_bytes, failure.free_bytes
    parts = (("asked for", asked), ("tensors", tensors), ("held by the allocator without a tensor", unused),
             ("free", free), ("device", capacity))  # fmt: skip
    proof = [f"{name}: {units.size(size)}" for name, size in parts if size is not None]
    advice = (
        "Lower the batch size and make up for it with gradient accumulation, or keep less for backward "
        "(autocast, checkpointing)."
    )
    if unused and asked and capacity and unused > max(asked, 0.1 * capacity):
        advice = (
            "There was room, but in pieces: set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and keep "
            "shapes the same from step to step."
        )
    if capacity and tensors is not None and free is not None:
        others = capacity - free - tensors - (unused or 0.0)
        if others > 0.2 * capacity:
            proof.append(f"other processes and CUDA itself: {units.size(others)}")
            advice = "Free the device first: other processes hold a large part of it (nvidia-smi names them)."
    of = f" of {units.size(capacity)}" if capacity else ""
    want = f": {units.size(asked)} more did not fit" if asked else ""
    return f"The device's memory{of} ran out{want}.", advice, proof


def _shared(evidence: Evidence, failure: Failure, memory: Mapping[str, Any]) -> tuple[str, str, list[str]]:
    size = float(evidence.machine.get("shm_bytes") or 0.0)
    free = evidence.machine.get("shm_free_bytes")
    proof = [f"/dev/shm holds {units.size(size)}"] if size else []
    if free is not None and size and free < 0.9 * size:
        proof.append(f"{units.size(float(free))} of it were free when the run began")
    held = [(waiting(one), one) for one in evidence.steps.loaders if waiting(one) and one.batch_bytes > 0]
    need = sum(ahead * loader.batch_bytes for ahead, loader in held)
    proof += [
        f"{ahead} batches of {units.size(loader.batch_bytes)} may wait there "
        f"(num_workers={loader.settings.get('num_workers')}): {units.size(ahead * loader.batch_bytes)}"
        for ahead, loader in held
    ]
    fits = int(_workers_that_fit(evidence, size))
    advice = "Give the container more (docker run --shm-size=8g, or --ipc=host)" + (
        f", or use num_workers={fits} with prefetch_factor=2."
        if fits and need > size > 0
        else ", or lower num_workers, prefetch_factor or the size of a sample."
    )
    what = f"/dev/shm ({units.size(size)})" if size else "/dev/shm"
    return f"{what} ran full: workers could not hand over their batches.", advice, proof


def _workers_that_fit(evidence: Evidence, size: float) -> float:
    """Workers of the training loader whose batches, two ahead and one in use, stay in half of ``size``."""
    loader = evidence.steps.train_loader()
    if loader is None or loader.batch_bytes <= 0:
        return 0.0
    return max(0.0, (0.5 * size / loader.batch_bytes - 1) // 2)


def _host(evidence: Evidence, failure: Failure, memory: Mapping[str, Any]) -> tuple[str, str, list[str]]:
    asked = failure.asked_bytes
    proof = [f"asked for last: {units.size(asked)}"] if asked else []
    total = limit_of(evidence.machine)
    proof += [f"resident at peak: {units.size(float(memory['VmHWM']))}"] if memory.get("VmHWM") else []
    proof += [f"memory there is: {units.size(total)}"] if total else []
    if asked and total and asked > total:
        message = (
            f"One allocation of {units.size(asked)} was asked for; there are {units.size(total)} at all."
        )
        return message, "Look at the shape: it is rarely meant to be this large.", proof
    limit = float(memory.get("RLIMIT_AS") or 0.0)
    if limit and float(memory.get("VmPeak") or 0.0) > 0.8 * limit:
        message = f"The process reached the limit of its address space (ulimit -v), {units.size(limit)}."
        advice = "Raise the limit, or keep less in the process."
        return message, advice, [*proof, f"RLIMIT_AS: {units.size(limit)}"]
    return (
        "The system refused the process memory" + (f": {units.size(asked)} more." if asked else "."),
        "Keep less in the process, or give it more; 'hotloop memory RUN' shows what it held.",
        proof,
    )


def _killed(evidence: Evidence) -> Iterator[Finding]:
    """The kernel's out-of-memory killer, told by its own count; without one, by SIGKILL at the limit."""
    victim = _victim(evidence)
    limit = limit_of(evidence.machine)
    if victim is None or limit is None:
        return
    process, who = victim
    kills: Mapping[str, int] = evidence.machine.get("oom_kills") or {}
    used = peak_of(evidence.recording)
    if kills.get("cgroup"):
        proof = [f"the cgroup's count of kills for want of memory rose by {kills['cgroup']} during the run"]
    elif kills.get("machine") and used > 0.25 * limit:
        proof = [f"the kernel's count of kills for want of memory rose by {kills['machine']} during the run"]
    elif not kills and used > _MET * limit and _by_sigkill(evidence):
        proof = ["killed by SIGKILL; the kernel does not show its count of kills for want of memory"]
    else:
        return
    workers, main = _last(evidence, process.workers), _last(evidence, (process,))
    shares = (
        f"last sample before it: training process {units.size(main)}"
        + (f", {len(process.workers)} workers {units.size(workers)}" if process.workers else "")
        if main or workers
        else ""
    )
    cgroup = float(evidence.machine.get("memory_limit_bytes") or 0.0) == limit
    proof += [
        f"the run at its peak, as sampled twice a second: {units.size(used)}; "
        f"{'limit of the cgroup' if cgroup else 'machine'}: {units.size(limit)}",
        *([shares] if shares else []),
    ]
    advice = (
        "Lower num_workers or prefetch_factor, or keep the dataset's index in arrays: the workers held most."
        if workers > main
        else "Keep less in the training process, or raise the limit; 'hotloop memory RUN' shows what it "
        "held, and 'hotloop memory -- COMMAND' what grows."
    )
    what = "its cgroup" if cgroup else "the machine"
    message = f"The kernel killed {who}: the {units.size(limit)} of {what} were used up."
    yield _finding(process, message, advice, proof, "killed", None)


def _victim(evidence: Evidence) -> tuple[Process, str] | None:
    """A rank that was ended from outside, or whose worker was, and how to call what was killed."""
    recording = evidence.recording
    if recording.exit_code in (0, None):
        return None
    for process in recording.ranks:
        note = process.last("exit")
        failure = read_failure(str(note.get("exception") or ""), str(note.get("message") or ""))
        if failure is not None and failure.kind == "killed-worker":
            worker = f" (pid {failure.worker_pid})" if failure.worker_pid else ""
            return process, f"a DataLoader worker{worker}"
        if not note:
            several = f" of rank {process.rank}" if len(recording.ranks) > 1 else ""
            # A shell or torchrun between us and it has an exit code of its own.
            if recording.exit_code == _SIGKILL or evidence.machine.get("oom_kills"):
                return process, f"the training process{several} (pid {process.pid})"
    return None


def _by_sigkill(evidence: Evidence) -> bool:
    """Whether SIGKILL is sure: the command's exit code says it, or the text about its worker."""
    texts = (str(process.last("exit").get("message")) for process in evidence.recording.ranks)
    return evidence.recording.exit_code == _SIGKILL or any("by signal: Killed" in text for text in texts)


def _last(evidence: Evidence, processes: tuple[Process, ...]) -> float:
    """Private bytes of processes at their last samples together."""
    inherited, total = shared_since_fork(evidence.recording), 0.0
    for process in processes:
        known = finite(private(evidence.recording.process_system.get(process.pid, {})))
        total += max(0.0, float(known[-1]) - inherited.get(process.pid, 0.0)) if len(known) else 0.0
    return total
