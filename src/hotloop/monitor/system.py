"""The machine, its GPUs and the processes of a run: the last sample, and charts of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from hotloop.foreign import clean
from hotloop.monitor.follow import Point
from hotloop.record.recording import Recording
from hotloop.record.samples import finite
from hotloop.report import charts as specs
from hotloop.report import system
from hotloop.report.values import rounded

#: Rows of the table, and lines of the chart, of processes.
_MOST: Final = 40
_MOST_LINES: Final = 6
#: Columns of ``launch.system``.
_GPU: Final = (
    "util_ratio", "memory_bytes", "memory_total_bytes", "power_w", "power_limit_w", "temperature_c",
    "sm_clock_mhz",
)  # fmt: skip
_MACHINE: Final = (
    "cpu_ratio", "steal_ratio", "memory_used_bytes", "memory_available_bytes", "page_cache_bytes",
    "shm_bytes", "swap_used_bytes", "cgroup_working_set_bytes", "disk_read_bytes_per_s",
    "disk_write_bytes_per_s", "disk_busy_ratio", "net_recv_bytes_per_s", "net_sent_bytes_per_s",
)  # fmt: skip
Columns = Mapping[str, Any]


def gpus(recording: Recording) -> list[dict[str, Any]]:
    """The last sample of every GPU, and its link to the machine where that is known."""
    facts = {one.get("index"): one for one in recording.machine.get("gpus") or []}
    found = []
    for number in range(64):
        known = facts.get(number, {})
        values = {name: _last(recording.system, f"gpu{number}_{name}") for name in _GPU}
        if not known.get("visible", True) or all(value is None for value in values.values()):
            continue
        width = known.get("pcie_width")
        link = f"PCIe {known.get('pcie_gen_max') or '?'} x{width}" if width else ""
        found.append({"index": number, "name": clean(known.get("name") or ""), "link": clean(link), **values})
    return found


def machine(recording: Recording) -> dict[str, Any]:
    """The last sample of the machine; ``cores`` that the run may use, ``cpu_cores`` that are busy."""
    facts, now = recording.machine, {name: _last(recording.system, name) for name in _MACHINE}
    count = float(facts.get("cpu_count") or facts.get("cores") or 1)
    return {
        **now,
        "cores": facts.get("cores"),
        "cpu_count": count,
        "cpu_cores": None if now["cpu_ratio"] is None else now["cpu_ratio"] * count,
        "ram_bytes": facts.get("ram_bytes"),
        "limit_bytes": facts.get("memory_limit_bytes"),
    }


def processes(recording: Recording) -> list[dict[str, Any]]:
    """Those that live, the training ones first: cores in use, memory, threads, bytes read per second."""
    found = []
    for pid, what in _living(recording):
        columns = recording.process_system[pid]
        found.append(
            {
                "pid": pid,
                "what": what,
                "cpu_cores": _last(columns, "cpu_ratio"),
                "memory_bytes": _last(columns, "pss_bytes") or _last(columns, "rss_bytes"),
                "threads": _last(columns, "num_threads"),
                "read_per_s": _per_s(columns, "read_bytes"),
                "read_any_per_s": _per_s(columns, "rchar_bytes"),
            }
        )
    return found[:_MOST]


def _living(recording: Recording) -> list[tuple[int, str]]:
    """(pid, what it is) of the processes of the last samples: each rank with its workers, then the others."""
    roles: dict[int, str] = {}
    several = len(recording.ranks) > 1
    for process in recording.ranks:
        roles[process.pid] = f"rank {process.rank}" if several else "training"
        of = f" of rank {process.rank}" if several else ""
        roles |= {worker.pid: f"worker {number}{of}" for number, worker in enumerate(process.workers)}
    ends = {pid: float(columns["t_s"][-1]) for pid, columns in recording.process_system.items()}
    between_s = float(np.diff(np.asarray(recording.system.get("t_s", ()))[-3:]).max(initial=0.5))
    living = [pid for pid, end in ends.items() if end > max(ends.values()) - 1.5 * between_s]
    known = [(pid, what) for pid, what in roles.items() if pid in living]
    return known + [(pid, "other") for pid in living if pid not in roles]


def charts(recording: Recording, history: Sequence[Point]) -> list[dict[str, Any]]:
    """What ``report.system`` draws of a run, CPU of each process, and the batches that lay ready."""
    found = system.charts(recording)
    asked = [point for point in history if point.asked]
    if len(asked) > 1:
        at = [((one.start_ns + one.end_ns) / 2 - recording.start_ns) / 1e9 for one in asked]
        ready = [one.ready / one.asked for one in asked]
        line = {"label": "batches ready when asked for", "t_s": rounded(at, 6), "values": rounded(ready)}
        for chart in found:
            if chart["id"] == "workers":
                chart["lines"].append(line)
    drawn = specs.specs({"series": {}, "charts": found})
    lines = _each(recording)
    if len(lines) > 1:
        at_cpu = next((i for i, one in enumerate(drawn) if one["id"] == "cpu"), len(drawn))
        drawn.insert(at_cpu + 1, specs.make_spec("cpu-each", "Processors, each process", "cores", lines))
    return drawn


def _each(recording: Recording) -> list[dict[str, Any]]:
    """A line of cores in use for each of the processes that use most."""
    found = []
    for pid, what in _living(recording):
        columns = recording.process_system[pid]
        used = np.asarray(columns.get("cpu_ratio", ()), float)
        if np.isfinite(used).sum() > 1:
            found.append(
                (float(np.nansum(used)), f"{what} ({pid})", rounded(columns["t_s"], 6), rounded(used))
            )
    least = sorted((one[0] for one in found), reverse=True)[:_MOST_LINES][-1:]
    picked = [one for one in found if [one[0]] >= least][:_MOST_LINES]
    return [specs.make_line(label, number, at, used) for number, (_, label, at, used) in enumerate(picked)]


def _last(columns: Columns, name: str) -> float | None:
    """The last value that is known, of the last few samples."""
    known = finite(columns.get(name, ())[-16:])
    return float(known[-1]) if len(known) else None


def _per_s(columns: Columns, name: str) -> float | None:
    """How fast a counter grew between the last samples."""
    values, at = (np.asarray(columns.get(one, ()), float)[-3:] for one in (name, "t_s"))
    if len(values) < 2 or not np.isfinite(values[[0, -1]]).all() or at[-1] <= at[0]:
        return None
    return max(0.0, float((values[-1] - values[0]) / (at[-1] - at[0])))
