"""``numerics/``: losses that are NaN, infinite, or run away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop.findings import Finding
from hotloop.logs.log import Log

_LEAST_LOSSES = 40
_DIVERGED = 3.0


def check(log: Log) -> Iterator[Finding]:
    """Non-finite losses; a loss that ends far above its best and still rises."""
    if log.read.num_non_finite:
        yield _non_finite(log)
    else:
        yield from _diverged(log)


def _non_finite(log: Log) -> Finding:
    line, step = log.read.non_finite[0]
    at = f" at step {step:,.0f}" if step is not None and np.isfinite(step) else ""
    count, total = log.read.num_non_finite, max(log.read.num_losses, log.read.num_non_finite)
    return Finding(
        id="numerics/non-finite-loss",
        message=f"The loss is not finite{at} (line {line:,}): what is trained after it is worthless.",
        advice="Stop; look at the batch and learning rate of that step (torch.autograd.set_detect_anomaly).",
        evidence=(f"{count:,} of {total:,} losses in the log are NaN or infinite",),
        severity="high",
        share=count / total,
        cost_s_per_step=(log.step_s or 0.0) * count / total,
        where=log.at(line),
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
    yield Finding(
        id="numerics/loss-diverged",
        message=f"The loss diverged: it ends {ratio:.1f} times above its best stretch and is still rising.",
        advice="Go back to a checkpoint before the rise; lower or warm up the learning rate, clip gradients.",
        evidence=(
            f"median loss {medians[best]:.4g} in its best tenth ({best + 1} of 10), {medians[-1]:.4g} last",
        ),
        severity="high",
        share=(9 - best) / 10,
        cost_s_per_step=(log.step_s or 0.0) * (9 - best) / 10,
        where=log.at(line),
        data={"best": float(medians[best]), "last": float(medians[-1])},
    )
