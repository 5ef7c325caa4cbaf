"""The accelerator: how long it was busy, which host phase let it idle, its kernels where profiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotloop import units
from hotloop.report import words
from hotloop.report.markup import Markup, section, table, tag

Report = Mapping[str, Any]
Item = Mapping[str, Any]

_MAX_KERNELS = 20


def render(report: Report) -> Markup:
    """The section; nothing for a run without an accelerator."""
    device = report.get("device")
    if not device:
        return Markup()
    return section("device", "Device", _figures(device), _idle(device, report), _kernels(device))


def _figures(device: Item) -> Markup:
    found = [
        ("busy", device["busy_ratio"], "of the training span"),
        ("launch-bound", device["launch_bound_ratio"], "of the profiled window"),
        ("tensor cores", device["tensor_core_ratio"], "of the kernels' time"),
    ]
    cells = (
        tag("div", tag("dt", name), tag("dd", units.share(value)), tag("dd", note, class_="sub"))
        for name, value, note in found
        if value is not None
    )
    return tag("dl", *cells, class_="figures plain")


def _idle(device: Item, report: Report) -> Markup:
    idle = sorted(device["idle_s_by_phase"].items(), key=lambda item: -item[1])
    steps, span = max(1, report["num_steps"]), report["span_s"] or 1.0
    rows = [
        [
            tag(
                "span",
                tag("i", style=f"--c:var(--p-{name})", class_="swatch"),
                words.PHASE_WORDS.get(name, name),
            ),
            units.duration(seconds / steps),
            units.share(seconds / span),
        ]
        for name, seconds in idle
        if seconds > 0
    ]
    head = ["the device idled because of", "per step", "of training"]
    return table(
        head, rows, numeric=(1, 2), caption="Idle time of the device by the host phase that caused it"
    )


def _kernels(device: Item) -> Markup:
    rows = [
        [
            tag("code", words.cut(str(kernel.get("name", "")), 90), title=str(kernel.get("name", ""))),
            "yes" if kernel.get("tensor_core") else "",
            f"{kernel.get('count', 0):,}",
            units.duration(float(kernel.get("device_s") or 0.0)),
        ]
        for kernel in device["kernels"][:_MAX_KERNELS]
    ]
    head = ["kernel", "tensor cores", "launches", "device time"]
    return table(head, rows, numeric=(2, 3), caption="Kernels of the profiled window")
