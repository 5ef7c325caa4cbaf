"""``trend/``: throughput that falls, and numbers that do not mean what they say."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop import stats, units
from hotloop.findings import Finding
from hotloop.logs.averages import may_fall_by_construction
from hotloop.logs.log import Log
from hotloop.logs.rates import Series, by_epochs
from hotloop.logs.words import changed_along

#: What the last level must lose against the best one before it.
_DECAY = 0.10
#: In fewer rows a wandering rate is not told from levels by its autocorrelation: a fall must stand out more.
_SHORT = 100


def check(log: Log) -> Iterator[Finding]:
    """Decay, and averages read as rates."""
    series = log.series
    if series is not None:
        yield from _average(log, series)
        yield from _decay(log, series)


def _decay(log: Log, series: Series) -> Iterator[Finding]:
    """The rate ends lower than it was, and does not come back."""
    levels, starts = log.levels, log.starts
    if len(levels) < 2:
        return
    last = levels[-1]
    best = int(np.argmax(levels[:-1]))
    if last > levels[best] * (1 - _DECAY) or levels[best] <= 0:
        return
    if len(series.rate) - starts[-1] < 3:
        return
    if len(series.rate) < _SHORT and np.log(levels[best] / last) < 2 * _spread(log, series):
        return
    if series.verdict == "unknown" and series.undated and may_fall_by_construction(series.rate):
        return  # the log does not tell whether the rate falls, or how the number is made
    turn = starts[best + 1]
    unit, at = series.unit, f"step {series.step[turn]:,.0f}"
    along = changed_along(log, series, turn)
    # Seconds per unit of work beyond those of the best level, as a share of all seconds.
    took = 1.0 / series.rate
    share = float((took[turn:] - 1.0 / levels[best]).clip(0).sum() / took.sum())
    yield log.finding(
        "trend/throughput-decay",
        f"Throughput falls from {units.rate(levels[best])} to {units.rate(last)} {unit} "
        f"(-{units.share(1 - last / levels[best])}) at {at} on.",
        (
            f"levels: {', '.join(units.rate(v) for v in levels[:8])} {unit} from steps "
            f"{', '.join(f'{series.step[i]:,.0f}' for i in starts[:8])}",
            f"{series.how}, {len(series.rate):,} of them",
            *along,
        ),
        series.line[turn],
        advice=_advice(along),
        share=share,
        data={"before": levels[best], "after": last, "step": float(series.step[turn]), "unit": unit},
    )


def _spread(log: Log, series: Series) -> float:
    """Robust deviation of the logarithm of the rate from its levels."""
    sizes = np.diff([*log.starts, len(series.rate)])
    return stats.robust_deviation(np.log(series.rate) - np.log(np.repeat(log.levels, sizes)), around=0.0)


def _advice(along: tuple[str, ...]) -> str:
    joined = " ".join(along)
    if "data time" in joined:
        return "Look at what feeds the loop there: storage, a cache that ran full, workers that died."
    if "memory" in joined:
        return "Look at what is kept from step to step there: memory grows where the rate falls."
    return "Look at what happened at that step, and for what grows with every step: lists, kept losses."


def _average(log: Log, series: Series) -> Iterator[Finding]:
    """A printed rate that is an average since some start, where the rate of now is another one."""
    if series.printed is None:
        return
    printed = series.printed
    first, last = float(printed[: max(1, len(printed) // 10)].mean()), float(printed[-1])
    now = float(np.median(series.rate[-max(3, len(series.rate) // 5) :]))
    kind = series.verdict
    wide = float(printed.max() / printed.min())
    if wide < 1.1 and abs(last / now - 1) < 0.1:
        return
    said = "an average over everything since a start, and no rate of now"
    if kind == "constant-numerator":
        since = "one epoch over all the time since the first began"
        if not by_epochs(series.stream):
            since = "the whole epoch over the time since its start"
        said = f"the size of {since}, which falls by construction"
    rate = series.rate
    yield log.finding(
        "trend/misleading-metric",
        f"The printed {series.unit} are {said}: they go from {units.rate(first)} to {units.rate(last)}, "
        f"the rate itself is about {units.rate(now)} at the end.",
        (
            f"{len(printed):,} printed rates, between {units.rate(float(printed.min()))} and "
            f"{units.rate(float(printed.max()))}",
            f"the rate behind them: median {units.rate(float(np.median(rate)))}, "
            f"{units.rate(float(np.quantile(rate, 0.1)))} to "
            f"{units.rate(float(np.quantile(rate, 0.9)))} in 80 % of the intervals",
        ),
        series.line[0] if len(series.line) else 1,
        advice="Divide the samples since the last print by the time since the last print.",
        data={"kind": kind, "printed_first": first, "printed_last": last, "rate": now},
    )
