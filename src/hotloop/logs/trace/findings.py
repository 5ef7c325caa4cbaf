"""What traces can prove, under the ids of `hotloop run`; where they cannot tell, nothing is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from hotloop.findings import ENTRIES, Finding, Place
from hotloop.logs.log import WORTH, severity_of
from hotloop.logs.trace.analysis import Analysis
from hotloop.logs.trace.causes import copy_direction
from hotloop.logs.trace.idle import LAUNCHED, LAUNCHING, nested
from hotloop.logs.trace.table import place_of
from hotloop.phases import COLUMN
from hotloop.units import duration, share, size


def place_in(analysis: Analysis, phase: str) -> Place | None:
    """The script's innermost function in the middle of most of a phase's pieces; None where half has none."""
    pieces = analysis.device.idle if analysis.device else analysis.host
    python = analysis.trace.python
    on_main = python.where(python.thread == analysis.main)
    (chosen,) = np.nonzero((pieces.phase == COLUMN[phase]) & (pieces.ns > 0))
    if not len(on_main) or not len(chosen):
        return None
    innermost, _ = nested(on_main.start, on_main.end)
    event = innermost.at(pieces.at[chosen] + (pieces.ns[chosen] / 2).astype(np.int64))
    nowhere = len(analysis.trace.labels)
    label = np.where(event >= 0, on_main.label[event], nowhere)
    cost = np.bincount(label, pieces.ns[chosen], minlength=nowhere + 1)
    if cost[nowhere] > cost.sum() / 2:
        return None
    found = place_of(analysis.trace.name(int(cost[:nowhere].argmax())))
    return Place(file=found[0], line=found[1], function=found[2]) if found else None


# Findings


# The thresholds of diagnose/limits.py, with their sources there; this floor cannot import it.
_LAUNCH_BOUND: Final = 0.10
_DEVICE_BOUND: Final = 0.70
_AMP_SAVES: Final = 0.23
_TF32_SAVES: Final = 0.13
_LARGE_COPY_BYTES: Final = 256 * 1024
_SMALL_COPY_BYTES: Final = 64 * 1024
_MANY_COPIES: Final = 20
#: Matrix kernels with this share of the computing decide its precision; this much of them in float32 is all.
_MATRIX_SHARE: Final = 0.3
_ALL_FLOAT32: Final = 0.9


def findings(analysis: Analysis) -> tuple[Finding, ...]:
    """All findings, the costliest first."""
    found = [one for rule in _RULES for one in rule(analysis)]
    return tuple(sorted(found, key=lambda one: -one.cost_s_per_step))


def _finding(
    analysis: Analysis,
    id: str,
    seconds: float,
    message: str,
    evidence: list[str],
    *,
    phase: str = "",
    advice: str = "",
    remedies: tuple[str, ...] | None = None,
) -> Finding:
    home = ENTRIES[id]
    window = analysis.window
    steps = f"{len(window.steps)} steps" if window.steps else "no ProfilerStep marks: per step means in all"
    return Finding(
        id=id,
        message=message,
        advice=advice or home.advice,
        evidence=(*evidence, f"from a trace of {duration(window.span_s)}, {steps}"),
        cost_s_per_step=seconds / window.num_steps,
        share=seconds / window.span_s,
        severity=severity_of(seconds / window.span_s),
        where=place_in(analysis, phase) if phase else None,
        remedies=home.remedies if remedies is None else remedies,
        rank=analysis.trace.rank,
    )


def _loss(analysis: Analysis, seconds: float) -> str:
    each = duration(seconds / analysis.window.num_steps)
    return f"{each} per step, {share(seconds / analysis.window.span_s)} of the time"


def _input(analysis: Analysis) -> Iterator[Finding]:
    seconds = analysis.lost_s("data_wait")
    if seconds < WORTH * analysis.window.span_s:
        return
    each = duration(seconds / analysis.window.num_steps)
    single = any("_SingleProcessDataLoaderIter" in row.name for row in analysis.operators)
    what = "the training process makes each batch itself" if single else "the next batch is waited for"
    yield _finding(
        analysis,
        "input/single-process" if single else "input/data-wait",
        seconds,
        f"The device is idle for {each} per step while {what}."
        if analysis.device
        else f"In {each} of each step {what}.",
        [f"{_loss(analysis, seconds)}, in the DataLoader" + (" with num_workers=0" if single else "")],
        phase="data_wait",
    )


def _transfer(analysis: Analysis) -> Iterator[Finding]:
    device = analysis.device
    if device is None:
        return
    rows = [row for row in device.copies if copy_direction(row.name) == "HtoD"]
    count, moved = sum(row.count for row in rows), sum(row.num_bytes for row in rows)
    pageable = [row for row in rows if "Pageable" in row.name]  # as NVIDIA names it
    steps = analysis.window.num_steps
    in_copies = sum(row.seconds for row in device.copies)
    exposed = device.copy_alone_s * sum(row.seconds for row in rows) / in_copies if in_copies else 0.0
    seconds = analysis.lost_s("transfer")
    evidence = [
        f"{count / steps:.0f} copies to the device per step, {size(moved / steps)}",
        f"device idle for them: {_loss(analysis, seconds)}; only copying: {duration(exposed / steps)}",
    ]
    unpinned = sum(row.num_bytes for row in pageable)
    if unpinned >= max(_LARGE_COPY_BYTES * steps, moved / 2):
        id, seconds = "transfer/pageable", seconds + exposed
        message = f"{size(unpinned / steps)} per step are copied from pageable memory, and the host waits."
    elif count / steps > _MANY_COPIES and moved and moved / count < _SMALL_COPY_BYTES:
        id = "transfer/many-small"
        message = (
            f"{count / steps:.0f} small copies to the device per step cost their calls, not their bytes."
        )
    elif moved >= _LARGE_COPY_BYTES * steps and any("Pinned" in row.name for row in rows):
        id = "transfer/blocking"
        message = "The batch is pinned, and the host still waits for its copy before it launches anything."
    else:
        return
    if seconds >= WORTH * analysis.window.span_s:
        yield _finding(analysis, id, seconds, message, evidence, phase="transfer")


def _host(analysis: Analysis) -> Iterator[Finding]:
    device = analysis.device
    if device is None:
        return
    span_s = analysis.window.span_s
    waiting, other = analysis.lost_s("sync"), analysis.lost_s("other")
    launching = float(device.idle.by_phase(LAUNCHED).sum())
    if waiting >= WORTH * span_s:
        yield _finding(
            analysis,
            "host/sync-in-step",
            waiting,
            "The host waits for a value of the device in the step; the device is then idle until it is fed.",
            [f"device idle after waits of the host: {_loss(analysis, waiting)}"],
            phase="sync",
        )
    if launching >= _LAUNCH_BOUND * span_s:
        by_phase = device.idle.by_phase(LAUNCHED)[list(LAUNCHING)] / analysis.window.num_steps
        parts = zip(("forward", "backward", "optimizer"), by_phase.tolist(), strict=True)
        yield _finding(
            analysis,
            "host/launch-bound",
            launching,
            f"The device is idle {share(launching / span_s)} of the time while the host launches "
            "the next operations: they are too small for it.",
            [
                ", ".join(f"idle in {name} {duration(each)} per step" for name, each in parts),
                f"{device.num_kernels / analysis.window.num_steps:,.0f} kernels per step, "
                f"{duration(device.compute_s / max(1, device.num_kernels))} each",
                "the profiler itself slows the host: without it this is less",
            ],
        )
    if other >= WORTH * span_s:
        yield _finding(
            analysis,
            "host/python-in-step",
            other,
            "The device is idle while Python runs outside of any operator.",
            [f"device idle meanwhile: {_loss(analysis, other)}"],
            advice="Move this work out of the step, to workers or to every N steps"
            + (
                "."
                if len(analysis.trace.python)
                else "; profile with with_stack=True to see which lines it is."
            ),
            remedies=(),
            phase="other",
        )


def _collectives(analysis: Analysis) -> Iterator[Finding]:
    device = analysis.device
    if device is None or device.collective_alone_s < WORTH * analysis.window.span_s:
        return
    alone, in_all = device.collective_alone_s, device.collective_s
    yield _finding(
        analysis,
        "distributed/unoverlapped-collective",
        alone,
        f"Collectives run {_loss(analysis, alone)}, with nothing computing beside them.",
        [
            f"collectives {duration(in_all / analysis.window.num_steps)} per step, "
            f"{share(1 - alone / in_all)} of it hidden behind computing",
            "waiting for a slower rank looks the same: analyze the traces of all ranks",
        ],
    )


def _precision(analysis: Analysis) -> Iterator[Finding]:
    device = analysis.device
    if device is None or device.plain_float32_s < _ALL_FLOAT32 * device.matrix_s:
        return
    computing = device.compute_s / analysis.window.span_s
    if computing < _DEVICE_BOUND or device.matrix_s < _MATRIX_SHARE * device.compute_s:
        return
    evidence = [
        f"{share(device.plain_float32_s / device.matrix_s)} of matrix kernels' time in float32 without "
        "tensor cores",
        f"computing {share(computing)} of the time",
    ]
    if device.capability >= 7:
        yield _finding(
            analysis,
            "device/amp-off",
            _AMP_SAVES * device.compute_s,
            "The device is what the run waits for, and its tensor cores do nothing: matrices are float32.",
            [*evidence, f"cost assumed, not measured: {share(_AMP_SAVES)} of computing"],
            advice=""
            if device.capability >= 8
            else "Run forward under torch.autocast('cuda', dtype=torch.float16) with a GradScaler.",
            remedies=("autocast-bf16",) if device.capability >= 8 else (),
        )
    if device.capability >= 8:
        yield _finding(
            analysis,
            "device/tf32-off",
            _TF32_SAVES * device.compute_s,
            "float32 matrix products run in full precision on a device that knows TF32.",
            [*evidence, f"cost assumed, not measured: {share(_TF32_SAVES)} of computing"],
        )


_RULES: Final[tuple[Callable[[Analysis], Iterator[Finding]], ...]] = (
    _input,
    _transfer,
    _host,
    _collectives,
    _precision,
)
