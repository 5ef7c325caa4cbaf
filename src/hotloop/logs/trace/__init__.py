"""torch.profiler traces (Chrome trace JSON, gzip too): where the device was idle, and why."""

from __future__ import annotations

from pathlib import Path

from hotloop.logs.log import Part, Point, Source
from hotloop.logs.reading import is_trace
from hotloop.logs.trace.analysis import Analysis, analyzed
from hotloop.logs.trace.findings import findings
from hotloop.logs.trace.table import Trace, read_trace
from hotloop.logs.trace.words import phases, sections, verdict

__all__ = ["analyze", "is_trace"]


def analyze(path: Path) -> Part:
    """What a trace tells. Raises OSError."""
    trace = read_trace(path)
    analysis = analyzed(trace)
    if analysis is None:
        return Part(source=_source(path, trace, None), verdict="No event of torch.profiler is in this trace.")
    return Part(
        source=_source(path, trace, analysis),
        verdict=verdict(analysis),
        throughput=tuple(
            Point(
                step=number,
                rate=1e9 / max(1, end - start),
                unit="steps/s",
                time_s=(start - analysis.window.start) / 1e9,
            )
            for number, start, end in analysis.window.steps
        ),
        phases=phases(analysis) if not analysis.doubt else (),
        findings=findings(analysis) if not analysis.doubt else (),
        sections=sections(analysis),
    )


def _source(path: Path, trace: Trace, analysis: Analysis | None) -> Source:
    reading = trace.reading
    recognized = []
    if analysis and analysis.window.steps:
        recognized.append(f"ProfilerStep#{analysis.window.steps[0][0]} to {analysis.window.steps[-1][0]}")
    if analysis:
        recognized.append(f"{len(trace.device):,} device events" if len(trace.device) else "no device events")
        recognized += ["Python functions"] if len(trace.python) else []
    notes = []
    if reading.truncated:
        why = f" ({reading.problem})" if reading.problem else ""
        notes.append(f"breaks off{why}: only what is whole was read")
    if reading.skipped:
        notes.append(f"{reading.skipped:,} damaged events left out")
    if (trace.calls.correlation > 0).any() and not len(trace.device):
        notes.append("calls to a device, and nothing that ran on it: was ProfilerActivity.CUDA on?")
    return Source(
        file=str(path),
        kind="torch.profiler trace" if analysis else "Chrome trace",
        lines=reading.num_events,
        skipped=reading.skipped,
        recognized=tuple(recognized),
        notes=tuple(notes),
        rank=trace.rank,
        num_bytes=path.stat().st_size,
    )
