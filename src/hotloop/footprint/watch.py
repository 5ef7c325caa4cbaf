"""Memory while a run goes on: a line every so many steps, a warning near the limit, the limit minutes ahead.

The line has the form of the guide (S1-48): ``[step 100] process 15,678.9 MB (6.1 %), system 125.4/256.0 GB
(49.0 %)``, in decimal units; under a tighter cgroup it says ``cgroup`` and that limit. ``process`` is the
training process's resident memory.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from hotloop import units
from hotloop.diagnose.limits import Limits
from hotloop.diagnose.series import steady_growth

Sample = Mapping[str, float]

#: After a warning the use must fall below this before there is another.
_CALM_RATIO: Final = 0.85
#: Growth is looked for in this much time ...
_WINDOW_S: Final = 60.0
#: ... this often, and must be seen so many times running: what fills up and stops is no alarm.
_LOOK_EVERY_S: Final = 10.0
_LOOKS: Final = 3
#: Points in a window: fewer show no line.
_FEWEST = 30
#: A limit further away than this is no news.
_AHEAD_S: Final = 30 * 60.0


@dataclass(frozen=True, kw_only=True)
class Use:
    """Memory at one moment, in bytes; ``place`` is what the limit is of: ``system`` or ``cgroup``."""

    place: str
    used_bytes: float
    total_bytes: float
    process_bytes: float
    run_bytes: float

    @property
    def ratio(self) -> float:
        """Used share of the limit."""
        return self.used_bytes / self.total_bytes

    def line(self, step: int) -> str:
        """The memory line of a step."""
        return (
            f"[step {step}] process {self.process_bytes / 1e6:,.1f} MB "
            f"({self.process_bytes / self.total_bytes:.1%}), {self.place} {self.used_bytes / 1e9:,.1f}/"
            f"{self.total_bytes / 1e9:,.1f} GB ({self.ratio:.1%})"
        ).replace("%", " %")


class MemoryWatch:
    """Looks at every sample of the launching parent; ``say`` gets each line. ``every`` steps a line, or none.

    ``machine`` are the facts of ``launch.machine``.
    """

    def __init__(
        self, machine: Mapping[str, Any], *, say: Callable[[str], None], every: int | None = None
    ) -> None:
        ram, limit = machine.get("ram_bytes"), machine.get("memory_limit_bytes")
        self._limited = bool(limit) and (not ram or limit < ram)
        self._total = float((limit if self._limited else ram) or 0.0)
        self._say = say
        self._every = every
        self._said_step = 0
        self._warned = False
        self._forecast = Forecast(self._total)
        self._own: deque[tuple[float, float]] = deque()  # of the last minute, as the forecast's

    def look(self, machine: Sequence[Sample], processes: Sequence[Sample], *, pid: int, step: int) -> None:
        """Take in new samples; ``pid`` and ``step`` are of the training process, 0 before there is one."""
        if not machine or self._total <= 0:
            return
        for sample in machine:
            used = self._used(sample)
            if used is not None and step:
                self._forecast.add(sample["t_ns"] / 1e9, used)
        use = self._use(machine[-1], processes, pid)
        if use is None:
            return
        if self._every and step // self._every > self._said_step:
            self._said_step = step // self._every
            self._say(use.line(self._said_step * self._every))
        self._warn(use)
        if step:
            self._own.append((machine[-1]["t_ns"] / 1e9, use.run_bytes))
            while self._own[-1][0] - self._own[0][0] > _WINDOW_S:
                self._own.popleft()
        self._look_ahead(use)

    def _used(self, sample: Sample) -> float | None:
        if self._limited:
            return sample.get("cgroup_working_set_bytes")
        available = sample.get("memory_available_bytes")
        return None if available is None else self._total - available

    def _use(self, sample: Sample, processes: Sequence[Sample], pid: int) -> Use | None:
        used = self._used(sample)
        if used is None:
            return None
        last = {int(row["pid"]): row for row in processes}
        own = [max(0.0, row["rss_bytes"] - row.get("shared_bytes", 0.0)) for row in last.values()]
        return Use(
            place="cgroup" if self._limited else "system",
            used_bytes=used,
            total_bytes=self._total,
            process_bytes=last[pid]["rss_bytes"] if pid in last else 0.0,
            run_bytes=sum(own),
        )

    def _warn(self, use: Use) -> None:
        if use.ratio < _CALM_RATIO:
            self._warned = False
        if use.ratio < Limits().near_limit_ratio or self._warned:
            return
        self._warned = True
        self._say(
            f"warning: memory of the {use.place} is at {use.ratio:.1%} ".replace("%", " %")
            + f"({use.used_bytes / 1e9:,.1f} of {use.total_bytes / 1e9:,.1f} GB; this run holds "
            f"{use.run_bytes / 1e9:,.1f} GB). Lower num_workers, prefetch_factor or the cache: at the limit "
            "the kernel kills a worker or the training process."
        )

    def _look_ahead(self, use: Use) -> None:
        left = self._forecast.seconds_left()
        if left is None:
            return
        (first_s, first), (last_s, last) = self._own[0], self._own[-1]
        mine = (last - first) / max(last_s - first_s, 1.0) >= 0.5 * self._forecast.bytes_per_s
        self._say(
            f"warning: memory of the {use.place} grows by "
            f"{units.size(self._forecast.bytes_per_s * 60)} a minute; at this rate it is full in "
            f"{max(1, round(left / 60))} min. "
            + (
                "'hotloop memory -- COMMAND' names what grows."
                if mine
                else "Most of it is no memory of this run's own: other programs, or shared memory."
            )
        )


class Forecast:
    """When a limit will be met, from the last minute: a robust line, or silence."""

    def __init__(self, total_bytes: float) -> None:
        self._total = total_bytes
        self._points: deque[tuple[float, float]] = deque()
        self._next_look = -math.inf
        self._growing = 0
        self._said = math.inf  # seconds left as said last
        self.bytes_per_s = 0.0

    def add(self, t_s: float, used_bytes: float) -> None:
        """One more sample."""
        self._points.append((t_s, used_bytes))
        while self._points[-1][0] - self._points[0][0] > _WINDOW_S:
            self._points.popleft()

    def seconds_left(self) -> float | None:
        """Seconds until the limit, when that is news: sure, near, and half of what was said last."""
        if not self._points or self._points[-1][0] < self._next_look:
            return None
        self._next_look = self._points[-1][0] + _LOOK_EVERY_S
        slope = self._slope()
        self._growing = self._growing + 1 if slope is not None else 0
        if slope is None or self._growing < _LOOKS:
            return None
        self.bytes_per_s = slope
        left = (self._total - self._points[-1][1]) / slope
        if not 0 < left < min(_AHEAD_S, self._said / 2):
            return None
        self._said = left
        return left

    def _slope(self) -> float | None:
        """Bytes per second where the window shows steady growth that does not slow down."""
        t, used = np.array(self._points, float).T
        if len(t) < _FEWEST or t[-1] - t[0] < 0.5 * _WINDOW_S:
            return None
        return steady_growth(t, used, z=Limits().trend_z)
