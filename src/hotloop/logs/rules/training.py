"""``numerics/`` and ``cadence/``: losses that run away, and what the clock shows between the lines."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.findings import Finding
from hotloop.logs.log import Log
from hotloop.logs.pauses import Pause
from hotloop.logs.rates import restarts
from hotloop.logs.streams import Floats, Stream

# Losses


_LEAST_LOSSES = 40
_DIVERGED = 3.0


def losses(log: Log) -> Iterator[Finding]:
    """Non-finite losses; a loss that ends far above its best and still rises."""
    if log.read.num_non_finite:
        yield _non_finite(log)
    else:
        yield from _diverged(log)


def _non_finite(log: Log) -> Finding:
    line, step = log.read.non_finite[0]
    at = f" at step {step:,.0f}" if step is not None and np.isfinite(step) else ""
    count, total = log.read.num_non_finite, max(log.read.num_losses, log.read.num_non_finite)
    return log.finding(
        "numerics/non-finite-loss",
        f"The loss is not finite{at} (line {line:,}): what is trained after it is worthless.",
        (f"{count:,} of {total:,} losses in the log are NaN or infinite",),
        line,
        severity="high",
        share=count / total,
        data={"count": count, "first_step": step, "first_line": line},
    )


def _diverged(log: Log) -> Iterator[Finding]:
    found = log.column("loss")
    if found is None:
        return
    stream, column = found
    losses = column[np.isfinite(column)]
    if len(losses) < _LEAST_LOSSES or (losses <= 0).any():
        return
    medians = np.array([np.median(part) for part in np.array_split(losses, 10)])
    best = int(np.argmin(medians))
    ratio = float(medians[-1] / medians[best])
    if ratio < _DIVERGED or best == 0 or len(medians) - best < 3 or medians[-1] < medians.max():
        return
    line = stream.columns["line"][np.flatnonzero(np.isfinite(column))[(best + 1) * len(losses) // 10]]
    yield log.finding(
        "numerics/loss-diverged",
        f"The loss diverged: it ends {ratio:.1f} times above its best stretch and is still rising.",
        (f"median loss {medians[best]:.4g} in its best tenth ({best + 1} of 10), {medians[-1]:.4g} last",),
        line,
        severity="high",
        share=(9 - best) / 10,
        data={"best": float(medians[best]), "last": float(medians[-1])},
    )


# Pauses


#: Shares of the run that a sensible cadence takes anyway (as in ``diagnose.limits``).
_FREE = {"evaluation": 0.05, "checkpoint": 0.02}


def pauses(log: Log) -> Iterator[Finding]:
    """Evaluation and checkpoints against the time the log covers."""
    span = log.read.pauses.span_s
    for kind, free in _FREE.items():
        pause, whole = log.read.pauses.kinds.get(kind), span
        if pause is None or not whole:
            pause, whole = stated(log, kind)
        if pause is None or whole < 10:
            continue
        share = min(0.99, pause.seconds / whole)
        if share <= 2 * free:
            continue
        verb = "Evaluation takes" if kind == "evaluation" else "Writing checkpoints takes"
        rarer = share * (1 - free) / free / (1 - share)
        other = "on a part of the data" if kind == "evaluation" else "write in the background"
        yield log.finding(
            f"cadence/{kind}",
            f"{verb} {units.share(share)} of the time: {_times(pause.count)}, "
            f"{units.duration(pause.seconds / pause.count)} each.",
            (f"{units.duration(pause.seconds)} of the {units.duration(whole)} the log covers",),
            pause.line,
            advice=f"Run it less often: every {rarer:.0f} times as many steps leave it {units.share(free)}, "
            f"or {other}.",
            share=share - free,
            data={"count": pause.count, "seconds": pause.seconds},
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def stated(log: Log, kind: str) -> tuple[Pause | None, float]:
    """Durations of a kind that the log states itself, and of training and them together."""
    found = [(stream, column) for stream in log.read.streams if (column := stream.get(kind)) is not None]
    series = log.series
    if found:
        stream, column = max(found, key=lambda item: item[0].num_rows)
        good = np.flatnonzero(np.isfinite(column))
        values, line = column[good], stream.columns["line"][good[0]]
    else:
        own = [s for s in log.read.streams if s.bar and s.mode == "evaluation" and kind == "evaluation"]
        values = np.concatenate([_lengths(s) for s in own]) if own else np.zeros(0)
        line = own[0].columns["line"][0] if own else 0.0
    if not len(values) or values.sum() <= 0 or series is None or series.time_s is None:
        return None, 0.0
    trained = float(series.time_s[-1]) if len(series.time_s) else 0.0
    inside = series.stream.get("clock") is not None  # a clock goes on during evaluation, a bar's does not
    whole = trained if inside else trained + float(values.sum())
    pause = Pause(
        count=len(values), seconds=float(values.sum()), longest_s=float(values.max()), line=int(line)
    )
    return pause, max(whole, pause.seconds)


def _lengths(stream: Stream) -> Floats:
    """How long each run of a bar took: its last elapsed time before it starts again."""
    elapsed = stream.columns["elapsed"]
    ends = np.append(restarts(stream, stream.columns["step"]) - 1, len(elapsed) - 1)
    lengths: Floats = elapsed[ends]
    return lengths[np.isfinite(lengths)]
