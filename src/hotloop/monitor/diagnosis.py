"""What the diagnosis of the last rows says, as plain values for a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from hotloop import units
from hotloop.foreign import clean
from hotloop.record.recording import Recording
from hotloop.report import footprint, words

_MOST_FINDINGS: Final = 6
_MOST_FITS: Final = 4
_RANK: Final = ("rank", "num_steps", "s_per_step", "own_s_per_step")
_LOADER: Final = ("num_workers", "prefetch_factor", "batch_size", "pin_memory", "persistent_workers")

Report = Mapping[str, Any]
#: Measures and diagnoses a recording, as ``hotloop report`` does: the dictionary of ``report.json``.
Reporter = Callable[[Recording], Report]


def diagnosed(recording: Recording, reporter: Reporter) -> dict[str, Any]:
    """Verdict, phases, findings, ranks, loaders, memory and the length of the training, of what is in the
    recording; for the last rows of a long run these are the last minutes.
    """
    report = reporter(replace(recording, complete=True))  # what goes on was not cut short
    cwd, steady = report.get("cwd"), report["throughput"]
    per_step = (steady["samples_per_s"] or 0.0) / (steady["steps_per_s"] or 1.0)
    found: dict[str, Any] = cleaned(
        {
            "verdict": report["verdict"],
            "of_all": not any(process.cuts for process in recording.ranks),
            "num_steps": report["num_steps"],
            "step_s": (report["step_s"] or {}).get("mean"),
            "steps_per_s": steady["steps_per_s"],
            "samples_per_step": per_step or None,
            # More than one where gradients are accumulated: what is counted while it goes on are updates.
            "steps_per_update": max(
                1.0, report["num_steps"] / (report["num_updates"] or report["num_steps"] or 1)
            ),
            "phases": _phases(report),
            "findings": [_finding(report, one, cwd) for one in report["findings"][:_MOST_FINDINGS]],
            "ranks": [{name: one[name] for name in _RANK} for one in report["ranks"]],
            "slowest_rank": report["slowest_rank"],
            "loaders": [_loader(one) for one in report["loaders"] if one["role"] != "unused"],
            "memory": _memory(report["memory"]),
            "remaining": report["remaining"],
            "warnings": report["warnings"],
            "expected": report.get("expected", []),
        }
    )
    return found


def _phases(report: Report) -> list[dict[str, Any]]:
    """Shares of the training span, the largest first."""
    found = [
        {"name": one["name"], "share": one["span_share"], "s_per_step": one["s_per_step"]}
        for one in report["phases"]
        if one["span_share"] >= 0.005
    ]
    return sorted(found, key=lambda one: -one["share"])


def _finding(report: Report, one: Mapping[str, Any], cwd: str | None) -> dict[str, Any]:
    step = (report["step_s"] or {}).get("mean") or 0.0
    return {
        **{name: one[name] for name in ("id", "severity", "message", "advice")},
        "where": words.place(one["where"], cwd, limit=60),
        "share": one["cost_s_per_step"] / step if step else None,
        "s_per_step": one["cost_s_per_step"],
    }


def _loader(one: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: one["settings"].get(name) for name in _LOADER}
    settings = [f"{name}={words.value(value)}" for name, value in given.items() if value is not None]
    return {
        "role": one["role"],
        "dataset": str(one["dataset"].get("class") or "dataset"),
        "settings": ", ".join(settings),
        "ready": (one["ready_batches"] or {}).get("mean"),
        "busy_ratio": one["busy_ratio"],
    }


def _memory(memory: Mapping[str, Any]) -> dict[str, Any]:
    """Limit and peaks in bytes, and in words what a cache of the dataset would hold."""
    sizes = {one["name"]: one["total_bytes"] for one in (memory.get("dataset") or {}).get("stages") or ()}
    budgets = {one["name"]: one["num_bytes"] for one in memory.get("budgets") or ()}
    fits: dict[str, tuple[str, str]] = {}  # of each stage the smallest cache that holds all, or the largest
    for one in memory.get("fits") or ():
        stage, budget, held = one["stage"], one["budget"], footprint.held(one)
        if sizes.get(stage) and budget in budgets and fits.get(stage, ("", ""))[1] != held:
            size = units.size(sizes[stage])
            cache = f"a cache of {units.size(budgets[budget])} holds {held}"
            fits[stage] = f"dataset {stage}, {size}: {cache}", held
    names = ("main_peak_bytes", "workers_peak_bytes", "device_peak_bytes", "limit_bytes", "ram_bytes")
    return {
        **{name: memory.get(name) for name in names},
        "advice": list(memory.get("advice") or ()),
        "fits": [text for text, _ in fits.values()][:_MOST_FITS],
    }


def cleaned(value: Any) -> Any:
    """The same with every text escaped: names of files, and what a script said."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {key: cleaned(one) for key, one in value.items()}
    return [cleaned(one) for one in value] if isinstance(value, list) else value
