"""Charts of the sampled system: processors, memory, accelerators, disk and network.

Column names are those of ``launch.system``. A column that is not there is a line that is not drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from hotloop.measure.steps import Floats
from hotloop.record.recording import Process, Recording
from hotloop.report.series import thinned
from hotloop.report.values import rounded

Columns = Mapping[str, Any]

#: Charts of machine-wide columns: id, title, unit, (label, column, factor).
_MACHINE: Final = (
    ("disk", "Disk", "bytes/s", (("read", "disk_read_bytes_per_s", 1.0), ("written", "disk_write_bytes_per_s", 1.0))),
    ("network", "Network", "bytes/s", (("received", "net_recv_bytes_per_s", 1.0), ("sent", "net_sent_bytes_per_s", 1.0))),
)


def charts(recording: Recording) -> list[dict[str, Any]]:
    """Every chart with something to show: ``{"id", "title", "unit", "lines": [{"label", "t_s", "values"}]}``."""
    found = [
        _chart("cpu", "Processors", "cores", _cpu(recording)),
        _chart("memory", "Memory of the processes", "bytes", _memory_lines(recording)),
        *_gpus(recording.system),
        *(
            _chart(id_, title, unit, (_line(label, recording.system, column, factor) for label, column, factor in lines))
            for id_, title, unit, lines in _MACHINE
        ),
    ]
    return [chart for chart in found if chart["lines"]]


def memory(recording: Recording) -> dict[str, Any]:
    """Peaks in bytes: of each role's processes together, of the device, and what the machine has."""
    main, workers = _roles(recording)
    notes = [note for process in recording.ranks for note in process.notes.get("memory", [])]
    rss = [float(note["host_rss"]) for note in notes if note.get("host_rss")]
    device = [float(note["device_peak"]) for note in notes if note.get("device_peak")]
    sampled = _peak(_total(main, "rss_bytes"))
    return {
        "main_peak_bytes": sampled if sampled is not None else max(rss, default=None),
        "workers_peak_bytes": _peak(_total(workers, "rss_bytes")),
        "device_peak_bytes": max(device, default=None),
        "ram_bytes": recording.machine.get("ram_bytes"),
        "limit_bytes": recording.machine.get("memory_limit_bytes"),
    }


def _cpu(recording: Recording) -> Iterable[dict[str, Any] | None]:
    main, workers = _roles(recording)
    yield _summed("training processes", main, "cpu_percent", 0.01)
    yield _summed("workers", workers, "cpu_percent", 0.01)
    yield _line("whole machine", recording.system, "cpu_percent", 0.01 * float(recording.machine.get("cpu_count") or 1))


def _memory_lines(recording: Recording) -> Iterable[dict[str, Any] | None]:
    main, workers = _roles(recording)
    yield _summed("training processes", main, "rss_bytes", 1.0)
    yield _summed("workers", workers, "rss_bytes", 1.0)


def _gpus(columns: Columns) -> list[dict[str, Any]]:
    names = sorted({name.split("_", 1)[0] for name in columns if name.startswith("gpu") and "_" in name})
    busy = [_line(name.upper(), columns, f"{name}_util_percent", 1.0) for name in names]
    used = [_line(name.upper(), columns, f"{name}_memory_bytes", 1.0) for name in names]
    power = [_line(name.upper(), columns, f"{name}_power_w", 1.0) for name in names]
    return [
        _chart("gpu", "GPU utilization", "%", busy),
        _chart("gpu-memory", "GPU memory", "bytes", used),
        _chart("gpu-power", "GPU power", "W", power),
    ]


def _chart(id_: str, title: str, unit: str, lines: Iterable[dict[str, Any] | None]) -> dict[str, Any]:
    return {"id": id_, "title": title, "unit": unit, "lines": [line for line in lines if line]}


def _line(label: str, columns: Columns, column: str, factor: float) -> dict[str, Any] | None:
    if column not in columns or "t_s" not in columns:
        return None
    return _points(label, np.asarray(columns["t_s"], float), np.asarray(columns[column], float) * factor)


def _summed(label: str, processes: list[Columns], column: str, factor: float) -> dict[str, Any] | None:
    total = _total(processes, column)
    return _points(label, total[0], total[1] * factor) if total else None


def _points(label: str, t_s: Floats, values: Floats) -> dict[str, Any] | None:
    if not np.isfinite(values).any():
        return None
    return {"label": label, "t_s": rounded(thinned(t_s), 6), "values": rounded(thinned(values))}


def _total(processes: list[Columns], column: str) -> tuple[Floats, Floats] | None:
    """A column summed over processes at the times any of them was sampled; a process counts only while it lived."""
    known = [item for item in processes if column in item and len(item.get("t_s", ()))]
    if not known:
        return None
    times = np.unique(np.concatenate([np.asarray(item["t_s"], float) for item in known]))
    total = np.zeros(len(times))
    for item in known:
        at, values = np.asarray(item["t_s"], float), np.nan_to_num(np.asarray(item[column], float))
        total += np.interp(times, at, values, left=0.0, right=0.0)
    return times, total


def _peak(total: tuple[Floats, Floats] | None) -> float | None:
    return float(total[1].max()) if total else None


def _roles(recording: Recording) -> tuple[list[Columns], list[Columns]]:
    """Sampled columns of the training processes, and of their workers."""
    workers = [worker for process in recording.ranks for worker in process.workers]
    return _columns(recording, recording.ranks), _columns(recording, workers)


def _columns(recording: Recording, processes: Iterable[Process]) -> list[Columns]:
    found = (recording.process_system.get(process.pid) for process in processes)
    return [columns for columns in found if columns]
