"""Memory while a run goes on: a line every so many steps, and a warning near the limit.

The line has the form of the guide (S1-48): ``[step 100] process 14,952.6 MiB (6.1 %), system 116.8/238.4 GiB
(49.0 %)``; under a tighter cgroup it says ``cgroup`` and that limit. ``process`` is the training process's
resident memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hotloop.diagnose.limits import Limits

Sample = Mapping[str, float]


class MemoryWatch:
    """Looks at every sample of the launching parent; ``say`` gets each line. ``every`` steps a line, or none.

    ``machine`` are the facts of ``launch.machine``. ``quiet``: no warning.
    """

    def __init__(
        self,
        machine: Mapping[str, Any],
        *,
        say: Callable[[str], None],
        every: int | None = None,
        quiet: bool = False,
    ) -> None:
        ram, limit = machine.get("ram_bytes"), machine.get("memory_limit_bytes")
        self._limited = bool(limit) and (not ram or limit < ram)
        self._total = float((limit if self._limited else ram) or 0.0)
        self._say = say
        self._every = every
        self._said_step = 0
        self._warned = quiet

    def look(self, machine: Sequence[Sample], processes: Sequence[Sample], *, pid: int, step: int) -> None:
        """Take in new samples; ``pid`` and ``step`` are of the training process, 0 before there is one."""
        if not machine or self._total <= 0:
            return
        available = machine[-1].get("memory_available_bytes")
        used = None if available is None else self._total - available
        used = machine[-1].get("cgroup_working_set_bytes") if self._limited else used
        if used is None:
            return
        place, of = "cgroup" if self._limited else "system", f"{self._total / 2**30:,.1f} GiB"
        last = {int(row["pid"]): row for row in processes}
        if self._every and step // self._every > self._said_step:
            self._said_step = step // self._every
            own = last[pid]["rss_bytes"] if pid in last else 0.0
            self._say(
                f"[step {self._said_step * self._every}] process {own / 2**20:,.1f} MiB "
                f"({_percent(own / self._total)}), {place} {used / 2**30:,.1f}/{of} "
                f"({_percent(used / self._total)})"
            )
        ratio = used / self._total
        if Limits().near_limit_ratio <= ratio and not self._warned:
            held = sum(max(0.0, row["rss_bytes"] - row.get("shared_bytes", 0.0)) for row in last.values())
            self._say(
                f"warning: memory of the {place} is at {_percent(ratio)} ({used / 2**30:,.1f} of {of}; "
                f"this run holds {held / 2**30:,.1f} GiB). Lower num_workers, prefetch_factor or the "
                "cache: at the limit the kernel kills a process of it."
            )
            self._warned = True


def _percent(ratio: float) -> str:
    return f"{ratio:.1%}".replace("%", " %")
