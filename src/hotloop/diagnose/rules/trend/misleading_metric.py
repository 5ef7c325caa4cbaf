"""``trend/misleading-metric``: a number the script prints about its own speed does not say what its name
says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hotloop.diagnose.causes import cause, spot
from hotloop.diagnose.discovery import rule
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.source import loops_around, text_of
from hotloop.findings import Finding, Place
from hotloop.source.around import Loop
from hotloop.units import duration, share

ID = "trend/misleading-metric"

_CLOCK = r"(?:time\.|timeit\.)?(?:time|perf_counter|monotonic|process_time|default_timer|timer)(?:_ns)?\(\)"
#: ``start = time.time()``
_STARTS = re.compile(rf"^\s*([\w.]+) = {_CLOCK}\s*(?:#.*)?$", re.M)
#: ``data_time = time.time() - start``, ``data_time += ...``, ``data_time.update(...)``
_ELAPSED = re.compile(rf"^\s*([\w.]+?)(?:\.update\(| \+?= ).*?{_CLOCK} - ([\w.]+)", re.M)
_DATA_NAME = re.compile(
    r"(data|load|fetch|batch|input|io).*(time|_t|_s|_ms|dur|elapsed|sec)|^t_(data|load|fetch|input)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Timers:
    """The clocks of a loop's text: where each is started, and what is taken from it."""

    file: str
    loop: Loop

    def place(self, at: re.Match[str]) -> Place:
        """The line of something found in the loop's text."""
        number = self.loop.text.count("\n", 0, at.start(1)) + self.loop.line
        return Place(file=self.file, line=number)

    @property
    def started(self) -> dict[str, Place]:
        """Clocks that are started inside the loop."""
        return {found[1]: self.place(found) for found in _STARTS.finditer(self.loop.text)}


@rule(ID)
def check(evidence: Evidence) -> Iterator[Finding]:
    """Read the training loop's own timers where the recording holds its source."""
    place = evidence.steps.source_loop
    if place is None:
        return
    around = [one for one in loops_around(evidence, place) if one.over]
    if around and "time" in text_of(evidence, place.file):
        yield from _late_data_time(evidence, _Timers(place.file, around[0]))


def _late_data_time(evidence: Evidence, timers: _Timers) -> Iterator[Finding]:
    """A «data time» whose clock is started inside the loop's body, when the batch is already there."""
    steps, started = evidence.steps, timers.started
    if steps.share("data_wait") < evidence.limits.worth_fixing_ratio or steps.train_loader() is None:
        return
    for timer in _ELAPSED.finditer(timers.loop.text):
        place, since = timers.place(timer), started.get(timer[2])
        if since is None or since.line > place.line or not _DATA_NAME.search(timer[1]):
            continue
        yield cause(
            evidence,
            ID,
            message=(
                f"«{timer[1]}» at {spot(place)} starts its clock after the batch has arrived: it cannot see "
                f"the {duration(steps.per_step('data_wait'))} each step waits for data."
            ),
            advice=(
                f"Set {timer[2]} at the end of the previous iteration, before the loop asks for the next "
                "batch."
            ),
            numbers=[
                f"{timer[2]} is set at line {since.line}, inside the loop over the batches",
                f"data_wait is {share(steps.share('data_wait'))} of the training span",
            ],
            severity="info",
            where=place,
            data={"kind": "data-time-after-batch"},
        )
        return
