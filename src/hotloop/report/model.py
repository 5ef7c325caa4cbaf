"""report.json, schema 1: all a run has to say, as one dictionary. Pure functions; nothing is printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any, Final

import numpy as np

from hotloop import __version__
from hotloop.diagnose.groups import setup_group
from hotloop.findings import Finding, Gain, Place
from hotloop.measure.attribution import IN_TRAINING, SETUP
from hotloop.measure.stepping import steady_seconds
from hotloop.measure.steps import Interval, Steps
from hotloop.phases import PHASES
from hotloop.record import rows as row
from hotloop.record.recording import Process, Recording, in_turn
from hotloop.report import excerpts, flame, ranks, system, words
from hotloop.report import next as next_
from hotloop.report.excerpts import Sources
from hotloop.report.histogram import histogram
from hotloop.report.remaining import remaining
from hotloop.report.series import series, throughput
from hotloop.report.values import plain
from hotloop.report.waterfall import waterfall
from hotloop.whatif.estimate import WhatIf, estimate

SCHEMA: Final = 1
#: Of a SAVE row that is a load.
_READ: Final = 3
_MAX_LINES: Final = 40
_MAX_SITES: Final = 20
_MAX_INTERVALS: Final = 500
_MAX_MODULES: Final = 40
#: Fields of an exact call site that the report carries unchanged.
_OF_SITE: Final = ("place", "operation", "count", "seconds", "num_bytes", "flags", "in_step")


def build(
    recording: Recording,
    ranks_: Sequence[Steps],
    findings: Sequence[Finding],
    *,
    bottleneck: str,
    verdict: str,
) -> dict[str, Any]:
    """The report of a run. ``findings`` keep their order: by severity, then cost.

    ``phases`` are those of the leading rank (``lead_rank``): ``share`` is of wall time (with ``unaccounted``
    they sum to 1), ``span_share`` and ``s_per_step`` are of the training span.
    ``phases_of_all_ranks`` are means.
    """
    measured = sorted(ranks_, key=lambda steps: (steps.rank, steps.pid))
    main = ranks.lead(measured)
    process = _process(recording, main)
    # What the recording says itself, then what other rooms make of it, each asked once.
    run, patch, warned = _run(recording, measured, process), _patch(recording), _warnings(recording)
    applied, overhead_s, offset_s = _applied(process), _overhead(process, main), _offset_s(recording, process)
    sources = Sources.of(recording)
    what_if = estimate(recording, main)
    then = next_.of_findings(findings, recording.folder)
    todo = next_.of_run(recording.command, then, findings)
    report = {
        "schema": SCHEMA,
        "hotloop_version": __version__,
        "verdict": verdict,
        "bottleneck": bottleneck,
        **run,
        "throughput": throughput(main, measured),
        "phases": _phases([main] if main else []),
        "phases_of_all_ranks": _phases(measured) if len(measured) > 1 else [],
        "findings": [
            {
                **_with_gain(finding, what_if).to_json(),
                "excerpt": sources.excerpt(finding.where),
                "next": command,
                "same_seconds_as": same,
            }
            for finding, command, same in zip(findings, then, next_.same_seconds(findings, main), strict=True)
        ],
        "next": todo,
        "remaining": remaining(recording, process, main, findings),
        "settings": main.settings if main else [],
        "startup": _startup(main),
        "flame": flame.tree(main.stacks) if main else None,
        "ranks": ranks.summaries(measured),
        "slowest_rank": ranks.slowest(measured),
        "lead_rank": main.rank if main else None,
        "what_if": [one.to_json() for one in what_if.rows] if what_if is not None else [],
        "applied": applied,
        "patch": patch,
        "memory": system.memory(recording, main),
        "overhead_s_per_step": overhead_s,
        **_details(main, sources),
        "series": series(main, offset_s),
        "histogram": histogram(main),
        "waterfall": waterfall(process, main),
        "charts": system.charts(recording),
        "warnings": [*warned, *(main.facts.get("unclear", ()) if main else ())],
        "machine": recording.machine,
        "nodes": [_node(node) for node in recording.nodes],
    }
    return {key: plain(value) for key, value in report.items()}


def _node(node: Recording) -> dict[str, Any]:
    """One machine of a merged run."""
    return {
        "name": str(node.machine.get("hostname") or "?"),
        "ranks": sorted({process.rank for process in node.ranks}),
        "cores": node.machine.get("cores"),
        "exit_code": node.exit_code,
        "complete": node.complete,
    }


def _applied(process: Process | None) -> list[dict[str, Any]]:
    """The remedies that ``run --apply`` put in force, each with its last word."""
    keys = ("id", "value", "status", "count")
    notes = process.notes.get("remedy", ()) if process is not None else ()
    last = {note["id"]: {key: note.get(key) for key in keys} for note in notes}
    return list(last.values())


def _reads_checkpoint(recording: Recording) -> bool:
    """Whether a training process read a checkpoint."""
    return any(((one.rows["kind"] == row.SAVE) & (one.rows["obj"] == _READ)).any() for one in recording.ranks)


def _patch(recording: Recording) -> dict[str, Any] | None:
    """The files of a patch that was in force, as the reader knows them."""
    patch = recording.patch
    if patch is None:
        return None
    sides = {"met": patch.met, "missed": patch.missed}
    return {name: [words.path(file, recording.cwd) for file in files] for name, files in sides.items()}


def _run(recording: Recording, measured: Sequence[Steps], process: Process | None) -> dict[str, Any]:
    main = ranks.lead(measured)
    notes = process.first("process") if process else {}
    return {
        "command": recording.command,
        "cwd": notes.get("cwd"),
        "run_folder": str(recording.folder) if recording.folder else None,
        "exit_code": recording.exit_code,
        "complete": recording.complete,
        "ended": process.first("exit").get("why") if process else None,
        "without_torch": recording.without_torch,
        "torch_failed": recording.torch_failed,
        "checkpoint_read": any(steps.facts.get("checkpoint_read") for steps in measured)
        or (not measured and _reads_checkpoint(recording)),
        "start_unix_s": recording.start_unix_s,
        "wall_s": recording.wall_s,
        "span_s": main.span_s if main else 0.0,
        "span": [edge + _offset_s(recording, process) for edge in main.span]
        if main and main.num_steps
        else None,
        "num_processes": len(recording.ranks),
        "num_trainings": recording.num_jobs,
        **{name: getattr(main, name) if main else 0 for name in ("num_steps", "num_updates", "num_epochs")},
        "backwards_per_update": main.backwards_per_update if main else None,
        "accounted_ratio": min(1.0, max(0.0, 1.0 - main.unaccounted_s / main.wall_s))
        if main and main.wall_s > 0
        else None,
        "step_s": _step_times(main),
    }


def _step_times(main: Steps | None) -> dict[str, float] | None:
    """Seconds per step over the span, and median, 95th percentile and longest of the steady steps."""
    if main is None or main.num_steps == 0:
        return None
    seconds = np.sort(steady_seconds(main))
    return {
        "mean": main.step_s,
        "median": float(seconds[(len(seconds) - 1) // 2]),
        "p95": float(seconds[int(0.95 * (len(seconds) - 1))]),
        "max": float(seconds[-1]),
    }


def _phases(measured: Sequence[Steps]) -> list[dict[str, Any]]:
    wall = sum(steps.wall_s - steps.left_out_s for steps in measured)
    span = sum(steps.span_s for steps in measured)
    num_steps = sum(steps.num_steps for steps in measured)
    if wall <= 0:
        return []
    seconds = {name: sum(steps.totals.get(name, 0.0) for steps in measured) for name in PHASES}
    within = {name: sum(steps.span_totals.get(name, 0.0) for steps in measured) for name in PHASES}
    missing = sum(steps.unaccounted_s for steps in measured)
    if missing > 0:
        seconds["unaccounted"] = missing
    whole = max(wall, sum(seconds.values()))
    return [
        {
            "name": name,
            "s_per_step": within.get(name, 0.0) / num_steps if num_steps else 0.0,
            "share": value / whole,
            "span_share": within.get(name, 0.0) / span if span > 0 else 0.0,
            "seconds": value / len(measured),
            "span_seconds": within.get(name, 0.0) / len(measured),
        }
        for name, value in seconds.items()
    ]


def _with_gain(finding: Finding, what_if: WhatIf | None) -> Finding:
    """The finding with the gain of the best remedy that a what-if run tried."""
    rows = what_if.rows if what_if is not None else ()
    tried = [row for row in rows if row.intervention.partition("=")[0] in finding.remedies]
    best = max(tried, key=lambda row: row.ratio or 0.0, default=None)
    if best is None or best.ratio is None or best.ci95 is None:
        return finding
    return replace(finding, gain=Gain(ratio=best.ratio, ci95=best.ci95, measured=True))


def _startup(main: Steps | None) -> dict[str, Any]:
    if main is None:
        return {"seconds": 0.0, "parts": []}
    parts = sorted(main.startup.items(), key=lambda part: (-part[1], part[0]))
    return {
        "seconds": main.totals.get("startup", 0.0),
        "parts": [
            {
                "name": name,
                "seconds": value,
                "in_training": name == IN_TRAINING,
                "where": _of_setup(main) if name == SETUP else None,
            }
            for name, value in parts
            if value > 0
        ],
    }


def _of_setup(main: Steps) -> dict[str, Any] | None:
    group = setup_group(main)
    return (
        None
        if group is None
        else {"file": group.place.file, "line": group.place.line, "seconds": group.seconds}
    )


def _details(main: Steps | None, sources: Sources) -> dict[str, Any]:
    if main is None:
        lists = ("lines", "loaders", "modules", "evaluations", "checkpoints", "interruptions")
        return {**{name: [] for name in lists}, "sites": {}, "device": None, "facts": {}}
    return {
        "lines": [excerpts.line(item, main, sources) for item in main.lines[:_MAX_LINES]],
        "loaders": [excerpts.loader(item, sources) for item in main.loaders],
        "sites": _sites(main, sources),
        "modules": main.modules[:_MAX_MODULES],
        "evaluations": [_interval(item) for item in main.evaluations[:_MAX_INTERVALS]],
        "checkpoints": [_interval(item) for item in main.checkpoints[:_MAX_INTERVALS]],
        "interruptions": _interruptions(main),
        "device": main.device,
        "compile": {
            "seconds": main.compile_s,
            "steps": main.compiles_at[:100],
            "graph_breaks": main.graph_breaks,
        },
        "gc": {"seconds": main.gc_s, "count": main.gc_count},
        "scaler": {"steps": main.scaler_steps, "skips": main.scaler_skips},
        "loop": main.source_loop,
        "facts": main.facts,
    }


def _sites(main: Steps, sources: Sources) -> dict[str, list[dict[str, Any]]]:
    return {
        kind: [
            {
                **{name: getattr(item, name) for name in _OF_SITE},
                "source": sources.line(item.place) if item.place else "",
                "s_per_step": item.seconds / max(1, main.num_steps),
            }
            for item in items[:_MAX_SITES]
        ]
        for kind, items in sorted(main.sites.items())
        if items
    }


def _interval(item: Any) -> dict[str, Any]:
    place: Place | None = item.place
    return {"start_s": item.start_s, "seconds": item.seconds, "after_step": item.after_step, "place": place}


def _process(recording: Recording, main: Steps | None) -> Process | None:
    if main is None:
        return recording.ranks[0] if recording.ranks else None
    return next((process for process in recording.ranks if process.pid == main.pid), None)


def _offset_s(recording: Recording, process: Process | None) -> float:
    """When the leading process started, in seconds since the command did."""
    return max(0.0, (process.start_ns - recording.start_ns) / 1e9) if process else 0.0


def _warnings(recording: Recording) -> list[str]:
    """What hotloop could not see, in words, each once."""
    missed = (_patch(recording) or {}).get("missed", ())
    found = [f"The patch was not met: {file} was not imported." for file in missed]
    found += recording.warnings
    for process in recording.processes:
        found += [str(note.get("text", "")) for note in process.notes.get("warning", [])]
        for note in process.notes.get("disabled", []):
            name, error = note.get("observer", "?"), note.get("error", "unknown error")
            found.append(f"The observer {name} failed and was switched off: {error}.")
        found += [_profiled(note, recording) for note in process.notes.get("profile", [])]
    if not recording.complete:
        found.append("The run or its launcher was killed: the last second may be missing.")
    return [one for one in dict.fromkeys(found) if one]


def _profiled(note: Mapping[str, Any], recording: Recording) -> str:
    trace = f"{recording.folder or '.'}/{str(note.get('trace', '')).rpartition('/')[2]}"
    return (
        "Steps inside the profiler's window count for kernels only. "
        f"It recorded {note.get('steps', 0)} updates: hotloop analyze {trace}"
    )


# What interrupts the steps, summed up


def _interruptions(main: Steps) -> list[dict[str, Any]]:
    """One entry per kind that occurred: count, seconds in all, ``every_steps`` (median distance), place."""
    found = [
        _repeated("evaluation", main.evaluations),
        _repeated("checkpoint", main.checkpoints),
        _total("garbage collection", main.gc_count, main.gc_s),
        _total("compilation", len(main.compiles_at), main.compile_s),
    ]
    return [entry for entry in found if entry["count"] and entry["seconds"] > 0]


def _repeated(kind: str, items: Sequence[Interval]) -> dict[str, Any]:
    distances = [
        after - before for before, after in pairwise(item.after_step for item in items) if after > before
    ]
    return {
        **_total(kind, len(items), sum(item.seconds for item in items)),
        "every_steps": median(distances) if distances else None,
        "place": next((item.place for item in items if item.place), None),
    }


def _total(kind: str, count: int, seconds: float) -> dict[str, Any]:
    return {"kind": kind, "count": count, "seconds": seconds, "every_steps": None, "place": None}


# What observing cost


#: Seconds per row and per stack sample, measured on a 0.4 ms step on 2 shared cores.
_ROW_S: Final = 2.2e-6
_SAMPLE_S: Final = 5.0e-6


def _overhead(process: Process | None, steps: Steps | None) -> float | None:
    """Estimated seconds per step spent on observing in the training thread; None where no step was seen."""
    if process is None or steps is None or steps.num_steps == 0:
        return None
    num_samples = sum(int(np.count_nonzero(rows["kind"] == row.SAMPLE)) for rows in in_turn(process.rows))
    num_rows = len(process.rows) - num_samples
    return (num_rows * _ROW_S + num_samples * _SAMPLE_S) / steps.num_steps
