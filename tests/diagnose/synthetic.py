"""Measured runs built by hand, with a known truth: what a step does, what the loader does, where the time
goes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from hotloop.diagnose.diagnose import diagnose
from hotloop.diagnose.evidence import Evidence, evidence_of
from hotloop.diagnose.limits import Limits
from hotloop.findings import Finding, Place
from hotloop.measure.steps import LineCost, LoaderUse, Steps
from hotloop.phases import COLUMN, PHASES
from hotloop.record.recording import ROW_DTYPE, Process, Recording
from hotloop.remedy.catalogue import exclude_each_other

DATASET = "/app/data.py"
TRAIN = "/app/train.py"


def line(
    number: int = 10,
    seconds: float = 1.0,
    *,
    file: str = DATASET,
    function: str = "Windows.__getitem__",
    phase: str = "data_wait",
    samples: int | None = None,
    **fields: Any,
) -> LineCost:
    """A sampled line at 100 Hz."""
    return LineCost(
        place=Place(file=file, line=number, function=function),
        phase=phase,
        seconds=seconds,
        num_samples=int(seconds * 100) if samples is None else samples,
        **{"nature": "native", **fields},
    )


def loader(
    *,
    workers: int = 0,
    make_s: float | Sequence[float] = 0.0,
    wait_s: float | Sequence[float] = 0.0,
    num_batches: int = 100,
    settings: Mapping[str, Any] | None = None,
    **fields: Any,
) -> LoaderUse:
    """The training loader; numbers stand for arrays of ``num_batches``."""
    lines = fields.pop("lines", ())
    return LoaderUse(
        **{
            "id": 1, "role": "train", "where": Place(file=TRAIN, line=30, function="main"),
            "settings": {
                "num_workers": workers, "batch_size": 32, "prefetch_factor": 2, **(settings or {}),
            },
            "dataset": {"class": "Windows", "len": 3200, "file": DATASET}, "num_iterators": 1,
            "batches_per_epoch": float(num_batches), "num_batches": num_batches,
            "wait_s": _array(wait_s, num_batches), "make_s": _array(make_s, num_batches),
            "make_on_cpu_ratio": 1.0, "lines": tuple(lines),
            "lines_total_s": sum(item.seconds for item in lines), **fields,
        }
    )  # fmt: skip


def steps(phases: Mapping[str, float | Sequence[float]], *, num_steps: int = 100, **fields: Any) -> Steps:
    """A run of ``num_steps`` steps with these seconds per step and phase."""
    table = np.zeros((num_steps, len(PHASES)))
    for name, seconds in phases.items():
        table[:, COLUMN[name]] = seconds
    length = table.sum(axis=1)
    end = np.cumsum(length)
    totals = {name: float(table[:, column].sum()) for name, column in COLUMN.items()}
    startup = 1.0
    steady = np.ones(num_steps, bool)
    steady[:1] = False
    return Steps(
        **{
            "rank": 0, "pid": 100, "start_s": startup + end - length, "end_s": startup + end,
            "phases": table, "samples": np.full(num_steps, 32.0), "steady": steady,
            "totals": {**totals, "startup": startup}, "span_totals": totals,
            "wall_s": startup + float(length.sum()), "span": (startup, startup + float(length.sum())),
            "num_updates": num_steps, "num_epochs": 1, "facts": {"torch": {"threads": 1}}, **fields,
        }
    )  # fmt: skip


def evidence(
    run: Steps,
    *,
    cores: float = 2,
    machine: Mapping[str, Any] | None = None,
    sources: Mapping[str, str] | None = None,
    system: Mapping[str, Any] | None = None,
    process_system: Mapping[int, Mapping[str, Any]] | None = None,
    limits: Limits | None = None,
    notes: Mapping[str, list[dict[str, Any]]] | None = None,
    workers: tuple[Process, ...] = (),
) -> Evidence:
    """One run as the rules see it."""
    process = Process(
        pid=run.pid,
        ppid=1,
        role="main",
        rank=run.rank,
        start_ns=0,
        end_ns=int(run.wall_s * 1e9),
        rows=np.zeros(0, ROW_DTYPE),
        notes={
            "source": [
                {"note": "source", "file": file, "text": text} for file, text in (sources or {}).items()
            ],
            **(notes or {}),
        },
        workers=workers,
    )
    recording = Recording(
        folder=None, command=("python", "train.py"), exit_code=0, wall_s=run.wall_s, start_ns=0,
        start_unix_s=0.0, ranks=(process,), machine={"cores": cores, **(machine or {})},
        system=system or {}, process_system=process_system or {},
    )  # fmt: skip
    return evidence_of(recording, run, (run,), limits or Limits())


def found(run: Steps, **world: Any) -> dict[str, Finding]:
    """What the rules say of one run, by id. No two of them advise opposite things."""
    items = diagnose(evidence(run, **world))
    assert opposed(items) == []
    return {item.id: item for item in items}


def opposed(findings: Sequence[Finding]) -> list[str]:
    """Pairs of findings that want other values of one argument, or whose remedies exclude each other."""

    def values(one: Finding) -> dict[str, set[str]]:
        said = re.findall(r"\b(\w+)=(True|False|\d+)\b", one.advice)
        return {name: {value for other, value in said if other == name} for name, _ in said}

    return [
        f"{one.id}: {one.advice} But {other.id}: {other.advice}"
        for one, other in combinations(findings, 2)
        if any(wanted.isdisjoint(values(other).get(name, wanted)) for name, wanted in values(one).items())
        or any(exclude_each_other(a, b) for a in one.remedies for b in other.remedies)
    ]


def input_run(
    *,
    make_s: float,
    busy_s: float,
    workers: int = 0,
    wait_s: float | None = None,
    num_steps: int = 100,
    run: Mapping[str, Any] | None = None,
    phases: Mapping[str, float] | None = None,
    **fields: Any,
) -> Steps:
    """A run whose loader makes batches in ``make_s``; the wait is what the loader's model gives unless
    told.
    """
    if wait_s is None:
        wait_s = make_s if workers == 0 else max(0.0, make_s / workers - busy_s)
    use = loader(workers=workers, make_s=make_s, wait_s=wait_s, num_batches=num_steps, **fields)
    return steps(
        {
            "data_wait": wait_s,
            "forward": busy_s * 0.4,
            "backward": busy_s * 0.5,
            "optimizer": busy_s * 0.1,
            **(phases or {}),
        },
        num_steps=num_steps,
        loaders=(use,),
        **(run or {}),
    )


def on_accelerator(run: Steps, **fields: Any) -> Steps:
    """The same run with its model on an accelerator."""
    return replace(run, facts={**run.facts, "accelerator": True}, **fields)


def _array(value: float | Sequence[float], count: int) -> np.ndarray[Any, Any]:
    return np.full(count, float(value)) if isinstance(value, int | float) else np.asarray(value, float)
