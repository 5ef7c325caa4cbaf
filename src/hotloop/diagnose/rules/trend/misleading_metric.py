"""``trend/misleading-metric``: a number the script prints about its own speed does not say what its name
says.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.diagnose.causes import cause, spot
from hotloop.diagnose.discovery import rule
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.source import text_of
from hotloop.findings import Finding, Place
from hotloop.source.clocks import late_data_time_at
from hotloop.units import duration, share

ID = "trend/misleading-metric"


@rule(ID)
def check(evidence: Evidence) -> Iterator[Finding]:
    """A «data time» whose clock is started inside the loop's body, when the batch is already there."""
    steps, place = evidence.steps, evidence.steps.source_loop
    waits = steps.share("data_wait") >= evidence.limits.worth_fixing_ratio
    if place is None or not waits or steps.train_loader() is None:
        return
    late = late_data_time_at(text_of(evidence, place.file), place.line)
    if late is None:
        return
    where = Place(file=place.file, line=late.node.lineno)
    yield cause(
        evidence,
        ID,
        message=(
            f"«{late.name}» at {spot(where)} starts its clock after the batch has arrived: it cannot see "
            f"the {duration(steps.per_step('data_wait'))} each step waits for data."
        ),
        advice=f"Set {late.since} at the end of the previous iteration, before the loop asks for a batch.",
        numbers=[
            f"{late.since} is set at line {late.since_line}, inside the loop over the batches",
            f"data_wait is {share(steps.share('data_wait'))} of the training span",
        ],
        severity="info",
        where=where,
        data={"kind": "data-time-after-batch"},
    )
