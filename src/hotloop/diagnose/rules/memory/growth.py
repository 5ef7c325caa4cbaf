"""Memory of the training process, or of the device, that grows steadily with every step."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hotloop.diagnose.device_state import smallest_device_bytes
from hotloop.diagnose.evidence import Evidence, cause, rule, spot
from hotloop.diagnose.memory_use import (
    FEW_SAMPLES,
    Growth,
    device_notes,
    growth,
    in_span,
    note_column,
    paced,
    room_bytes,
    severity_by_time,
)
from hotloop.diagnose.source import loops_around, text_of
from hotloop.findings import Finding, Place
from hotloop.units import duration, size

#: In fewer steps memory may be what a start takes.
_FEWEST_STEPS = 50
_ASSIGNED, _NAME = re.compile(r"\s*(\w+) = (.+)"), re.compile(r"\w+")
_BACKWARD = re.compile(r"([\w.\[\]]+)\.backward\(")


@rule("memory/host-growth")
def host_growth(evidence: Evidence) -> Iterator[Finding]:
    """Fit a line to the process's private memory over the second half; say when it meets the limit."""
    steps = evidence.steps
    place = kept_graph(evidence)
    seconds, values = in_span(evidence, steps.pid)
    found = growth(paced(evidence, seconds), values, goes_on=place is None)
    if found is None and len(seconds) < FEW_SAMPLES:  # a run of seconds; its own notes come more often
        notes = evidence.notes("memory")
        found = growth(note_column(notes, "t"), note_column(notes, "host_rss"), goes_on=place is None)
    if found is None or found.grown_bytes < evidence.limits.growth_bytes:
        return
    room = room_bytes(evidence)
    slows = found.slows and place is None
    left = room / found.bytes_per_s if room is not None and not slows else None
    end = f"; at this rate it meets the limit in {duration(left)}" if left is not None else ""
    end = ", slower in the later half of the run" if slows else end
    per_step = found.bytes_per_s * steps.step_s
    low, high = found.ci95
    sure = steps.num_steps >= _FEWEST_STEPS if place is not None else _settled(evidence)
    yield cause(
        evidence,
        message=(
            f"The training process grows by {size(found.bytes_per_s * 60)} per minute "
            f"({size(per_step)} per step){end}."
        ),
        advice=(
            f"Keep numbers, not tensors: use .item() or .detach() at {spot(place)}, which holds on to the "
            "graph of every step."
            if place is not None
            else "Look for what is kept from every step: losses or outputs with their graph, lists of "
            "metrics, a cache without a bound."
        ),
        numbers=[
            f"{_grown(found)} of private memory",
            f"slope {size(found.bytes_per_s)}/s, 95 % interval {size(low)} to {size(high)}/s",
            *([f"{size(room)} left at the end of the run"] if room is not None else []),
        ],
        severity=severity_by_time(left) if sure and not slows else "info",
        where=place,
        data={"bytes_per_s": found.bytes_per_s, "seconds_to_limit": left, "bytes_per_step": per_step},
    )


@rule("memory/device-growth")
def device_growth(evidence: Evidence) -> Iterator[Finding]:
    """Fit a line to the allocated device memory over the second half."""
    notes = device_notes(evidence)
    if not evidence.on_accelerator or not notes:
        return
    place = kept_graph(evidence)
    seconds, values = note_column(notes, "t"), note_column(notes, "device_allocated")
    found = growth(seconds, values, goes_on=place is None)
    if found is None or found.grown_bytes < evidence.limits.growth_bytes / 4:
        return
    capacity = smallest_device_bytes(evidence.recording)
    left = (capacity - found.end_bytes) / found.bytes_per_s if capacity else None
    yield cause(
        evidence,
        message=(
            f"Allocated device memory grows by {size(found.bytes_per_s * 60)} per minute"
            + (f" and is full in {duration(left)}." if left is not None else ".")
        ),
        advice=(
            f"Use .item() or .detach() at {spot(place)}: it holds on to the graph of every step."
            if place is not None
            else "Look for tensors kept from every step: losses, outputs, hidden states that are not "
            "detached."
        ),
        numbers=[_grown(found), *([f"the device has {size(capacity)}"] if capacity else [])],
        severity=severity_by_time(left),
        where=place,
        data={"bytes_per_s": found.bytes_per_s, "seconds_to_limit": left},
    )


def _grown(found: Growth) -> str:
    grown = f"{size(found.start_bytes)} to {size(found.end_bytes)} over the last {duration(found.seconds)}"
    return f"{grown}, still growing at the end"


def _settled(evidence: Evidence) -> bool:
    """Whether growth can no longer be a first epoch that fills caches, or a start that takes its time."""
    steps, limits = evidence.steps, evidence.limits
    loader = steps.train_loader()
    first = loader.batches_per_epoch if loader is not None else 0
    begun = steps.num_epochs >= 2 and steps.num_steps - first >= limits.min_steps
    return begun and steps.span_s >= limits.settled_span_s


def kept_graph(evidence: Evidence) -> Place | None:
    """Where the training loop keeps a tensor with its graph: what ``backward()`` is called on, or what was
    called to make that: ``kept.append(loss)``, ``total += loss``, ``outputs.append(prediction)``.
    """
    loop = evidence.steps.source_loop
    if loop is None:
        return None
    around = loops_around(evidence, loop)
    lines = list(enumerate(text_of(evidence, loop.file).splitlines(), 1))
    lines = lines[around[-1].line - 1 : around[-1].end_line] if around else []
    losses = {name for _, line in lines for name in _BACKWARD.findall(line)}
    made = {found[1]: found[2] for _, line in lines if (found := _ASSIGNED.match(line))}
    used = {name for loss in losses for name in _NAME.findall(made.get(loss, ""))}
    outputs = {name for name in used if "(" in made.get(name, "") and not made[name].startswith(f"{name}.")}
    # Arithmetic with it; a function, a method or an index may make a number of it.
    names = "|".join(map(re.escape, sorted(losses | outputs)))
    keeps = re.compile(rf"(\.append\(|\+= )([\w. ]+[*/+-] )?({names})(?![\w.\[(])")
    for number, line in lines if losses else ():
        if keeps.search(line):
            return Place(file=loop.file, line=number, function=loop.function)
    return None
