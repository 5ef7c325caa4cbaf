"""Charts of the sampled system: processors, memory, workers, accelerators, disk and network.

Columns are those of ``launch.system``. A column that is not there is a line that is not drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from hotloop.footprint.account import account
from hotloop.measure.steps import Floats, Steps
from hotloop.record.recording import Recording, in_turn
from hotloop.record.rows import FETCH, FETCH_END, FETCH_WORKERS, U16_MAX
from hotloop.record.samples import device_peak, resident, sampled, total
from hotloop.report.series import thinned
from hotloop.report.values import rounded

Columns = Mapping[str, Any]
Line = dict[str, Any]

#: Charts of machine-wide columns: id, title, unit, label -> column.
_MACHINE: Final = (
    ("machine-memory", "Memory of the machine", "bytes", {
        "in use": "memory_used_bytes", "page cache": "page_cache_bytes", "shared memory": "shm_bytes",
        "swap": "swap_used_bytes",
    }),
    ("disk", "Disk", "bytes/s", {"read": "disk_read_bytes_per_s", "written": "disk_write_bytes_per_s"}),
    ("network", "Network", "bytes/s", {"received": "net_recv_bytes_per_s", "sent": "net_sent_bytes_per_s"}),
)  # fmt: skip

#: Charts with a line per GPU: id, title, unit, column, factor.
_GPU: Final = (
    ("gpu", "GPU busy", "%", "util_ratio", 100.0),
    ("gpu-memory", "GPU memory", "bytes", "memory_bytes", 1.0),
    ("gpu-power", "GPU power", "W", "power_w", 1.0),
    ("gpu-temperature", "GPU temperature", "°C", "temperature_c", 1.0),
    ("gpu-clock", "GPU clock", "MHz", "sm_clock_mhz", 1.0),
)


def charts(recording: Recording) -> list[dict[str, Any]]:
    """Every chart with something to show: id, title, unit, and lines of label, ``t_s`` and values."""
    system = recording.system
    found = [
        *(
            _chart(id_, title, unit, _gpu_lines(recording, column, factor))
            for id_, title, unit, column, factor in _GPU
        ),
        _chart("cpu", "Processors", "cores", _cpu(recording)),
        _chart("workers", "Workers and their queue", "", _workers(recording)),
        _chart("memory", "Memory of the run", "bytes", _of_roles(recording, resident)),
        *(
            _chart(id_, title, unit, (_moving(_line(*line, system)) for line in lines.items()))
            for id_, title, unit, lines in _MACHINE
        ),
    ]
    return [chart for chart in found if chart["lines"]]


def memory(recording: Recording, main: Steps | None) -> dict[str, Any]:
    """Peaks in bytes: of each role's processes together, of the device, and what the machine has; and the
    account of ``footprint.account``.
    """
    ranks, workers = _roles(recording)
    notes = [note for process in recording.ranks for note in process.notes.get("memory", [])]
    noted = [float(note["host_rss"]) for note in notes if note.get("host_rss")]
    trainers = _peak(resident(ranks))
    makers = _peak(resident(workers))
    return {
        "main_peak_bytes": trainers if trainers is not None else max(noted, default=None),
        "workers_peak_bytes": makers,
        "device_peak_bytes": device_peak(recording),
        "ram_bytes": recording.machine.get("ram_bytes"),
        "limit_bytes": recording.machine.get("memory_limit_bytes"),
        **account(recording, main, trainers + (makers or 0.0) if trainers else None),
    }


def _cpu(recording: Recording) -> Iterable[Line | None]:
    yield from _of_roles(recording, lambda columns: total(columns, "cpu_ratio"))
    cores = float(recording.machine.get("cpu_count") or 1)
    yield _line("whole machine", "cpu_ratio", recording.system, cores)


def _of_roles(recording: Recording, add: Callable[[list[Columns]], Any]) -> Iterable[Line | None]:
    main, workers = _roles(recording)
    yield _points("training processes", add(main))
    yield _points("workers", add(workers))


def _workers(recording: Recording) -> Iterable[Line | None]:
    if not any(process.workers for process in recording.ranks):
        return
    _, workers = _roles(recording)
    alive = [{"t_s": item["t_s"], "alive": np.ones(len(item["t_s"]))} for item in workers if "t_s" in item]
    yield _points("worker processes", total(alive, "alive"))
    yield _points("batches ready when asked for", _ready(recording))


def _ready(recording: Recording) -> tuple[Floats, Floats] | None:
    """Batches that lay ready at each fetch of the first rank."""
    at, ready = [np.zeros(0)], [np.zeros(0)]
    for rows in in_turn(recording.ranks[0].rows):
        flags = rows["flags"]
        fed = (
            (rows["kind"] == FETCH)
            & ((flags & FETCH_WORKERS) != 0)
            & ((flags & FETCH_END) == 0)
            & (rows["extra"] != U16_MAX)
        )
        at.append((rows["start"][fed].astype(float) - recording.start_ns) / 1e9)
        ready.append(rows["extra"][fed].astype(float))
    asked = np.concatenate(at)
    return (asked, np.concatenate(ready)) if len(asked) else None


def _gpu_lines(recording: Recording, column: str, factor: float) -> list[Line | None]:
    system = recording.system
    gpus = recording.machine.get("gpus") or []
    # A machine's other GPUs belong to somebody else.
    shown = [i for i, gpu in enumerate(gpus) if gpu.get("visible", True)] or range(64)
    return [_line(f"GPU{i}", f"gpu{i}_{column}", system, factor) for i in shown]


def _chart(id_: str, title: str, unit: str, lines: Iterable[Line | None]) -> dict[str, Any]:
    return {"id": id_, "title": title, "unit": unit, "lines": [line for line in lines if line]}


def _line(label: str, column: str, columns: Columns, factor: float = 1.0) -> Line | None:
    if column not in columns or "t_s" not in columns:
        return None
    return _points(label, (np.asarray(columns["t_s"], float), np.asarray(columns[column], float) * factor))


def _moving(line: Line | None) -> Line | None:
    """The line, unless it is zero throughout: a machine without swap needs no line to say so."""
    return line if line and any(line["values"]) else None


def _points(label: str, line: tuple[Floats, Floats] | None) -> Line | None:
    if line is None:
        return None
    times, values = line
    values = np.where(np.isfinite(values), values, np.nan)
    if np.isfinite(values).sum() < 2:
        return None
    return {"label": label, "t_s": rounded(thinned(times), 6), "values": rounded(thinned(values))}


def _peak(line: tuple[Floats, Floats] | None) -> float | None:
    return float(line[1].max()) if line else None


def _roles(recording: Recording) -> tuple[list[Columns], list[Columns]]:
    """Sampled columns of the training processes, and of their workers."""
    workers = [worker for process in recording.ranks for worker in process.workers]
    return sampled(recording, recording.ranks), sampled(recording, workers)
