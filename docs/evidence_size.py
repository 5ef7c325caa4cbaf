"""The sections of docs/evidence.md on size: start-up, bytes on disk, large runs, an hour of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import result_files
from result_files import Result, block, field, newest

STARTUP = "python benchmarks/startup.py --rounds 7 --memory-steps 300000 --out FILE"
TRACES = "python benchmarks/traces.py --size 1GB --json FILE"
SIZES = "python benchmarks/recording_size.py --out FILE"
LOGS = "python benchmarks/analyze.py --out FILE"
FAULTS = "python benchmarks/faults.py --tries 8 --out FILE"
SCALE = "python benchmarks/scale.py --ranks 1024 --steps 100000 --json FILE"


def sizes() -> list[str]:
    """What hotloop takes before, after and beside a run, and to read a trace."""
    result, traces = newest("startup-*.json", STARTUP), newest("traces-*.json", TRACES)
    sized, logs = newest("recording-size-*.json", SIZES), newest("analyze-*.json", LOGS)
    rows = []
    for row in field(result, "rows"):
        low, high = row["range"]
        limit = "-" if row["limit"] is None else f"{row['limit']:g} {row['unit']}"
        rows.append(f"{row['name']} | {row['value']:.3g} {row['unit']} | {low:.3g} .. {high:.3g} | {limit}")
    size = field(traces, "mb")
    read = [
        f"{tool} | {size:,.0f} MB | {run['seconds']:.1f} s | {run['peak_mb']:,.0f} MB"
        for tool, runs in field(traces, "runs").items()
        for run in runs
    ]
    loops = [
        f"{row['loop']} | {row['steps']:,} | {row['rows'] / row['steps']:.1f} B | "
        f"{row['system'] / row['steps']:.1f} B | {row['bytes_per_step']:.1f} B | 200 B"
        for row in field(sized, "rows")
    ]
    made = [f"{one['steps']:,} | {one['peak_bytes'] / 2**20:.0f} MiB" for one in field(sized, "report")]
    formats = [
        f"{row['format']} | {row['mb']:.0f} MB | {row['mb_per_cpu_s']:.0f} | {row['rows_per_s']:,.0f} | "
        f"{row['peak_mib']:.0f} MiB"
        for row in field(logs, "rows")
    ]
    read_by = ("`hotloop analyze` of", "size", "MB a CPU second", "rows/s", "peak memory")
    head = ("a recording of", "steps", "rows, a step", "system samples", "all but notes", "limit")
    return [
        "## Start-up, sizes, speed", "",
        *block((result, STARTUP), ("what", "median", "least .. most", "limit"), rows),
        *block((traces, TRACES), ("profiler trace read by", "trace", "time, one run", "peak memory"), read),
        *block((sized, SIZES), head, loops),
        *block(None, ("steps of the run that a report is of", "peak memory of the report"), made),
        *block((logs, LOGS), read_by, formats),
    ]  # fmt: skip


SCALED = """
Recordings in the true format. With `--distinct N` so many ranks of each node are generated, and the slow one;
the others are copies of these files with their own rank and pid. `hotloop merge` writes the report as well.

![Time and memory of a report against ranks, steps, loaders, modules and samples](images/scale.svg)

The picture: a report of one rank (of 4 to 64 ranks) while one thing grows, `benchmarks/scale.py --curves`.
""".strip()


def scaled() -> list[Mapping[str, Any]]:
    """Every recording of many ranks that was measured; none is no error."""
    found = [Result(path) for path in sorted(result_files.RESULTS.glob("scale-*.json"))]
    return [
        {**row, "file": one}
        for one in found
        for row in (one.data if isinstance(one.data, list) else [one.data])
    ]


def scale() -> list[str]:
    """Time and memory of the commands that read recordings of many ranks."""
    rows = [
        f"{row['ranks']:,} x {row['steps']:,} | {row['nodes'] or 1} | {row['recording_mb']:,.0f} MB | "
        f"`{' '.join(run['command'])}` | {run['seconds']:.1f} s | {run['cpu_s']:.1f} s | "
        f"{run['peak_mb']:,.0f} MB | {row['file'].machine} | {row['file'].link}, {row['file'].date} | "
        f"`python benchmarks/scale.py --ranks {row['ranks']} --steps {row['steps']} --nodes {row['nodes']} "
        f"--distinct {row.get('distinct', 0)}`"
        for row in scaled()
        if "varied" not in row
        for run in row["runs"]
    ]
    head = (
        "ranks x steps", "nodes", "recording", "read by", "time, one run", "CPU time", "peak memory",
        "machine", "file", "command",
    )  # fmt: skip
    return ["## Scale", "", SCALED, "", *block(None, head, rows)] if rows else []


def soak() -> list[str]:
    """A long training under observation; no result is no error."""
    rows = []
    for result in [Result(path) for path in sorted(result_files.RESULTS.glob("soak-*.json"))]:
        first, last = field(result, "samples", 0), field(result, "samples", -1)
        memory = sorted(
            name for name in first if name.endswith("_mb") and name not in ("raw_mb", "folder_mb")
        )
        grown = max(last[name] - first[name] for name in memory)
        each = (last["folder_mb"] - first["folder_mb"]) * 1e6 / (last["steps"] - first["steps"])
        rates = [*field(result, "alone_steps_per_s"), *field(result, "observed_steps_per_s_by_quarter")]
        rows.append(
            f"{field(result, 'minutes'):g} min | {last['steps']:,} | {grown:+.1f} MB | {each:.0f} B | "
            f"{', '.join(f'{rate:.1f}' for rate in rates[:2])} | "
            f"{', '.join(f'{rate:.1f}' for rate in rates[2:])} | "
            f"{'; '.join(field(result, 'faults')) or 'none'} | {result.machine} | {result.link}, "
            f"{result.date} | `python benchmarks/soak.py --minutes {field(result, 'minutes'):g} --json FILE`"
        )
    head = (
        "watched by four viewers for", "steps", "most that a process grew", "files, a step",
        "steps/s alone, before and after", "steps/s observed, by quarter", "not flat", "machine", "file",
        "command",
    )  # fmt: skip
    return ["## Soak", "", *block(None, head, rows)] if rows else []


def faults() -> list[str]:
    """What is left of runs that were ended or damaged, and how well the clocks of several nodes are known."""
    result = newest("faults-*.json", FAULTS)
    ends = ("reported", "refused in words", "failed")
    rows = [
        f"{row['fault']} | {row['tries']} | {' | '.join(str(row[end]) for end in ends)} | "
        f"{row['steps']:,.0f} | {row['lost']:,.0f} (most {row['lost_most']:,})"
        for row in field(result, "rows")
    ]
    nodes = [
        f"{node['name']} | {node['ahead_ns'] / 1e9:,.0f} s | {node['within_s'] * 1e3:.2g} ms"
        for node in field(result, "nodes")
    ]
    head = ("fault", "tries", *ends, "steps done, median", "of these lost, median")
    machines = ("machine of a job of three, one killed", "its clock is ahead by", "known within")
    said = "A full disk ends the recording, not the training. Where a report is refused, all steps are lost."
    return ["## Faults", "", said, "", *block((result, FAULTS), head, rows), *block(None, machines, nodes)]
