"""``memory/out-of-memory``: the run ended because memory did; which memory, and the numbers that prove it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hotloop import units
from hotloop.diagnose.discovery import rule
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.failures import Failure, read_failure
from hotloop.diagnose.memory_use import limit_of, peak_of
from hotloop.diagnose.rules.memory.limits import waiting
from hotloop.diagnose.worker_memory import private, shared_since_fork
from hotloop.findings import Finding, Place
from hotloop.record.recording import Process

ID = "memory/out-of-memory"

#: Exit code of a command that SIGKILL ended, as a shell says it.
_SIGKILL = 137
#: Memory counts as used up from this share on.
_MET = 0.9


@rule(ID, short_runs=True)
def check(evidence: Evidence) -> Iterator[Finding]:
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
        columns = evidence.recording.process_system.get(process.pid, {})
        values = private(columns)
        known = values[np.isfinite(values)]
        total += max(0.0, float(known[-1]) - inherited.get(process.pid, 0.0)) if len(known) else 0.0
    return total
