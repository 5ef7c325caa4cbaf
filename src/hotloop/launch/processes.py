"""The command's processes as samples, read from ``/proc``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Final

from hotloop import cgroups

#: Proportional memory is asked for from this age on, when a process's start is over,
_PSS_FROM_NS: Final = 2_000_000_000
#: ... and less often where the kernel walks all pages for long and holds the process up meanwhile: at most
#: this share of the time.
_PSS_COST_RATIO: Final = 0.0005

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass
class _Known:
    """What a process's next sample needs of its last."""

    started: float
    cpu_s: float = -1.0
    at_ns: int = 0
    pss_due_ns: int = 0


class Processes:
    """Follows the tree under a pid; a process once seen is followed even after its parent died."""

    def __init__(self, *, pss_every_s: float = 5.0, pss_cost_ratio: float = _PSS_COST_RATIO) -> None:
        self._known: dict[int, _Known] = {}
        self._pss_every_ns = int(pss_every_s * 1e9)
        self._pss_cost_ratio = pss_cost_ratio

    def sample(self, root_pid: int, extra_pids: Iterable[int], now_ns: int) -> list[dict[str, float]]:
        """One row of ``launch.system``'s process columns for every living process, without time."""
        rows = []
        pids = _tree({root_pid, *extra_pids, *self._known})
        for pid in sorted(pids):
            row = self._row(pid, now_ns)
            if row is not None:
                rows.append(row)
        for pid in self._known.keys() - pids:
            del self._known[pid]
        return rows

    def _row(self, pid: int, now_ns: int) -> dict[str, float] | None:
        read = _read(pid)
        if read is None:
            self._known.pop(pid, None)
            return None
        started, cpu_s, row = read
        known = self._known.get(pid)
        if known is None or known.started != started:  # a new process, or the pid came again
            known = self._known[pid] = _Known(
                started=started, pss_due_ns=now_ns + min(_PSS_FROM_NS, self._pss_every_ns)
            )
        row = {"pid": float(pid), **row}
        if known.cpu_s >= 0 and now_ns > known.at_ns:
            row["cpu_ratio"] = max(0.0, cpu_s - known.cpu_s) / ((now_ns - known.at_ns) / 1e9)
        known.cpu_s, known.at_ns = cpu_s, now_ns
        if now_ns >= known.pss_due_ns:
            begin = perf_counter_ns()
            row |= _proportional(pid)
            cost = perf_counter_ns() - begin
            known.pss_due_ns = now_ns + max(self._pss_every_ns, int(cost / self._pss_cost_ratio))
        return row


def _tree(pids: set[int]) -> set[int]:
    """These processes and all below them."""
    found: set[int] = set()
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children(pid)
    return found


def children(pid: int) -> list[int]:
    """Pids of a process's children; none of one that is gone, or where the kernel does not list them."""
    with suppress(OSError):
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
        return [int(child) for task in tasks for child in _text(pid, f"task/{task}/children").split()]
    return []


def _read(pid: int) -> tuple[float, float, dict[str, float]] | None:
    """Start time, CPU seconds and the columns of one process; None when it is gone or a zombie."""
    stat = _text(pid, "stat").rpartition(")")[2].split()
    statm = _text(pid, "statm").split()
    if len(stat) < 40 or stat[0] in "ZX" or len(statm) < 3:
        return None
    row = {
        "rss_bytes": float(int(statm[1]) * _PAGE),
        "shared_bytes": float(int(statm[2]) * _PAGE),
        "num_threads": float(stat[17]),
        "minor_faults": float(stat[7]),
        "major_faults": float(stat[9]),
        "io_wait_s": int(stat[39]) * _TICK_S,
        **_schedule(pid),
        **_io(pid),
    }
    return float(stat[19]), (int(stat[11]) + int(stat[12])) * _TICK_S, row


def _schedule(pid: int) -> dict[str, float]:
    """How long the process's first thread ran, and how long it could have run but no core was free."""
    words = _text(pid, "schedstat").split()  # empty of a kernel without it
    return {"main_cpu_s": int(words[0]) / 1e9, "core_wait_s": int(words[1]) / 1e9} if len(words) > 1 else {}


def _io(pid: int) -> dict[str, float]:
    """Empty of another user's process."""
    names = {"rchar": "rchar_bytes", "read_bytes": "read_bytes", "write_bytes": "write_bytes"}
    pairs = (line.partition(": ") for line in _text(pid, "io").splitlines())
    return {names[name]: float(value) for name, _, value in pairs if name in names}


def _proportional(pid: int) -> dict[str, float]:
    lines = _text(pid, "smaps_rollup").splitlines()[1:]
    sizes = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")}
    private = sum(sizes.get(f"Private_{kind}", 0) for kind in ("Clean", "Dirty", "Hugetlb"))
    return {"pss_bytes": float(sizes["Pss"]), "uss_bytes": float(private)} if "Pss" in sizes else {}


def _text(pid: int, name: str) -> str:
    return cgroups.read(Path(f"/proc/{pid}/{name}"))
