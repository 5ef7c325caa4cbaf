"""The sections of docs/evidence.md on cost and gain: what observing costs, what tuning and feeding give."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from result_files import ROOT, Result, block, every, field, newest, spread

sys.path.append(str(ROOT / "benchmarks" / "recovery"))
import table as recovery_table

WHOLE = "python benchmarks/overhead.py --rounds 5 --steps 1500 --out FILE"
RECOVERY = "python benchmarks/recovery/run.py --budget 60s --out FILE"
GRID = "python benchmarks/recovery/grid.py --out FILE"
FEED = "python benchmarks/feed/run.py --out FILE"
PREDICTION = "python benchmarks/prediction.py --out FILE"
BRIEF = "python benchmarks/brief.py --out FILE"
BRIEFED = "python benchmarks/recovery/briefed.py --out FILE"

#: What the probe may cost a step, by loop: microseconds, or a share of the step.
LIMIT_US, LIMIT_SHARE = {"small": 50.0}, 0.01
TOOLS = {
    "evidence": "hotloop run --evidence", "hotloop": "hotloop run", "traceml": "TraceML 0.5.0",
    "gpuprof": "gpuprof 0.7.1", "datapath": "datapath-doctor 0.2.1", "alloc": "alloc run 0.0.16",
}  # fmt: skip
#: What cures a case, by the field ``by``.
CURES = {"settings": "where settings cure", "code": "where an edit cures"}
SYSTEMS = ("tcn_state", "landmarks", "bev", "spikevid", "heads", "heads-cpu-4-cameras")
RATIOS = {
    "tuned_to_found": "tuned to the unmodified run",
    "tuned_to_cured": "tuned to a cure by hand",
    "tuned_to_ceiling": "tuned to the measured ceiling",
}


def ratio(middle: float, ends: Sequence[float]) -> str:
    """``5.30x (5.17 - 5.40)``; without brackets where the file has no spread."""
    low, high = ends
    return f"{middle:.2f}x" + (f" ({low:.2f} - {high:.2f})" if low < high else "")


def overhead() -> list[str]:
    """What the probe adds to a step."""
    rows = [
        _turn(result) for result in every("in-process-turns-*.json", "python benchmarks/in_process_turns.py")
    ]
    head = ("file", "date", "machine", "loop", "a step without", "added (95 %)", "share", "limit", "command")
    lines = [
        "## Overhead",
        "",
        "The probe enabled in every other step of one process:",
        "",
        *block(None, head, rows),
    ]
    for result in every("overhead-*.json", WHOLE):
        rows = [_whole(row) for row in field(result, "rows")]
        head = ("whole runs: tool", "loop", "a step without", "added (middle half)", "share")
        lines += block((result, WHOLE), head, rows)
    return lines


def _whole(row: Mapping[str, Any]) -> str:
    low, high = row["overhead_iqr_ms"]
    return (
        f"{TOOLS.get(row['tool'], row['tool'])} | {row['size']} | {row['without_ms']:.3g} ms | "
        f"{round(row['overhead_ms'] * 1e3)} us ({low * 1e3:.0f} - {high * 1e3:.0f}) | "
        f"{round(row['overhead_ratio'] * 100, 1) + 0.0:.1f} %"
    )


def _turn(result: Result) -> str:
    on, loop = field(result, "on"), field(result, "loop")
    cost, without, processes = on["cost_us"], on["without_us"], len(on["of_processes_us"])
    limit = LIMIT_US.get(loop, LIMIT_SHARE * without)
    low, high = on["ci95_us"]
    added = f"{cost:.0f} us ({low:.0f} - {high:.0f}) | {cost / without * 100:.1f} %"
    required = f"{limit:.0f} us: {'met' if cost <= limit else 'not met'}"
    command = f"--loop {loop} --processes {processes} --rounds {field(result, 'rounds')}"
    return (
        f"{result.link} | {result.date} | {result.machine} | {loop} | {without / 1e3:.2g} ms | {added} | "
        f"{required} | `python benchmarks/in_process_turns.py {command}`"
    )


def recovery_file() -> Result:
    """The newest run of all planted cases."""
    return newest("recovery-*-cases.json", RECOVERY)


def recovery() -> list[str]:
    """Planted causes tuned, beside the unmodified run, a cure by hand and the ceiling."""
    result, beside = recovery_file(), newest("recovery-*-night.json", RECOVERY)
    cases = list(field(result, "cases").values())
    groups = {
        "": cases,
        **{f", {words}": [row for row in cases if row["by"] == by] for by, words in CURES.items()},
    }
    rows = []
    for key, name in RATIOS.items():
        for group, members in groups.items():
            known = [row[key] for row in members if row[key]]
            rows.append(f"{name}{group} | {len(known)} | {spread(known, '{:.2f}x')}")
    told = [
        f"{_spelled(name)} | {value.replace('%', ' %')}"
        for name, value in recovery_table.summary(cases).items()
        if " to " not in name and not name.startswith(("the same", "and where"))
    ]
    lines = ["## What tune recovers", ""]
    lines += block((result, RECOVERY), ("ratio", "cases", "median", "middle half", "least .. most"), rows)
    lines += block(None, ("of the same cases: intervals, and what tuning costs", "value"), told)
    head = ("case", "tuned to unmodified", "tuned to cure", "tuned to ceiling", "remedies")
    lines += block(None, head, map(_case, cases))
    lines += block((beside, RECOVERY), ("gain of", "tune", "loadtune", "Lightning"), _tuners(beside))
    grids = [beside, *every("grid-*.json", GRID)]
    head = ("file", "date", "data", "tuned to the grid's best", "tuning", "the grid", "command")
    return [*lines, *block(None, head, [row for one in grids for row in _grids(one)])]


def _spelled(name: str) -> str:
    """A name of ``recovery_table.summary`` in the words of this page."""
    for old, new in (
        ("where a step", "tuned to ceiling where a step"),
        ("as found", "unmodified"),
        ("tells", "reports"),
    ):
        name = name.replace(old, new)
    return name


def _tuners(result: Result) -> Iterator[str]:
    peers, cases = field(result, "peers"), field(result, "cases")
    for name in dict.fromkeys(row["case"] for row in peers.values()):
        rows = [(cases[name]["tuned_to_found"], cases[name]["tune_seconds"])]
        rows += [
            (row["tuned_per_s"] / row["found_per_s"], row["seconds"])
            for row in (peers[f"{peer} {name}"] for peer in ("loadtune", "lightning"))
        ]
        yield " | ".join([f"`{name}`", *(f"{gain:.2f}x in {seconds:.0f} s" for gain, seconds in rows)])


def _case(row: Mapping[str, Any]) -> str:
    gains = " | ".join(f"{row[key]:.2f}x" if row[key] else "-" for key in RATIOS)
    return f"`{row['case']}` | {gains} | {', '.join(f'`{one}`' for one in row['remedies'])}"


def _grids(result: Result) -> Iterator[str]:
    for row in field(result, "grid").values():
        tuning = row["tune_seconds"]
        yield (
            f"{result.link} | {result.date} | {row['data']} | {row['tuned_to_best']:.2f}x | {tuning:.0f} s | "
            f"{row['grid_seconds']:.0f} s | `{GRID}`"
        )


def feeding() -> list[str]:
    """Loaders beside DataLoader, each date a column; then what was required and not met."""
    results = [one for one in every("feed-cpu-*.json", FEED) if "endurance" not in one.path.name]
    lines = [
        "## Feed",
        "",
        "Rates beside the DataLoader of the same round. Without brackets a file has no spread.",
        "",
    ]
    for key, what in (
        ("images", "images, 224x224x3 of uint8"),
        ("jpegs", "JPEG files"),
        ("tiny", "64-byte samples"),
    ):
        parts = {one: _part(one).get(key) for one in results}
        columns = {one: {row["way"]: row for row in part["rows"]} for one, part in parts.items() if part}
        ways = dict.fromkeys(way for rows in columns.values() for way in rows)
        rows = [" | ".join([way, *(_way(rows.get(way)) for rows in columns.values())]) for way in ways]
        head = (f"{what}, to DataLoader (middle half)", *(f"{one.link}, {one.date}" for one in columns))
        lines += block(None, head, rows)
    return [*lines, *_required(results), *_endurance()]


def _part(result: Result) -> Mapping[str, Any]:
    loaders = field(result, "parts", "loaders") if "parts" in result.data else result.data
    found: Mapping[str, Any] = loaders["loaders"]
    return found


def _way(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    if "failure" in row:
        return "did not build"
    return ratio(row["ratio"]["median"], (row["ratio"]["low"], row["ratio"]["high"]))


def _required(results: Sequence[Result]) -> list[str]:
    rows, missed = [], []
    for one in results:
        states = [target["met"] for target in field(one, "targets")]
        rows.append(
            f"{one.link} | {one.date} | {one.machine} | {states.count(True)} of {len(states)} | "
            f"{states.count(False)} | {states.count(None)} | `{FEED}`"
        )
        missed += [
            f"{row['name']} | {row['measured']} | {row['required']} | {one.link}"
            for row in one.data["targets"]
            if row["met"] is False
        ]
    head = ("file", "date", "machine", "requirements met", "not met", "did not run", "command")
    return [*block(None, head, rows), *block(None, ("not met", "measured", "required", "file"), missed)]


def _endurance() -> list[str]:
    command = "python benchmarks/feed/run.py --only endurance --out FILE"
    result = newest("feed-cpu-*-endurance.json", command)
    rows = [f"{row['required']} | {row['measured']}" for row in field(result, "targets")]
    return block((result, command), ("endurance", "measured"), rows)


def predictions() -> list[str]:
    """Predicted loader settings beside measured ones."""
    result = newest("prediction-*.json", PREDICTION)
    rows = [
        f"{name} | {one['configurations']} | {one['median_error'] * 100:.1f} % | "
        f"{one['p90_error'] * 100:.1f} % | {one['inside_interval'] * 100:.0f} % | "
        f"{one['rank_correlation']:.2f} | {one['regret_of_pick'] * 100:.0f} %"
        for name, one in field(result, "summary").items()
    ]
    head = (
        "other loader settings, from one recording", "settings", "median error", "90th percentile",
        "inside the interval", "rank correlation", "lost by its pick",
    )  # fmt: skip
    return ["## Predictions", "", *block((result, PREDICTION), head, rows)]


def systems() -> list[str]:
    """The five systems beside what their guides promise."""
    rows = []
    for name in SYSTEMS:
        pattern = f"{name}-[0-9]*.json" if "-cpu" in name else f"{name}-cpu-[0-9][0-9][0-9][0-9]-*.json"
        system = name.split("-")[0]
        result = newest(pattern, f"python benchmarks/workloads.py {system}")
        found, *others = field(result, "variants")
        gains = [ratio(row["ratio"], row["ci95"]) for row in others]
        flags = " ".join(["", "--", *result.data["flags"]]) if result.data["flags"] else ""
        command = f"python benchmarks/workloads.py {system} --rounds {result.data['rounds']}{flags}"
        rows.append(
            f"[{system}](workloads/{system}.md){flags and f' `{flags[4:]}`'} | "
            f"{'; '.join(result.data['claims'])} | {found['samples_per_s']:,.3g} | {' | '.join(gains)} | "
            f"{result.machine} | {result.date} | `{command}` | {result.link}"
        )
    head = (
        "system", "its guide's claim", "unmodified, samples/s", "after its guide (95 %)", "cured (95 %)",
        "machine", "date", "command", "file",
    )  # fmt: skip
    return ["## Five systems", "", *block(None, head, rows)]


def briefs() -> list[str]:
    """Recipes of briefs, applied by hand and judged by their own commands."""
    result = newest("brief-*.json", BRIEF)
    rows = [
        f"`{row['case']}` | {row['verify']} ({_parity(row)}) | {ratio(row['ratio'], row['ci95'])}"
        for row in field(result, "cases")
    ]
    head = ("planted case", "`verify`", "`compare` (95 %)")
    lines = ["## From the brief to the proof", "", *block((result, BRIEF), head, rows)]
    written = newest("briefed-*.json", BRIEFED)
    rows = [_briefed(row) for row in field(written, "briefed").values()]
    lines += [
        "Changes that agents wrote, with nothing but what hotloop prints, where `tune` leaves most:",
        "",
    ]
    head = ("planted case", "changed to unmodified", "changed to a cure by hand", "`verify`")
    lines += block((written, BRIEFED), head, rows)
    lines += ["What tune gave in each of its cases, or what such a change gave where that is more:", ""]
    both = _both(field(recovery_file(), "cases"), field(written, "briefed"))
    rows = [f"{name} | {len(known)} | {spread(known, '{:.2f}x')}" for name, known in both.items()]
    return [*lines, *block(None, ("ratio", "cases", "median", "middle half", "least .. most"), rows)]


def _both(cases: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, list[float]]:
    """Both ratios of the better one. What a change gave was measured beside the cure, as the ceiling was."""
    known = [
        (max(row["tuned_to_cured"], written.get(name, {}).get("briefed_to_cured") or 0.0), row)
        for name, row in cases.items()
        if row["tuned_to_cured"] and row["tuned_to_ceiling"]
    ]
    ceilings = [best * row["tuned_to_ceiling"] / row["tuned_to_cured"] for best, row in known]
    return {"to a cure by hand": [best for best, _ in known], "to the measured ceiling": ceilings}


def _briefed(row: Mapping[str, Any]) -> str:
    gains = (f"{row[f'briefed_to_{other}']:.2f}x" for other in ("found", "cured"))
    return f"`{row['case']}` | {' | '.join(gains)} | {row['verdict']}"


def _parity(row: Mapping[str, Any]) -> str:
    said = next(line for line in row["verify_says"].splitlines() if line.startswith("parity"))
    return said.split(maxsplit=1)[1].split(":")[0]


def questions() -> list[str]:
    """Small benchmarks that decide one threshold or remedy each."""
    lines = ["## Single questions", ""]
    fused = newest("fused-*.json", "python benchmarks/fused.py --out FILE")
    gains: dict[str, list[float]] = {}
    for row in field(fused, "rows"):
        gains.setdefault(row["optimizer"], []).append(row["loop_ms"] / row["fused_ms"])
    rows = [f"{name} | {len(known)} | {spread(known, '{:.2f}x')}" for name, known in gains.items()]
    head = ("one kernel for the update, a CPU", "sizes", "median gain", "middle half", "least .. most")
    lines += block((fused, "python benchmarks/fused.py --out FILE"), head, rows)

    faults = newest("page-faults-*.json", "python benchmarks/page_faults.py --out FILE")
    rows = [
        f"{row['batch']} | {row['threads']} | {row['found_ms']:.3g} ms | {row['kept_ms']:.3g} ms | "
        f"{row['found_ms'] / row['kept_ms']:.2f}x"
        for row in field(faults, "rows")
    ]
    head = ("freed memory kept: batch", "threads", "a step without", "with", "gain")
    lines += block((faults, "python benchmarks/page_faults.py --out FILE"), head, rows)

    beside = newest("hand-over-*.json", "python benchmarks/hand_over.py --out FILE")
    rows = [
        " | ".join(f"{row[f'{key}_us']:,.0f} us" for key in ("gather", "inline", "beside", "saved"))
        for row in beside.data
    ]
    head = ("gathering a batch", "a step, in the loop", "a step, in a thread beside", "saved")
    return [*lines, *block((beside, "python benchmarks/hand_over.py --out FILE"), head, rows)]
