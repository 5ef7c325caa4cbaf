"""GPUs: link, power, clocks, memory in use, measured copies and matrix products. Not yet run on a GPU."""

from __future__ import annotations

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
#: Bytes a second of one PCIe lane by generation, in one direction (PCI-SIG, after encoding).
_LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.97, 5: 3.94, 6: 7.56}


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
