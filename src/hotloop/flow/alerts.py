"""Warnings on standard error while a run goes on, from what its launcher samples and stores anyhow.

Each kind is said once, one line, never two within ``APART_S``. A line states what was seen; what may be
ordinary (a long evaluation, a queue that runs empty, a slow first pass) is waited for or left unsaid.
Memory near the machine's limit: ``footprint.watch``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from hotloop.clock import now_ns
from hotloop.flow.course import Course, Followed
from hotloop.launch.machine import is_visible, oom_kills, oom_kills_since
from hotloop.record.samples import Samples
from hotloop.units import duration, rate, share

APART_S: Final = 10.0
#: Nothing moves and no process computes: at least this long, and this many usual steps, and this many times
#: the longest pause before. Where processes compute (a long pass over data, a collective that spins): five
#: times as long.
STUCK_S: Final = 60.0
_STUCK_STEPS: Final = 30
_STUCK_PAUSES: Final = 3
_COMPUTING: Final = 5
_COMPUTES_RATIO: Final = 0.2  # of one core, all processes together
#: A GPU that is busy less than this is idle; the run has used it once it was busier than that.
IDLE_S: Final = 60.0
_IDLE_RATIO: Final = 0.01
_USED_RATIO: Final = 0.2
#: Samples per second below this part of what they were for 3 windows of ``course.Pace`` (S4: -51 %).
_DECAY_RATIO: Final = 0.7
WINDOW_S: Final = 20.0
#: A training that waited for data less than this part of its time, and does so more than that now.
_LITTLE_WAIT: Final = 0.2
_MUCH_WAIT: Final = 0.5
_BAD_LOSSES: Final = 3
_RETRIES: Final = 3
#: A worker that is gone without a word may be one that is being shut down.
_GRACE_S: Final = 3.0


class Alerts:
    """``look`` once or twice a second, after the store took in. ``patience`` scales every time above."""

    def __init__(self, course: Course, say: Callable[[str], None], *, patience: float = 1.0) -> None:
        self._course = course
        self._say = say
        self._patience = patience
        self._said: dict[str, int] = {}  # kind -> when
        self._computed_ns = self._looked_ns = self._resumed_ns = now_ns()
        self._busy_ns = 0  # a GPU of the run was busy
        self._was_used = 0
        self._gone: dict[int, int] = {}  # pid of a worker -> when it was seen gone
        self._kills: Mapping[str, int] = oom_kills()

    def look(self, samples: Samples) -> None:
        """Say what is due."""
        now, machine, processes = now_ns(), *samples
        if now - self._looked_ns > APART_S * 1e9:  # hotloop was stopped, and the command with it
            self._resumed_ns = now
            self._busy_ns = now if self._busy_ns else 0
        self._looked_ns = now
        if sum(row.get("cpu_ratio", 0.0) for row in processes) >= _COMPUTES_RATIO:
            self._computed_ns = now
        lead = self._course.lead
        if machine and lead is not None:
            self._look_at_gpus(machine[-1], lead, now)
        if lead is None or now - max(self._said.values(), default=0) < self._ns(APART_S):
            return
        for kind, words in (
            ("worker", self._dead_worker),
            ("loss", self._bad_loss),
            ("stuck", self._stuck),
            ("waits", self._waits),
            ("decay", self._decay),
            ("retries", self._retries),
            ("idle", self._idle),
        ):
            if kind not in self._said and (text := words(lead, now)):
                self._said[kind] = now
                self._say(f"warning: {text}")
                return

    def _ns(self, seconds: float) -> float:
        return seconds * self._patience * 1e9

    def _stuck(self, lead: Followed, now: int) -> str:
        trainers = self._course.trainers
        moved = max(self._resumed_ns, *(one.moved_ns for one in trainers))
        least = max(
            self._ns(STUCK_S),
            _STUCK_STEPS * lead.pace.usual_s * 1e9,
            _STUCK_PAUSES * max(one.longest_gap_ns for one in trainers),
        )
        still, quiet = now - moved, now - max(moved, self._computed_ns)
        if quiet < least and still < _COMPUTING * least:
            return ""
        usual = f" (usually {duration(lead.pace.usual_s)})" if lead.pace.usual_s else ""
        return f"no step for {duration(still / 1e9)}{usual}, {lead.steps:,} so far{self._places(now)}"

    def _places(self, now: int) -> str:
        """Where every process is, those at the same place together."""
        at: dict[str, list[str]] = {}
        trainers = self._course.trainers
        for one in trainers:
            if place := one.place(now):
                at.setdefault(place, []).append(str(one.member.facts.rank or 0))
        found = [
            place if len(trainers) == 1 else f"rank {', '.join(ranks)} at {place}"
            for place, ranks in at.items()
        ]
        for one in self._course.workers:
            if one.lives and one.sampled_ns > one.moved_ns and (place := one.place(now)):
                found.append(f"worker {one.member.facts.pid} at {place}")
        more = f" and {len(found) - 4} more" if len(found) > 4 else ""
        return ": " + "; ".join(found[:4]) + more if found else ""

    def _dead_worker(self, lead: Followed, now: int) -> str:
        for one in self._course.workers:
            pid = one.member.facts.pid
            if not one.member.all_read:
                continue
            gone = self._gone.setdefault(pid, now)
            owners = [own for own in self._course.trainers if pid in own.member.facts.worker_pids]
            if not owners or now - gone < self._ns(_GRACE_S):
                continue
            if owners[0].shutdown_ns > gone - self._ns(2 * _GRACE_S):
                continue
            killed = max(oom_kills_since(self._kills).values(), default=0)
            why = "the kernel killed for want of memory" if killed else "killed, or crashed in native code"
            return f"DataLoader worker {pid} is gone without a word at step {lead.steps:,}: {why}"
        return ""

    def _bad_loss(self, lead: Followed, now: int) -> str:
        for one in self._course.trainers:
            if one.bad_losses >= _BAD_LOSSES:
                rank = "" if len(self._course.trainers) == 1 else f" of rank {one.member.facts.rank or 0}"
                return (
                    f"the loss{rank} is {one.loss} by step {one.steps:,}, {one.bad_losses} recorded in a row"
                )
        return ""

    def _decay(self, lead: Followed, now: int) -> str:
        fell = lead.pace.fell_to(_DECAY_RATIO)
        if fell is None:
            return ""
        before, after = fell
        return (
            f"{rate(after)} samples/s since step {lead.pace.latest[0].last_step:,}, {rate(before)} at the "
            f"beginning (-{share(1 - after / before)}), pauses left out"
        )

    def _waits(self, lead: Followed, now: int) -> str:
        turned = lead.pace.came_to_wait(_LITTLE_WAIT, _MUCH_WAIT)
        if turned is None:
            return ""
        before, after = map(share, turned)
        since = f"input-bound since step {lead.pace.latest[0].last_step:,}"
        return f"{since}: {after} of the time waits for data, {before} at first"

    def _retries(self, lead: Followed, now: int) -> str:
        if lead.retries < _RETRIES:
            return ""
        return (
            f"device memory is full: torch gave its cache back {lead.retries} times since step 50 to go on "
            "(each waits for the device); lower the batch size"
        )

    def _look_at_gpus(self, sample: Mapping[str, float], lead: Followed, now: int) -> None:
        if not lead.device_bytes:
            return
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        busy = [
            value
            for index in range(64)
            if (value := sample.get(f"gpu{index}_util_ratio")) is not None and is_visible(index, None, seen)
        ]
        if not busy:
            return
        self._was_used += max(busy) >= _USED_RATIO
        if max(busy) > _IDLE_RATIO or not self._busy_ns:
            self._busy_ns = now

    def _idle(self, lead: Followed, now: int) -> str:
        idle = now - self._busy_ns
        if self._was_used < 10 or idle < self._ns(IDLE_S) or "stuck" in self._said:
            return ""
        places = self._places(now)
        return f"the GPU has been idle for {duration(idle / 1e9)}, {lead.steps:,} steps so far{places}"
