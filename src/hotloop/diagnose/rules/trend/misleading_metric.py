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
from hotloop.units import duration, rate, share

ID = "trend/misleading-metric"

_CLOCK = r"(?:time\.|timeit\.)?(?:time|perf_counter|monotonic|process_time|default_timer|timer)(?:_ns)?\(\)"
#: ``start = time.time()``
_STARTS = re.compile(rf"^\s*([\w.]+) = {_CLOCK}\s*(?:#.*)?$", re.M)
#: ``data_time = time.time() - start``, ``data_time += ...``, ``data_time.update(...)``
_ELAPSED = re.compile(rf"^\s*([\w.]+?)(?:\.update\(| \+?= ).*?{_CLOCK} - ([\w.]+)", re.M)
#: ``steps / (time.time() - start)``
_RATE = re.compile(rf"/ \(?{_CLOCK} - ([\w.]+)")
_LENGTH = re.compile(r"(?<!\* )(len\([\w.]+\)) / (\w+)")
_DATA_NAME = re.compile(
    r"(data|load|fetch|batch|input|io).*(time|_t|_s|_ms|dur|elapsed|sec)|^t_(data|load|fetch|input)",
    re.IGNORECASE,
)
#: What stands between steps and is none of them.
_PAUSES = ("evaluation", "checkpoint", "epoch_gap")


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
    steps, place = evidence.steps, evidence.steps.source_loop
    if place is None:
        return
    around = [one for one in loops_around(evidence, place) if one.over]
    if around and "time" in text_of(evidence, place.file):
        timers = _Timers(place.file, around[0])
        yield from _late_data_time(evidence, timers)
        yield from _cumulative_rate(evidence, timers)
    if steps.num_epochs > 1:
        for loop in loops_around(evidence, place):
            yield from _one_epoch_over_all(evidence, _Timers(place.file, loop))


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


def _cumulative_rate(evidence: Evidence, timers: _Timers) -> Iterator[Finding]:
    """A rate over all time since before the loop, read as the rate of now, where the two differ."""
    steps = evidence.steps
    total = steps.num_steps / max(1e-9, steps.end_s[-1] - steps.span[0])
    now = _rate_now(evidence)
    if now is None or now < total * (1 + 2 * evidence.limits.decay_ratio):
        return
    for found in _RATE.finditer(timers.loop.text):
        if found[1] in timers.started:
            continue
        place = timers.place(found)
        yield cause(
            evidence,
            ID,
            message=(
                f"The rate at {spot(place)} is an average since {found[1]}: at the end it stands for "
                f"{rate(total)} steps/s where the later steps ran at {rate(now)}."
            ),
            advice="Divide the steps since the last print by the time since the last print.",
            numbers=[
                f"{found[1]} is set before the loop and never inside it; the average holds start-up, "
                "evaluation and every pause",
                f"{steps.num_steps} steps in {duration(steps.span_s)}; a step of the second half takes "
                f"{duration(1 / now)} without its pauses",
            ],
            severity="info",
            where=place,
            data={"kind": "cumulative-average"},
        )
        return


def _rate_now(evidence: Evidence) -> float | None:
    """Steps per second of the second half, without its pauses; None with too few steps.

    A mean: where every n-th step makes the data of those after it, a median step does not.
    """
    steps = evidence.steps
    length = steps.end_s - steps.start_s
    for pause in _PAUSES:
        length = length - steps.phase(pause)
    later = length[steps.steady]
    later = later[len(later) // 2 :]
    return float(1.0 / max(1e-9, later.mean())) if len(later) >= evidence.limits.min_steps else None


def _one_epoch_over_all(evidence: Evidence, timers: _Timers) -> Iterator[Finding]:
    """``len(dataset) / elapsed`` where ``elapsed`` counts from before the loop: it falls by nature."""
    since = {found[1]: found[2] for found in _ELAPSED.finditer(timers.loop.text)}
    for found in _LENGTH.finditer(timers.loop.text):
        start = since.get(found[2])
        if start is None or start in timers.started:
            continue
        place = timers.place(found)
        yield cause(
            evidence,
            ID,
            message=(
                f"The rate at {spot(place)} divides {found[1]}, one epoch, by all the time since {start}: it "
                "falls every epoch, whatever the speed."
            ),
            advice=f"Set {start} at the start of every epoch.",
            numbers=[f"{start} is set before the loop at line {timers.loop.line} and never inside it"],
            severity="info",
            where=place,
            data={"kind": "one-epoch-over-all-time"},
        )
        return
