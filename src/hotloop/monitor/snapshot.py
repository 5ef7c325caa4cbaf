"""The state of a run at one moment as one plain dictionary, which the terminal and the page render.

``Watched.snapshot`` reads what is new and is quick; the diagnosis in it is made now and then, beside it.
All texts in it are escaped.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from hotloop.errors import told
from hotloop.foreign import clean
from hotloop.logs.pauses import level, segments
from hotloop.monitor.diagnosis import Reporter, diagnosed
from hotloop.monitor.follow import Followed, Follower, Point
from hotloop.monitor.system import charts, gpus, machine, processes
from hotloop.record.read import open_recording
from hotloop.record.recording import Recording
from hotloop.record.warned import said_in
from hotloop.report import charts as specs
from hotloop.report import words
from hotloop.report.values import rounded
from hotloop.units import duration, rate

SCHEMA: Final = 1
#: The part of the time that looking may take of a core, and sending to who watches as well.
SHARE: Final = 1 / 500
_DIAGNOSING: Final = 1 / 1000  # the same, beside a diagnosis whenever the run has doubled
_LEAST_S: Final = 3.0  # between two diagnoses
_MORE: Final = 2.0  # so much more than at the last one is worth another
_SILENT_S: Final = 20.0  # without a sample: the launcher is gone
_STUCK: Final = 20.0  # steps' times without a step
_STUCK_S: Final = 30.0
_BINS: Final = 150
_BIN_STEPS: Final = 8  # fewer steps make no rate
_NOW_S: Final = 15.0


class Watched:
    """A run folder that is watched. Raises RecordingError where it holds no recording."""

    def __init__(self, folder: Path, reporter: Reporter) -> None:
        self._follower = Follower(folder)
        self._reporter = reporter
        self._running: Future[tuple[dict[str, Any], float]] | None = None
        self._diagnosis: dict[str, Any] | None = None
        self._failed = ""
        self._due_s = self._made_s = 0.0
        self._rows = self._counted = 0  # rows and steps at the last diagnosis
        self._last = False  # that one was of the finished run

    @property
    def over(self) -> bool:
        """Whether nothing changes any more: the run has ended, and what it was is known."""
        return bool(self._follower.run.get("complete")) and self._last and self._running is None

    def snapshot(self) -> dict[str, Any]:
        """The state now, see ``docs/guides/watch.md``. Seconds, bytes; ``t_s`` counts from the start."""
        follower = self._follower
        follower.look()
        self._diagnose()
        recording, diagnosis = follower.recording(rows=False), self._diagnosis
        if diagnosis and not (diagnosis["num_steps"] or recording.complete) and self._steps():
            diagnosis = None  # it was made too early to tell
        members = {one.facts.pid: one for one in follower.members.values()}
        lead = max(
            members.values(), key=lambda one: one.now.steps * (one.facts.role != "worker"), default=None
        )
        elapsed = _elapsed_s(recording)
        updates, exact = lead.steps if lead is not None else (0, True)
        count = round(updates * _steps_per_update(diagnosis))
        speed = _speed(lead, recording.start_ns, diagnosis, self.over)
        quiet_s = None
        if lead is not None and count and not recording.complete:
            quiet_s = max(0.0, elapsed[0] - (lead.now.last_ns - recording.start_ns) / 1e9)
        return {
            "schema": SCHEMA,
            "run": {
                "name": clean(follower.folder.name),
                "folder": clean(follower.folder),
                "command": words.command(recording.command),
            },
            "last": self.over,
            "at_unix_s": round(time.time(), 3),
            **_state(recording, elapsed, quiet_s, speed["steps_per_s"], bool(members)),
            "steps": {"count": count, "exact": exact, "quiet_s": quiet_s},
            "speed": speed,
            "diagnosis": diagnosis and diagnosis | {"age_s": time.monotonic() - self._made_s},
            "diagnosis_failed": self._failed,
            "remaining": _remaining(diagnosis, count, recording),
            "gpus": gpus(recording),
            "machine": machine(recording),
            "processes": processes(recording),
            "caches": _caches(members.values()),
            "charts": [*_throughput(speed), *charts(recording, lead.history if lead is not None else [])],
            "alerts": said_in(follower.folder),
            "warnings": [clean(one) for one in recording.warnings][:8],
        }

    def _diagnose(self) -> None:
        """Take a diagnosis that is done, and begin one where it is worth it."""
        now = time.monotonic()
        complete = bool(self._follower.run.get("complete"))
        if self._running is not None:
            if not self._running.done():
                return
            try:
                self._diagnosis, spent_s = self._running.result()
                self._failed = ""
            except Exception as error:  # the next one may succeed, and the looks go on
                self._failed, spent_s = clean(f"diagnosis failed: {told(error)}"), 1.0
            self._running, self._made_s = None, now
            self._due_s = now + max(_LEAST_S, spent_s / _DIAGNOSING)
        rows = sum(one.num_rows + sum(map(len, one.fresh)) for one in self._follower.members.values())
        more = rows >= _MORE * self._rows or self._steps() > _MORE * self._counted
        grown = more and now >= self._made_s + _LEAST_S
        if (rows and (now >= self._due_s or grown)) or (complete and not self._last):
            self._rows, self._counted = rows, self._steps()
            self._last, self._running = complete, Future()
            # Of a finished run all is read, as `hotloop report` does.
            part = None if complete else self._follower.recording(rows=True)
            # Nobody waits for it at exit.
            threading.Thread(target=self._work, args=(self._running, part), daemon=True).start()

    def _steps(self) -> int:
        """Steps of all that train."""
        return sum(one.steps[0] for one in self._follower.members.values() if one.facts.role != "worker")

    def _work(self, done: Future[tuple[dict[str, Any], float]], part: Recording | None) -> None:
        with suppress(OSError):
            os.nice(10)  # of this thread: the training goes first
        begun_s = time.thread_time()
        try:
            found = diagnosed(part or open_recording(self._follower.folder), self._reporter)
            done.set_result((found, time.thread_time() - begun_s))
        except BaseException as error:
            done.set_exception(error)


def _elapsed_s(recording: Recording) -> tuple[float, bool]:
    """Seconds since the command started, and whether somebody still counts them."""
    if recording.complete or not recording.start_unix_s:
        return recording.wall_s, False
    times = np.asarray(recording.system.get("t_s", (0.0,)))
    now_s = time.time() - recording.start_unix_s
    speaks = now_s - times[-1:].sum() < max(_SILENT_S, 5 * np.diff(times[-8:]).max(initial=0.0))
    return (max(recording.wall_s, now_s) if speaks else recording.wall_s), bool(speaks)


def _state(
    recording: Recording, elapsed: tuple[float, bool], quiet_s: float | None, per_s: float | None, seen: bool
) -> dict[str, Any]:
    """The state as one word, and in words."""
    (elapsed_s, speaks), code = elapsed, recording.exit_code if recording.complete else None
    if recording.complete:
        end = f"ended with exit code {code}" if code else "finished"
        state, said = "finished", f"{end} after {duration(elapsed_s)}"
    elif not speaks:
        state, said = "lost", "hotloop run writes no more"
    elif quiet_s is not None and per_s and quiet_s > max(_STUCK_S, _STUCK / per_s):
        state, said = "quiet", f"nothing happened for {duration(quiet_s)}"
    elif seen:
        state, said = "running", f"running for {duration(elapsed_s)}"
    else:
        state, said = "waiting", "waiting for the first process with torch"
    return {"state": state, "exit_code": code, "state_words": said, "elapsed_s": elapsed_s}


def _speed(
    lead: Followed | None, start_ns: int, diagnosis: dict[str, Any] | None, final: bool
) -> dict[str, Any]:
    """Steps per second now, of a run that is over its steady rate; how it went, and where it changed."""
    points = lead.history if lead is not None else []
    bins = _binned(points)
    each = _steps_per_update(diagnosis)
    rates = np.array([one.steps * each / one.seen_ns * 1e9 for one in bins])
    middles = [((one.start_ns + one.end_ns) / 2 - start_ns) / 1e9 for one in bins]
    cuts = segments(rates)
    levels = [level(part) for part in np.split(rates, cuts[1:])]
    changes = [
        {"t_s": (bins[at].start_ns - start_ns) / 1e9, "before": before, "after": after}
        for at, before, after in zip(cuts[1:], levels, levels[1:], strict=False)
    ]
    now: Point | None = None
    for one in reversed(points):
        now = one.with_next(now) if now is not None else one
        if now.seen_ns > _NOW_S * 1e9 and now.steps >= _BIN_STEPS:
            break
    per_s = now.steps * each / now.seen_ns * 1e9 if now is not None and now.seen_ns and now.steps else None
    if final and diagnosis:
        per_s = diagnosis["steps_per_s"] or None  # there is no now: what the report says
    samples = (diagnosis or {}).get("samples_per_step")
    return {
        "steps_per_s": per_s,
        "samples_per_s": per_s * samples if per_s and samples else None,
        "t_s": rounded(middles, 6),
        "values": rounded(rates),
        "changes": changes,
    }


def _steps_per_update(diagnosis: dict[str, Any] | None) -> float:
    return float(diagnosis["steps_per_update"]) if diagnosis else 1.0


def _binned(points: list[Point]) -> list[Point]:
    """Neighbours put together until there are enough steps for a rate, and few enough of them."""
    least_ns = sum(one.seen_ns for one in points) / _BINS
    bins: list[Point] = []
    for one in points:
        if bins and (bins[-1].seen_ns < least_ns or bins[-1].steps < _BIN_STEPS):
            bins[-1] = bins[-1].with_next(one)
        else:
            bins.append(one)
    return [one for one in bins if one.seen_ns and one.steps >= _BIN_STEPS]


def _throughput(speed: dict[str, Any]) -> list[dict[str, Any]]:
    if len(speed["values"]) < 2:
        return []
    marks = [
        {"t_s": one["t_s"], "words": f"{rate(one['before'])} → {rate(one['after'])} steps/s"}
        for one in speed["changes"]
    ]
    line = specs.make_line("steps per second", 0, speed["t_s"], speed["values"])
    return [specs.make_spec("throughput", "Throughput", "steps/s", [line], marks=marks)]


def _remaining(diagnosis: dict[str, Any] | None, count: int, recording: Recording) -> dict[str, Any] | None:
    """What is left at the rate of the last rows, and what it would be without the first finding."""
    found = (diagnosis or {}).get("remaining")
    if not found or not diagnosis or not diagnosis["step_s"] or recording.complete:
        return None
    total_s, done_s = found["total_s"], count * diagnosis["step_s"]
    left_s = max(0.0, total_s - done_s)
    ((key, number),) = found["planned"].items()
    without = found["total_without_first_s"]
    return {
        "of": f"{clean(key)}={number:,}",
        "done": min(1.0, done_s / total_s),
        "left_s": left_s,
        "left_without_first_s": left_s * without / total_s if without else None,
    }


def _caches(members: Iterable[Followed]) -> list[dict[str, Any]]:
    """Hits and reads of every cache that was noted: of ``hotloop.feed``, and of the datasets' own."""
    last = {
        (
            f"hotloop.feed cache {note['id']}" if note["note"] == "cache" else str(note["holder"]),
            one.facts.key,
        ): note
        for one in members
        for note in one.notes
        if note["note"] in ("cache", "kept")
    }
    found: dict[str, dict[str, Any]] = {}
    for (name, _), note in last.items():
        both = found.setdefault(name, {"name": clean(name), "hits": 0, "reads": 0})
        both["hits"] += note["hits"]
        both["reads"] += note["hits"] + note["misses"]
    return list(found.values())
