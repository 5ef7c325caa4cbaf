"""Samples of the machine and of every process of the command, taken by the launching parent.

Machine columns (``recording.system``), rates over the time since the sample before (so the first sample has
none):

* ``t_s``: seconds since the command started.
* ``cpu_ratio``, ``steal_ratio``: share of all CPUs, 0 to 1.
* ``memory_available_bytes``, ``memory_used_bytes``, ``page_cache_bytes``, ``shm_bytes`` (shared memory in
  use), ``swap_used_bytes``, ``cgroup_working_set_bytes`` (in use without the page cache that is given back
  first; only under a cgroup limit).
* ``refaults_per_s`` (pages read again soon after they were evicted).
* ``disk_read_bytes_per_s``, ``disk_write_bytes_per_s``, ``disk_busy_ratio`` (busiest disk),
  ``net_recv_bytes_per_s``, ``net_sent_bytes_per_s``.
* ``gpuN_util_ratio``, ``gpuN_memory_bytes``, ``gpuN_memory_total_bytes``, ``gpuN_power_w``,
  ``gpuN_power_limit_w``, ``gpuN_sm_clock_mhz``, ``gpuN_temperature_c``, ``gpuN_throttle_reasons`` (bit mask).
* ``sample_s``: what taking the sample cost.

Process columns (``recording.process_system[pid]``): ``t_s``; ``cpu_ratio`` (1.0 is one core); ``rss_bytes``,
``shared_bytes`` (the part of rss shared or backed by files), ``num_threads``; cumulative ``read_bytes`` and
``write_bytes`` (storage), ``rchar_bytes`` (all reads, page cache included), ``minor_faults`` (pages handed
out without a read), ``major_faults``, ``io_wait_s``, ``system_s`` (the kernel for the process),
of the first thread ``main_cpu_s`` and ``core_wait_s`` (it could have run, but no core was free); at a lower
rate, nan between: ``pss_bytes`` (shared pages divided by their users), ``uss_bytes`` (private).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter_ns
from typing import Final

import psutil

from hotloop import cgroups
from hotloop.launch.machine import Gpus

#: After this many samples the interval doubles, and again after as many: a day of training stays small.
THIN_AFTER: Final = 2000
#: Pages that were read again soon after they were evicted; the second before Linux 5.9.
_REFAULTS: Final = ("workingset_refault_file", "workingset_refault")

Row = dict[str, float]


def _memory() -> dict[str, float]:
    memory, in_cgroup = psutil.virtual_memory(), cgroups.memory()
    return ({} if in_cgroup is None else {"cgroup_working_set_bytes": in_cgroup[1]}) | {
        "memory_available_bytes": memory.available,
        "memory_used_bytes": memory.total - memory.available,
        "page_cache_bytes": getattr(memory, "cached", 0),
        "shm_bytes": getattr(memory, "shared", 0),
        "swap_used_bytes": psutil.swap_memory().used,
    }


def _cpu() -> dict[str, float]:
    """Shares since the last call."""
    cpu = psutil.cpu_times_percent()
    iowait, steal = getattr(cpu, "iowait", 0.0), getattr(cpu, "steal", 0.0)
    busy = max(0.0, 100.0 - cpu.idle - iowait - steal)
    return {"cpu_ratio": busy / 100, "steal_ratio": steal / 100}


def _counters() -> dict[str, float]:
    found: dict[str, float] = {}
    disk = psutil.disk_io_counters()
    if disk is not None:
        found |= {"disk_read_bytes": disk.read_bytes, "disk_write_bytes": disk.write_bytes}
    for name, one in (psutil.disk_io_counters(perdisk=True) or {}).items():
        found[f"disk_busy_ratio:{name}"] = getattr(one, "busy_time", 0) / 1e3
    net = psutil.net_io_counters()
    if net is not None:
        found |= {"net_recv_bytes": net.bytes_recv, "net_sent_bytes": net.bytes_sent}
    pairs = (line.partition(" ") for line in cgroups.read(Path("/proc/vmstat")).splitlines())
    refaults = [float(value) for name, _, value in pairs if name in _REFAULTS]
    return {**found, "refaults": refaults[-1]} if refaults else found


class Sampler:
    """Call ``sample`` as often as you like; one is taken when the interval has passed.

    ``closely`` counts private pages every second, and lets that cost 2 % of the time.
    """

    def __init__(self, *, interval_s: float = 0.5, closely: bool = False) -> None:
        self._interval_s = interval_s
        self._counted: dict[str, float] = {}
        self._family = Processes(pss_every_s=1.0, pss_cost_ratio=0.02) if closely else Processes()
        self._last_ns = self._count = 0

    @cached_property
    def gpus(self) -> Gpus:
        """Made when it is asked for: a driver may take seconds to answer."""
        return Gpus()

    def sample(self, root_pid: int, *, extra_pids: tuple[int, ...] = ()) -> tuple[list[Row], list[Row]]:
        """A sample of the machine and of each process under ``root_pid``; none before it is due.

        ``extra_pids`` are processes of the run that may have left the tree.
        """
        now = perf_counter_ns()
        interval_s = self._interval_s * 2 ** (self._count // THIN_AFTER)
        # A tick that comes a little early is still this interval's tick.
        if self._last_ns and now - self._last_ns < 0.8e9 * interval_s:
            return [], []
        before_ns, self._last_ns = self._last_ns, now
        self._count += 1
        # A system that answers oddly must not stop a run.
        with suppress(OSError, ValueError, LookupError, RuntimeError, psutil.Error):
            found = {"t_ns": now, **_memory(), **self._rates(before_ns, now), **self.gpus.sample()}
            processes = [{"t_ns": now, **row} for row in self._family.sample(root_pid, extra_pids, now)]
            return [{**found, "sample_s": (perf_counter_ns() - now) / 1e9}], processes
        return [], []

    def _rates(self, before_ns: int, now_ns: int) -> dict[str, float]:
        """Rates since the sample before, if there was one; of several disks the busiest counts."""
        found = _cpu()
        counters, before = _counters(), self._counted
        self._counted = counters
        for name, value in counters.items():
            rate = max(0.0, value - before.get(name, value)) / (now_ns - before_ns) * 1e9
            column, _, share_of = name.partition(":")
            if share_of:
                found[column] = max(found.get(column, 0.0), min(1.0, rate))
            else:
                found[f"{column}_per_s"] = rate
        return found if before_ns else {}


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
        pids = _tree({root_pid, *extra_pids, *self._known})
        rows = [row for pid in sorted(pids) if (row := self._row(pid, now_ns)) is not None]
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
    stat = cgroups.stat(pid)
    statm = _text(pid, "statm").split()
    if len(stat) < 40 or stat[0] in "ZX" or len(statm) < 3:
        return None
    row = {
        "rss_bytes": float(int(statm[1]) * _PAGE),
        "shared_bytes": float(int(statm[2]) * _PAGE),
        "num_threads": float(stat[17]),
        "minor_faults": float(stat[7]),
        "major_faults": float(stat[9]),
        "system_s": int(stat[12]) * _TICK_S,
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
    sizes = cgroups.sizes(Path(f"/proc/{pid}/smaps_rollup"))
    private = sum(sizes.get(f"Private_{kind}", 0) for kind in ("Clean", "Dirty", "Hugetlb"))
    return {"pss_bytes": float(sizes["Pss"]), "uss_bytes": float(private)} if "Pss" in sizes else {}


def _text(pid: int, name: str) -> str:
    return cgroups.read(Path(f"/proc/{pid}/{name}"))
