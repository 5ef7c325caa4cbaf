"""What is looked at, part by part, and one line of the examination."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil

from hotloop import foreign
from hotloop.units import rate, size

#: ``fact``: neither good nor bad; ``unknown``: could not be learned here, the value says why.
State = Literal["ok", "warn", "bad", "fact", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Line:
    """What was looked at, what was found, whether it is fine, and what to do where it is not."""

    topic: str
    name: str
    value: str
    state: State = "fact"
    advice: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


def judged(topic: str, name: str, value: str, advice: str, *, data: Mapping[str, Any] | None = None) -> Line:
    """A line that is fine where there is nothing to advise."""
    state: State = "warn" if advice else "ok"
    return Line(topic=topic, name=name, value=value, state=state, advice=advice, data=data or {})


@dataclass(frozen=True, kw_only=True)
class Patient:
    """What checks look at: facts of the machine (``launch.machine``), of torch, and the environment.

    ``torch`` is what ``doctor.probe`` printed; ``data`` is the folder whose storage is measured; ``quick``:
    nothing that takes seconds.
    """

    machine: Mapping[str, Any]
    torch: Mapping[str, Any]
    environment: Mapping[str, str]
    data: Path
    quick: bool = False


# Processor and host memory


#: 8 workers, 2 batches ahead of 64 float images of 224 x 224 each: 0.6 GB.
_SHM_WANTED_BYTES = 1 << 30
_DESCRIPTORS_WANTED = 4096
_NODES = Path("/sys/devices/system/node")


def host(patient: Patient) -> Iterator[Line]:
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


# Where the data is


#: One read: about an image, and a multiple of every block size.
READ_BYTES = 128 << 10
_MOST_FILES = 2000
_SECONDS = 1.5

_KINDS = {
    "network": "Read over the network for every sample; copy the data to a local disk, or bake or cache it.",
    "rotational": "A spinning disk gives about a hundred random reads a second; copy the data to an SSD, "
    "or read it in large sequential pieces (hotloop bake).",
}


def storage(patient: Patient) -> Iterator[Line]:
    """What the data folder is on and what it gives to one reader."""
    facts = patient.machine.get("storage") or {}
    kind = str(facts.get("kind") or "unknown")
    value = f"{patient.data}: {kind}" + (f", {facts['filesystem']}" if facts.get("filesystem") else "")
    advice = _KINDS.get(kind, "")
    state: State = "warn" if advice else "unknown" if kind == "unknown" else "ok"
    yield Line(topic="storage", name="data", value=value, state=state, advice=advice, data=dict(facts))
    free = facts.get("free_bytes")
    if free is not None:
        advice = "Checkpoints and logs need room: a full disk ends the run at its next checkpoint."
        yield judged("storage", "free space", size(free), advice if free < 5 << 30 else "")
    if not patient.quick:
        yield _reads(patient)


def _reads(patient: Patient) -> Line:
    name = f"random reads of {size(READ_BYTES)}"
    num_reads, seconds = random_reads(files_in(patient.data))
    if not num_reads:
        words = "not measured: no file there is that large (give the data's folder with --data)"
        return Line(topic="storage", name=name, value=words, state="unknown")
    per_s = num_reads / seconds
    advice = "One worker waits for every sample: use many workers, copy the data to a local disk, or bake it."
    value = f"{rate(per_s)}/s, {size(per_s * READ_BYTES)}/s for one reader"
    data = {"num_reads": num_reads, "reads_per_s": per_s, "bytes_per_s": per_s * READ_BYTES}
    return judged("storage", name, value, advice if per_s < 200 else "", data=data)


def files_in(folder: Path) -> list[Path]:
    """Some of the files below a folder that hold at least one read."""
    found: list[Path] = []
    for root, folders, names in foreign.walk(folder):
        folders.sort()
        for path in (Path(root, name) for name in sorted(names)):
            with contextlib.suppress(OSError):
                if path.is_file() and not path.is_symlink() and path.stat().st_size >= READ_BYTES:
                    found.append(path)
            if len(found) >= _MOST_FILES:
                return found
    return found


def random_reads(files: Sequence[Path], *, seconds: float = _SECONDS) -> tuple[int, float]:
    """How many single reads at random places of random files, and their seconds; as one worker does them.

    What the page cache held of it is dropped first, where the filesystem does that.
    """
    chosen = random.Random(0)
    count, spent = 0, 0.0
    until = time.perf_counter() + seconds
    while files and time.perf_counter() < until:
        path = chosen.choice(files)
        start = time.perf_counter()
        try:
            with path.open("rb", buffering=0) as file:
                offset = chosen.randrange(os.fstat(file.fileno()).st_size // READ_BYTES) * READ_BYTES
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(file.fileno(), offset, READ_BYTES, os.POSIX_FADV_DONTNEED)
                os.pread(file.fileno(), READ_BYTES, offset)
        except (OSError, ValueError):
            files = [one for one in files if one != path]
            continue
        spent += time.perf_counter() - start
        count += 1
    return count, spent


# The torch that is installed


#: Variable and the value that hurts -> what it does.
_VARIABLES = {
    ("CUDA_LAUNCH_BLOCKING", "1"): "Every kernel is waited for: the device idles between them. Unset it.",
    ("NVIDIA_TF32_OVERRIDE", "0"): "TF32 is off whatever the script says. Unset it.",
    ("TORCHDYNAMO_DISABLE", "1"): "torch.compile does nothing. Unset it.",
    ("TORCH_COMPILE_DISABLE", "1"): "torch.compile does nothing. Unset it.",
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"): "Every tensor is a cudaMalloc, which waits for the device. "
    "Unset it.",
    ("NCCL_P2P_DISABLE", "1"): "GPUs talk through the host instead of to each other. Unset it.",
    ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"): "Collectives are checked on all ranks. Unset it for real runs.",
}


def software(patient: Patient) -> Iterator[Line]:
    """Build, threads, variables."""
    torch = patient.torch
    if "torch" not in torch:
        yield Line(
            topic="torch", name="build", value=str(torch.get("error") or "not installed"), state="bad",
            advice="Name the python that trains with --python.",
        )  # fmt: skip
        return
    yield _build(patient)
    yield _threads(patient)
    if torch.get("triton") is False and torch.get("cuda_available"):
        advice = "torch.compile cannot make GPU kernels without it: pip install triton."
        yield judged("torch", "triton", "not installed", advice)
    for (name, value), words in _VARIABLES.items():
        if patient.environment.get(name, "").lower() == value.lower():
            yield Line(topic="torch", name=name, value=value, state="bad", advice=words)


def _build(patient: Patient) -> Line:
    torch, gpus = patient.torch, patient.machine.get("gpus") or []
    version = f"torch {torch['torch']}" + (f", CUDA {torch['cuda']}" if torch.get("cuda") else "")
    data = {name: torch.get(name) for name in ("torch", "cuda", "hip", "cudnn", "cuda_available")}
    visible = [gpu for gpu in gpus if gpu.get("visible", True)]
    for_gpus = torch.get("cuda") or torch.get("hip")
    if not gpus or (for_gpus and visible and torch.get("cuda_available")):
        return judged("torch", "build", version, "", data=data)
    if not for_gpus:
        version += ": CPU only"
        advice = (
            "There is a GPU and this torch cannot use one: install a CUDA build (pytorch.org/get-started)."
        )
    elif not visible:
        hidden = patient.environment.get("CUDA_VISIBLE_DEVICES", "")
        advice = f"CUDA_VISIBLE_DEVICES={hidden!r} hides every GPU."
    else:
        driver = next((gpu["driver"] for gpu in gpus if gpu.get("driver")), "of this machine")
        advice = (
            f"torch finds no GPU: driver {driver} is too old for CUDA {torch.get('cuda')}, or has failed."
        )
    return Line(topic="torch", name="build", value=version, state="bad", advice=advice, data=data)


def _threads(patient: Patient) -> Line:
    cores, threads = float(patient.machine["cores"]), int(patient.torch["threads"])
    value = f"{threads} in torch, OMP_NUM_THREADS {patient.environment.get('OMP_NUM_THREADS') or 'not set'}"
    wanted = f"OMP_NUM_THREADS={int(cores) or 1}"
    advice = f"More than the {cores:g} usable cores: threads wait for each other. {wanted}."
    many = threads > cores
    return judged("torch", "threads", value, advice if many else "", data={"threads": threads})


# GPUs: not yet run on one


#: NVML's clocks-throttle reasons that mean the hardware protects itself (nvml.h).
_THROTTLED = {
    0x0000000000000008: "hardware slowdown",
    0x0000000000000020: "software thermal slowdown",
    0x0000000000000040: "hardware thermal slowdown",
    0x0000000000000080: "power brake",
}
#: Bytes a second of one PCIe lane by generation, in one direction (PCI-SIG, after encoding).
_LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.97, 5: 3.94, 6: 7.56}


def gpus(patient: Patient) -> Iterator[Line]:
    """Every GPU the driver knows, then what torch measured on those it may use."""
    gpus = patient.machine.get("gpus") or []
    if not gpus:
        yield Line(topic="gpu", name="driver", value="no NVIDIA GPU found")
        return
    for gpu in gpus:
        yield from _driver(gpu)
    for device in patient.torch.get("devices") or ():
        yield from _measured(device, gpus)


def _driver(gpu: Mapping[str, Any]) -> Iterator[Line]:
    topic = f"gpu {gpu.get('index', 0)}"
    value = (
        f"{gpu.get('name', 'unnamed')}, {size(gpu.get('memory_bytes', 0))}, driver {gpu.get('driver', '?')}"
    )
    yield Line(topic=topic, name="device", value=value, state="ok", data=dict(gpu))
    width, most = gpu.get("pcie_width"), gpu.get("pcie_width_max")
    if width and most:
        words = f"generation {gpu.get('pcie_gen_max', '?')}, {width} of {most} lanes"
        advice = "The card or its riser is in a narrow slot: copies take that much longer."
        yield judged(topic, "PCIe", words, advice if width < most else "")
    limit, full = gpu.get("power_limit_w"), gpu.get("power_limit_max_w")
    if limit and full:
        advice = f"nvidia-smi -i {gpu.get('index', 0)} -pl {full:.0f} (as root) lets it run faster."
        low = limit < 0.9 * full
        yield judged(topic, "power limit", f"{limit:.0f} of {full:.0f} W", advice if low else "")
    reasons = [words for bit, words in _THROTTLED.items() if int(gpu.get("throttle_reasons") or 0) & bit]
    if reasons:
        advice = "Its clock is held down now: look at cooling and power before anything else."
        yield Line(topic=topic, name="clocks", value=", ".join(reasons), state="bad", advice=advice)
    used, total = gpu.get("memory_used_bytes"), gpu.get("memory_bytes")
    if used and total and used > 0.2 * total:
        advice = "Another process is on it: nvidia-smi shows which."
        yield judged(topic, "memory in use", size(used), advice)


def _measured(device: Mapping[str, Any], gpus: list[Mapping[str, Any]]) -> Iterator[Line]:
    topic = f"gpu {device['name']}"
    if "error" in device:
        advice = "This torch may be built for other GPUs: install one with kernels for this one."
        yield Line(topic=topic, name="measured", value=device["error"], state="bad", advice=advice)
    if device.get("busy"):
        advice = "Another process has its memory: nvidia-smi shows which."
        yield Line(topic=topic, name="measured", value="no memory", state="unknown", advice=advice)
    if "pinned_gb_per_s" in device:
        yield _copies(topic, device, gpus)
    for dtype, value in (device.get("tflop_per_s") or {}).items():
        yield Line(topic=topic, name=f"matrix product {dtype}", value=f"{value:.0f} TFLOP/s")


def _copies(topic: str, device: Mapping[str, Any], gpus: list[Mapping[str, Any]]) -> Line:
    pinned, pageable = device["pinned_gb_per_s"], device["pageable_gb_per_s"]
    words = f"{pinned:.1f} GB/s pinned, {pageable:.1f} pageable"
    gpu = next((gpu for gpu in gpus if gpu.get("name") == device["name"]), {})
    lane = _LANE_GB_PER_S.get(gpu.get("pcie_gen_max") or 0, 0.0)
    if link := lane * float(gpu.get("pcie_width_max") or 0):
        words += f"; the link carries {link:.0f}"
    advice = "Copies reach less than half of the link: check the slot, NUMA binding and IOMMU."
    return judged(topic, "host to device", words, advice if pinned < 0.5 * link else "")
