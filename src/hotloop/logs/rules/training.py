"""``numerics/`` and ``cadence/``: losses that run away, and what the clock shows between the lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hotloop import stats, units
from hotloop.findings import Finding, Place
from hotloop.logs.averages import may_fall_by_construction
from hotloop.logs.log import Log, Part, severity_of
from hotloop.logs.meanings import Floats, Stream
from hotloop.logs.pauses import Pause
from hotloop.logs.rates import by_epochs, restarts
from hotloop.logs.words import changed_along

# Losses


_LEAST_LOSSES = 40
_DIVERGED = 3.0


def losses(log: Log) -> Iterator[Finding]:
    """Non-finite losses; a loss that ends far above its best and still rises."""
    if not log.read.num_non_finite:
        yield from _diverged(log)
        return
    line, step = log.read.non_finite[0]
    at = f" at step {step:,.0f}" if step is not None and np.isfinite(step) else ""
    count, total = log.read.num_non_finite, max(log.read.num_losses, log.read.num_non_finite)
    yield log.finding(
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
        times = "once" if pause.count == 1 else f"{pause.count:,} times"
        rarer = share * (1 - free) / free / (1 - share)
        other = "on a part of the data" if kind == "evaluation" else "write in the background"
        yield log.finding(
            f"cadence/{kind}",
            f"{verb} {units.share(share)} of the time: {times}, "
            f"{units.duration(pause.seconds / pause.count)} each.",
            (f"{units.duration(pause.seconds)} of the {units.duration(whole)} the log covers",),
            pause.line,
            advice=f"Run it less often: every {rarer:.0f} times as many steps leave it {units.share(free)}, "
            f"or {other}.",
            share=share - free,
            data={"count": pause.count, "seconds": pause.seconds},
        )


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


# ``trend/``: throughput that falls, and numbers that do not mean what they say.


#: What the last level must lose against the best one before it.
_DECAY = 0.10
#: In fewer rows a wandering rate is not told from levels by its autocorrelation: a fall must stand out more.
_SHORT = 100


def decay(log: Log) -> Iterator[Finding]:
    """The rate ends lower than it was, and does not come back."""
    series, levels, starts = log.series, log.levels, log.starts
    if series is None or len(levels) < 2:
        return
    last = levels[-1]
    best = int(np.argmax(levels[:-1]))
    if last > levels[best] * (1 - _DECAY) or levels[best] <= 0:
        return
    if len(series.rate) - starts[-1] < 3:
        return
    flat = np.log(np.repeat(levels, np.diff([*starts, len(series.rate)])))
    spread = stats.robust_deviation(np.log(series.rate) - flat, around=0.0)
    if len(series.rate) < _SHORT and np.log(levels[best] / last) < 2 * spread:
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


def _advice(along: tuple[str, ...]) -> str:
    joined = " ".join(along)
    if "data time" in joined:
        return "Look at what feeds the loop there: storage, a cache that ran full, workers that died."
    if "memory" in joined:
        return "Look at what is kept from step to step there: memory grows where the rate falls."
    return "Look at what happened at that step, and for what grows with every step: lists, kept losses."


def average(log: Log) -> Iterator[Finding]:
    """A printed rate that is an average since some start, where the rate of now is another one."""
    series = log.series
    if series is None or series.printed is None:
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


# ``distributed/`` and what else only several files, or several ranks of one file, can tell.


#: As in ``diagnose.limits``: ranks that differ by less are even.
_UNEVEN: Final = 0.10
_LEAST_ROWS: Final = 5


@dataclass(frozen=True, kw_only=True)
class _Rank:
    """Seconds of a step of one rank: in all, its own (without collectives) and its wait for data, or NaN."""

    rank: int
    step_s: float
    own_s: float
    data_s: float
    where: Place | None = None


def uneven_ranks(logs: Sequence[Log], traces: Sequence[Part]) -> Iterator[Finding]:
    """The rank that the others wait for; the wait for data is its cause where that is most of it."""
    ranks = [*_of_logs(logs), *_of_traces(traces)]
    if len(ranks) < 2 or len({rank.rank for rank in ranks}) < len(ranks):
        return
    own, data = np.array([rank.own_s for rank in ranks]), np.array([rank.data_s for rank in ranks])
    step = float(np.median([rank.step_s for rank in ranks]))
    more, waits = (values.max() - float(np.median(values)) for values in (own, data))
    if waits > _UNEVEN * step and 2 * waits > more:
        name, words, more, values = "unbalanced-input", "waits longer for its data", waits, data
    elif more > _UNEVEN * step:
        name, words, values = "straggler", "takes longer over each step", own
    else:
        return
    worst = ranks[int(np.argmax(values))]
    share = float(more / max(rank.step_s for rank in ranks))
    yield Finding(
        id=f"distributed/{name}",
        message=f"Rank {worst.rank} {words} than the others, by {units.duration(more)}.",
        advice="Look at that rank's machine, device and share of the data: the others wait for it.",
        evidence=tuple(
            f"rank {ranks[i].rank}: step {units.duration(ranks[i].own_s)} without collectives"
            + (f", data {units.duration(ranks[i].data_s)}" if np.isfinite(ranks[i].data_s) else "")
            for i in np.argsort(-values)[:8]
        ),
        cost_s_per_step=float(more),
        share=share,
        severity=severity_of(share),
        where=worst.where,
        rank=worst.rank,
    )


def _of_logs(logs: Sequence[Log]) -> Iterator[_Rank]:
    seen: set[tuple[str, int]] = set()
    for log in logs:
        for stream in log.trained():
            rank = stream.rank if stream.rank is not None else log.rank
            times, data = stream.get("time"), stream.get("data_time")
            if times is None or len(times) < _LEAST_ROWS or rank is None or (log.file, rank) in seen:
                continue
            seen.add((log.file, rank))
            step_s = float(np.nanmedian(times))
            yield _Rank(
                rank=rank,
                step_s=step_s,
                own_s=step_s,
                data_s=float(np.nanmedian(data)) if data is not None else float("nan"),
                where=Place(file=log.file, line=int(stream.columns["line"][0])),
            )


def _of_traces(traces: Sequence[Part]) -> Iterator[_Rank]:
    for part in traces:
        phases = {phase.name: phase.s_per_step for phase in part.phases}
        if part.source.rank is not None and phases:
            step_s = sum(phases.values())
            yield _Rank(
                rank=part.source.rank,
                step_s=step_s,
                own_s=step_s - phases.get("collective", 0.0),
                data_s=phases.get("data_wait", 0.0),
            )
