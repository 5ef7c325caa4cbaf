"""``--profile``: a short torch.profiler window over a few steady updates, summed up in one note.

The trace goes to ``RAW/PID.trace.json``, for ``hotloop analyze``. On a GPU the note tells what events cannot:
kernels, and gaps between them (NOT YET RUN ON A GPU).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

from hotloop.clock import now_ns
from hotloop.probe.probe import Probe

NAME: Final = "observers.profile"
#: The window opens after this many updates. The first in it is the profiler's own warm-up, which it does not
#: record; then come so many that it does.
FIRST_UPDATE: Final = 10
NUM_UPDATES: Final = 4
MAX_ROWS: Final = 30
#: Idle gaps between kernels up to this long are the host not launching fast enough, not the host doing
#: something else.
LAUNCH_GAP_US: Final = 100.0


class Window:
    """One profiler window, moved on by updates."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._updates = 0
        self._profiler: Any = None
        self._opened_ns = self._start_ns = self._steps = self._limit = 0
        self._done = False

    def update(self) -> None:
        """Open the window, move it on, close it."""
        self._updates += 1
        if self._done:
            self._probe.off_update(self.update)
            return
        if self._profiler is None:
            if self._updates >= FIRST_UPDATE:
                self._open()
            return
        if self._updates == FIRST_UPDATE + 1:
            self._start_ns = now_ns()
        if self._updates == FIRST_UPDATE + 1 + NUM_UPDATES:
            self.close()
        else:
            self._profiler.step()

    def close(self) -> None:
        """Stop the profiler, write trace and summary; also at an exit inside the window."""
        profiler, self._profiler, self._done = self._profiler, None, True
        if profiler is None:
            return
        end_ns = now_ns()
        profiler.stop()
        count = self._probe.count
        if self._limit and not count.limit:  # the steps asked for come beside these
            count.limit = self._limit + count.steps - self._steps
        if not self._start_ns:
            return
        path = os.path.join(self._probe.raw_dir, f"{os.getpid()}.trace.json")
        profiler.export_chrome_trace(path)
        steps = max(1, self._updates - FIRST_UPDATE - 1)
        found = summary(profiler.events(), (end_ns - self._start_ns) / 1e9, steps)
        self._probe.note(
            "profile",
            trace=path,
            opened_ns=self._opened_ns,
            start_ns=self._start_ns,
            end_ns=end_ns,
            closed_ns=now_ns(),
            **found,
        )

    def _open(self) -> None:
        torch = self._probe.torch
        # Two at once would be an error in the script.
        if torch.autograd._profiler_enabled() or self._probe.places.mention("profiler", unread=False):
            self._done = True
            self._probe.note("warning", text="no profiler window: the script profiles itself")
            return
        count = self._probe.count
        self._opened_ns, self._steps, self._limit, count.limit = now_ns(), count.steps, count.limit, 0
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_initialized():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        profiler = torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=1, active=NUM_UPDATES, repeat=1),
        )
        profiler.start()
        self._profiler = profiler


def summary(events: Iterable[Any], wall_s: float, steps: int) -> dict[str, Any]:
    """The fields of the ``profile`` note. Seconds; counts and seconds of rows are over the whole window."""
    kernels = [
        (float(event.time_range.start), float(event.time_range.end), str(event.name))
        for event in events
        if str(getattr(event, "device_type", "")).endswith(("CUDA", "XPU", "PrivateUse1"))
    ]
    busy_us, gaps_us = _busy(kernels)
    return {
        "steps": steps,
        "wall_s": wall_s,
        "kernels": _kernel_rows(kernels),
        "device_busy_ratio": min(1.0, busy_us / 1e6 / wall_s) if kernels and wall_s > 0 else None,
        "launch_gap_ratio": min(1.0, gaps_us / 1e6 / wall_s) if kernels and wall_s > 0 else None,
    }


def _kernel_rows(kernels: list[tuple[float, float, str]]) -> list[dict[str, Any]]:
    rows: dict[str, list[float]] = {}
    for start, end, name in kernels:
        row = rows.setdefault(name, [0, 0.0])
        row[0] += 1
        row[1] += (end - start) / 1e6
    most = sorted(rows.items(), key=lambda item: -item[1][1])[:MAX_ROWS]
    return [{"name": name[:200], "count": int(count), "device_s": seconds} for name, (count, seconds) in most]


def _busy(kernels: list[tuple[float, float, str]]) -> tuple[float, float]:
    """Microseconds in which any kernel ran, and microseconds of short gaps between them."""
    busy = gaps = 0.0
    reached = None
    for start, end, _ in sorted(kernels):
        if reached is None:
            busy, reached = end - start, end
            continue
        if start > reached:
            if start - reached <= LAUNCH_GAP_US:
                gaps += start - reached
            busy += end - start
        else:
            busy += max(0.0, end - reached)
        reached = max(reached, end)
    return busy, gaps


def install(probe: Probe) -> None:
    """Profile a few updates, if asked to."""
    if os.environ.get("HOTLOOP_PROFILE", "") in ("", "0"):
        return
    window = Window(probe)
    probe.on_update(NAME, window.update)
    probe.on_exit(NAME, window.close)
