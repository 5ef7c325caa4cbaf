"""GPUs: link, power, clocks, memory in use, measured copies and matrix peaks. Not yet run on a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hotloop.doctor.line import Line, Patient, judged
from hotloop.units import size

#: NVML's clocks-throttle reasons that mean the hardware protects itself (nvml.h).
_THROTTLED = {
    0x0000000000000008: "hardware slowdown",
    0x0000000000000020: "software thermal slowdown",
    0x0000000000000040: "hardware thermal slowdown",
    0x0000000000000080: "power brake",
}
#: A good product of large matrices reaches this share of the datasheet's peak.
_GOOD_RATIO = 0.6
#: Bytes a second of one PCIe lane by generation, in one direction (PCI-SIG, after encoding).
_LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.97, 5: 3.94, 6: 7.56}

#: Dense matrix peaks in TFLOP/s from NVIDIA's datasheets (no sparsity, boost clock, 32-bit accumulation) by
#: pattern of the device's name and dtype. The first that matches counts.
_PEAKS: Mapping[str, Mapping[str, float]] = {
    r"H200|H100.*(SXM|HBM3|NVL)|GH200": {"float32": 67.0, "tf32": 494.7, "bfloat16": 989.4, "float16": 989.4},
    r"H100": {"float32": 51.0, "tf32": 378.0, "bfloat16": 756.0, "float16": 756.0},
    r"\bA100\b|\bA800\b": {"float32": 19.5, "tf32": 156.0, "bfloat16": 312.0, "float16": 312.0},
    r"\bA10\b": {"float32": 31.2, "tf32": 62.5, "bfloat16": 125.0, "float16": 125.0},
    r"\bA30\b": {"float32": 10.3, "tf32": 82.0, "bfloat16": 165.0, "float16": 165.0},
    r"\bA40\b": {"float32": 37.4, "tf32": 74.8, "bfloat16": 149.7, "float16": 149.7},
    r"RTX A6000": {"float32": 38.7, "tf32": 77.4, "bfloat16": 154.8, "float16": 154.8},
    r"\bL40S\b": {"float32": 91.6, "tf32": 183.0, "bfloat16": 362.0, "float16": 362.0},
    r"\bL40\b": {"float32": 90.5, "tf32": 90.5, "bfloat16": 181.0, "float16": 181.0},
    r"\bL4\b": {"float32": 30.3, "tf32": 60.0, "bfloat16": 121.0, "float16": 121.0},
    r"V100.*SXM": {"float32": 15.7, "float16": 125.0},
    r"V100": {"float32": 14.0, "float16": 112.0},
    r"\bT4\b": {"float32": 8.1, "float16": 65.0},
    r"RTX 4090": {"float32": 82.6, "tf32": 82.6, "bfloat16": 165.2, "float16": 165.2},
    r"RTX 3090": {"float32": 35.6, "tf32": 35.6, "bfloat16": 71.0, "float16": 71.0},
    r"RTX 3080(?! Ti)": {"float32": 29.8, "tf32": 29.8, "bfloat16": 59.5, "float16": 59.5},
}


def check(patient: Patient) -> Iterator[Line]:
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
    if not device.get("supported", True):
        advice = (
            f"This torch has no kernels for compute capability {device['capability']}: install a newer build."
        )
        yield Line(topic=topic, name="kernels", value="none", state="bad", advice=advice)
        return
    if "busy" in device:
        yield Line(topic=topic, name="measured", value=device["busy"], state="unknown")
    if "pinned_gb_per_s" in device:
        yield _copies(topic, device, gpus)
    known = peaks(device["name"])
    for dtype, value in (device.get("tflop_per_s") or {}).items():
        peak = known.get(dtype)
        name, words = f"matrix product {dtype}", f"{value:.0f} TFLOP/s"
        if not peak:
            yield Line(topic=topic, name=name, value=words)
            continue
        advice = "Clocks, power limit, another process, or an old build keep it down."
        words += f", {value / peak:.0%} of the datasheet's {peak:.0f}"
        yield judged(topic, name, words, advice if value < _GOOD_RATIO * peak else "")


def _copies(topic: str, device: Mapping[str, Any], gpus: list[Mapping[str, Any]]) -> Line:
    pinned, pageable = device["pinned_gb_per_s"], device["pageable_gb_per_s"]
    words = f"{pinned:.1f} GB/s pinned, {pageable:.1f} pageable"
    gpu = next((gpu for gpu in gpus if gpu.get("name") == device["name"]), {})
    lane = _LANE_GB_PER_S.get(int(gpu.get("pcie_gen_max") or 0))
    link = lane * float(gpu.get("pcie_width_max") or 0) if lane else 0.0
    low = bool(link) and pinned < 0.5 * link
    if link:
        words += f"; the link carries {link:.0f}"
    advice = "Copies reach less than half of the link: check the slot, NUMA binding and IOMMU."
    return judged(topic, "host to device", words, advice if low else "")


def peaks(name: str) -> Mapping[str, float]:
    """TFLOP/s by dtype for a device's name, empty for one that is not in the table."""
    return next((found for pattern, found in _PEAKS.items() if re.search(pattern, name)), {})
