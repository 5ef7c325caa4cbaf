"""Whether it is memory that holds a ceiling where it is, as far as one run can tell."""

from __future__ import annotations

from collections.abc import Sequence

from hotloop.diagnose.memory_use import limit_of, peak_of
from hotloop.findings import Finding
from hotloop.footprint.batch import FILLED_RATIO
from hotloop.footprint.budgets import chosen
from hotloop.footprint.recorded import dataset, training_batch
from hotloop.footprint.training import device_memory
from hotloop.record.recording import Recording
from hotloop.units import share, size

#: Of the input's seconds, those that reading again takes must be more than this part.
_MOST_OF_IT = 0.5


def batch_cannot_grow(recording: Recording, findings: Sequence[Finding]) -> str:
    """The device waits for launches, which a larger batch would hide, and not even twice this one fits.

    The least that a batch of twice the size takes is counted: what is kept from step to step, what others
    hold, and twice what one forward keeps for its backward.
    """
    process = recording.ranks[0]
    held, batch = device_memory(recording, process), training_batch(process)
    launches = any(one.id == "host/launch-bound" for one in findings)
    if held is None or not held.capacity_bytes or not batch or not launches:
        return ""
    kept = dict(held.parts).get("kept for backward", 0.0)
    least = held.between_bytes + held.outside_bytes + 2 * kept
    if not kept or least <= FILLED_RATIO * held.capacity_bytes:
        return ""
    return (
        f"the device waits for launches, and a batch of {2 * batch} needs {size(least)} of its "
        f"{size(held.capacity_bytes)}"
    )


def reads_again(findings: Sequence[Finding], loader_s: float) -> str:
    """Most of what the input needs is reading again what memory did not keep from the epoch before."""
    for one in findings:
        if one.id == "memory/page-cache-thrash" and one.cost_s_per_step > _MOST_OF_IT * loader_s:
            return "the input reads again what memory could not keep from the epoch before"
    return ""


def cache_does_not_fit(recording: Recording) -> str:
    """How much of all samples a cache could hold, "" where it holds all or that is not known."""
    data, limit = dataset(recording), limit_of(recording.machine)
    if data is None or not data.num_samples or not data.stages or limit is None:
        return ""
    taken = data.stages[-1].total_bytes(data.num_samples)
    room = chosen(int(limit), taken_bytes=peak_of(recording))
    if taken <= room:
        return ""
    return f"a cache of all samples would take {size(taken)}: {share(room / taken)} of them fit"
