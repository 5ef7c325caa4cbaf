"""What was recognized in a log and what it says, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotloop import units
from hotloop.findings import Finding
from hotloop.logs.changes import LEAST_VALUES
from hotloop.logs.log import REST, Log

_ROLES = {
    "time": "step time", "data_time": "data time", "rate": "steps/s", "sample_rate": "samples/s",
    "token_rate": "tokens/s", "loss": "loss", "lr": "learning rate", "device_bytes": "device memory",
    "host_bytes": "process memory", "system_bytes": "system memory", "hit_rate": "cache hit rate",
    "gpu_util": "GPU utilization", "power": "power", "forward": "forward", "backward": "backward",
    "optimizer": "optimizer", "transfer": "transfer", "collective": "collective", "step": "step",
    "epoch": "epoch", "bar_rate": "progress bar", "evaluation": "evaluation time",
    "checkpoint": "checkpoint time",
}  # fmt: skip

#: A few values further apart than this are not called steady.
_APART = 1.25


def recognized(log: Log) -> tuple[str, ...]:
    """What the file's numbers are, how many rows of them, and which clock it has."""
    rows = sum(stream.num_rows for stream in log.read.streams)
    if not rows:
        return ()
    roles = [
        words for role, words in _ROLES.items() if any(s.get(role) is not None for s in log.read.streams)
    ]
    stages = sum(stage.name != REST for stage in log.stages)
    if stages:
        roles.append(f"{stages} stages")
    out = [f"{rows:,} rows: " + (", ".join(roles) or "durations under names of their own")]
    if any(stream.get("clock") is not None for stream in log.read.streams):
        out.append("clock: time of day")
    elif any(stream.get("elapsed") is not None for stream in log.read.streams):
        out.append("clock: elapsed time")
    else:
        out.append("no clock")
    if log.series is not None:
        out.append(f"throughput from {log.series.how}")
    return tuple(out)


def verdict(log: Log, findings: Sequence[Finding]) -> str:
    """One sentence: the gravest finding, else how the run goes, else nothing."""
    if findings and findings[0].severity in ("high", "medium"):
        return findings[0].message
    misread = next((finding for finding in findings if finding.id == "trend/misleading-metric"), None)
    if misread is not None:
        return misread.message
    wait = next((phase for phase in log.phases if phase.name == "data_wait"), None)
    series = log.series
    busy = [column for stream in log.trained() if (column := stream.get("gpu_util")) is not None]
    if series is not None and len(series.rate) >= 3:
        pace = f"{units.rate(log.levels[-1])} {series.unit}"
        if len(log.levels) == 1:
            known = series.rate[np.isfinite(series.rate) & (series.rate > 0)]
            if len(known) < LEAST_VALUES and known.max() > _APART * known.min():
                return (
                    f"{units.rate(known.min())} to {units.rate(known.max())} {series.unit} in {len(known)} "
                    "values: too few to tell whether it changes."
                )
            fed = f", {units.share(wait.share)} of each step waiting for data" if wait is not None else ""
            return f"Steady at {pace} from first to last{fed}."
        low, high = min(log.levels), max(log.levels)
        moves = f"Throughput moves between {units.rate(low)} and {units.rate(high)} {series.unit}"
        return f"{moves}, {pace} at the end."
    if busy:
        means = [float(np.nanmean(column)) for column in busy]
        spread = (
            f"{units.share(min(means))} to " if units.share(min(means)) != units.share(max(means)) else ""
        )
        which = "The GPU computes" if len(means) == 1 else f"The {len(means)} GPUs compute"
        return f"{which} {spread}{units.share(max(means))} of the time."
    if findings:
        return findings[0].message
    if wait is not None:
        return f"{units.share(wait.share)} of each step waits for data."
    if log.stages:
        return f"{log.stages[0].name} takes {units.share(log.stages[0].share)} of {len(log.stages)} stages."
    return "Nothing in this file says how fast it trains." if log.read.streams else ""
