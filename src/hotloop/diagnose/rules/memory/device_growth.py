"""``memory/device-growth``: tensors on the device grow in number or size with every step."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.device_memory import capacity_bytes, column, notes
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.memory_use import growth, severity_by_time
from hotloop.diagnose.rules.memory.host_growth import kept_graph
from hotloop.findings import Finding

ID = "memory/device-growth"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fit a line to the allocated device memory over the second half."""
    if not costs.enough(evidence) or not evidence.on_accelerator:
        return
    found = notes(evidence)
    place = kept_graph(evidence)
    line = (
        growth(column(found, "t"), column(found, "device_allocated"), goes_on=place is None)
        if found
        else None
    )
    if line is None or line.grown_bytes < evidence.limits.growth_bytes / 4:
        return
    capacity = capacity_bytes(evidence)
    left = (capacity - line.end_bytes) / line.bytes_per_s if capacity else None
    yield Finding(
        id=ID,
        message=(
            f"Allocated device memory grows by {units.size(line.bytes_per_s * 60)} per minute"
            + (f" and is full in {units.duration(left)}." if left is not None else ".")
        ),
        advice=(
            f"Use .item() or .detach() at {says.at(place)}: it holds on to the graph of every step."
            if place is not None
            else "Look for tensors kept from every step: losses, outputs, hidden states that are not "
            "detached."
        ),
        evidence=(
            f"{units.size(line.start_bytes)} to {units.size(line.end_bytes)} over the last "
            f"{units.duration(line.seconds)}, still growing at the end",
            *((f"the device has {units.size(capacity)}",) if capacity else ()),
        ),
        severity=severity_by_time(left),
        where=place,
        data={"bytes_per_s": line.bytes_per_s, "seconds_to_limit": left},
    )
