"""Where the data is: kind of storage, free space, measured random reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from hotloop.doctor.line import Line, Patient, State
from hotloop.doctor.reading import READ_BYTES, files_in, random_reads
from hotloop.units import rate, size

_KINDS = {
    "network": "Read over the network for every sample; copy the data to a local disk, or bake or cache it.",
    "rotational": "A spinning disk gives about a hundred random reads a second; copy the data to an SSD, "
    "or read it in large sequential pieces (hotloop bake).",
}


def check(patient: Patient) -> Iterator[Line]:
    """What the data folder is on and what it gives to one reader."""
    facts = patient.machine.get("storage") or {}
    kind = str(facts.get("kind") or "unknown")
    value = f"{patient.data}: {kind}" + (f", {facts['filesystem']}" if facts.get("filesystem") else "")
    advice = _KINDS.get(kind, "")
    state: State = "warn" if advice else "unknown" if kind == "unknown" else "ok"
    yield Line(topic="storage", name="data", value=value, state=state, advice=advice, data=dict(facts))
    free = facts.get("free_bytes")
    if free is not None:
        short = free < 5 << 30
        advice = (
            "Checkpoints and logs need room: a full disk ends the run at its next checkpoint."
            if short
            else ""
        )
        state = "warn" if short else "ok"
        yield Line(topic="storage", name="free space", value=size(free), state=state, advice=advice)
    if not patient.quick:
        yield _reads(patient)


def _reads(patient: Patient) -> Line:
    name = f"random reads of {size(READ_BYTES)}"
    measured = random_reads(files_in(patient.data))
    if measured is None:
        words = "not measured: no file there is that large (give the data's folder with --data)"
        return Line(topic="storage", name=name, value=words, state="unknown")
    value = f"{rate(measured.reads_per_s)}/s, {size(measured.bytes_per_s)}/s for one reader"
    if not measured.direct:
        value += " (partly from memory: this filesystem cannot be read past the page cache)"
    slow = measured.reads_per_s < 200
    advice = "One worker waits for every sample: use many workers, copy the data to a local disk, or bake it."
    return Line(
        topic="storage",
        name=name,
        value=value,
        state="warn" if slow else "ok",
        advice=advice if slow else "",
        data=dataclasses.asdict(measured),
    )
