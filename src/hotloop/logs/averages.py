"""Whether a printed rate is the rate of now or an average since some start, and the rate behind an average.

Three models of a printed rate r over a counter n and a time t:

* instant: r is the steps since the last line over the time since the last line;
* cumulative: r = B n / t, everything so far over all time so far; it turns slowly and remembers every pause;
* constant numerator: r = C / t, the size of an epoch over the time since its start; it falls by construction.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from hotloop.logs.meanings import Floats, Ints

Verdict = Literal["instant", "cumulative", "constant-numerator", "unknown"]

_LEAST: Final = 6
#: Blocks of a counter against a clock hold at least this many of the clock's ticks.
_TICKS: Final = 10.0
_FIT: Final = 0.10
#: Time before training that the first line may have on top of its own, in parts of its own.
_PAUSE: Final = 0.5
#: What noise of the first line may take off.
_EARLY: Final = -0.3


def judged(rate: Floats, count: Floats, clock: Floats | None) -> Verdict:
    """Which model the rows fit; ``unknown`` where they fit none, or several alike.

    ``count`` starts again where the average does (each epoch); ``clock`` [n] seconds, where the file has one.
    """
    verdicts = []
    for run in runs(count):
        if len(run) < _LEAST:
            continue
        own_clock = clock[run] if clock is not None else None
        verdicts.append(_of_run(rate[run], count[run], own_clock))
    if not verdicts:
        return "unknown"
    names: tuple[Verdict, ...] = ("instant", "cumulative", "constant-numerator")
    return next((name for name in names if verdicts.count(name) > 0.6 * len(verdicts)), "unknown")


def reconstructed(rate: Floats, count: Floats, verdict: Verdict, *, epochs: bool = False) -> Floats:
    """[n] the rate of now behind printed averages; NaN at the first row of each run, and where the printed
    digits do not tell it.

    ``epochs``: the counter counts epochs, so a line's numerator is what passed in one of them.
    """
    now = np.full(len(rate), np.nan)
    for run in runs(count):
        r, n = rate[run], count[run]
        if len(run) < 2:
            continue
        if verdict == "cumulative":
            now[run[1:]] = np.diff(n) / np.diff(n / r)
            continue
        took, doubt = np.diff(1.0 / r), _rounding(r) / r**2
        told = took > 2 * (doubt[1:] + doubt[:-1])
        # Else the last line of a run has seen the whole epoch: only there is the printed rate true.
        done = np.diff(n if epochs else n / n[-1])
        now[run[1:][told]] = done[told] / took[told]
    return now


def _rounding(rate: Floats) -> float:
    """Half of the last digit that all rates were printed with."""
    digits = next((d for d in range(6) if np.allclose(rate, np.round(rate, d), rtol=0, atol=1e-9)), None)
    return 0.0 if digits is None else 0.5 * 10.0**-digits


def runs(count: Floats) -> list[Ints]:
    """Stretches over which a counter rises."""
    return np.split(np.arange(len(count)), np.flatnonzero(np.diff(count) <= 0) + 1)


def _of_run(rate: Floats, count: Floats, clock: Floats | None) -> Verdict:
    spread = float(rate.max() / rate.min())
    if spread < 1.05:
        return "instant"  # constant: all models say the same
    if clock is not None:
        return _by_clock(rate, count, clock)
    return "constant-numerator" if _falls_by_construction(rate, count) else "unknown"


def _by_clock(rate: Floats, count: Floats, clock: Floats) -> Verdict:
    """Compare the time each model implies between lines with the time that passed."""
    keep = blocks(clock, resolution_s(clock))
    if len(keep) < _LEAST:
        return "unknown"
    r, n, passed = rate[keep], count[keep], np.diff(clock[keep])
    errors = {
        "instant": _misfit(np.diff(n) / r[1:], passed),
        "cumulative": _misfit(np.diff(n / r), passed),
        "constant-numerator": _misfit(np.diff(1.0 / r), passed),
    }
    best, second = sorted(errors, key=lambda name: errors[name])[:2]
    if errors[best] > 2 * _FIT:
        return "unknown"
    if errors[best] * 1.5 > errors[second] and "instant" in (best, second):
        return "instant"
    return best  # type: ignore[return-value]


def blocks(clock: Floats, resolution: float) -> Ints:
    """Rows at least ten ticks of the clock apart."""
    bins = np.floor((clock - clock[0]) / (_TICKS * resolution))
    return np.flatnonzero(np.diff(bins, prepend=-1.0) > 0).astype(np.int64)


def resolution_s(clock: Floats) -> float:
    """A second for a clock of whole seconds, else a hundredth."""
    good = clock[np.isfinite(clock)]
    return 1.0 if np.array_equal(good, np.round(good)) else 0.01


def _misfit(implied: Floats, passed: Floats) -> float:
    """Robust relative spread of passed over implied time; the scale (a batch, a dataset) is free."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = passed / implied
    if not np.isfinite(ratio).all() or (ratio <= 0).any():
        good = ratio[np.isfinite(ratio) & (ratio > 0)]
        if len(good) < 0.8 * len(ratio):
            return float("inf")
        ratio = good
    logs = np.log(ratio)
    return float(np.mean(np.abs(logs - np.median(logs))))


def _falls_by_construction(rate: Floats, count: Floats) -> bool:
    """Whether 1/r grows in proportion to the counter: at its start the rate would have been infinite.

    Beside what rounding takes away, and a pause before the first line. Only where the first line counts as
    much as each: else a rate that falls would do.
    """
    for n in (count, count + 1.0, np.arange(1.0, len(rate) + 1)):
        if n[0] <= 0 or n[-1] / n[0] < 2.5 or n[0] > 1.5 * (n[1] - n[0]):
            continue
        slope, begun = np.polyfit(n, 1.0 / rate, 1, w=rate)
        apart = np.abs(rate * (slope * n + begun) - 1.0) - _rounding(rate) / rate
        early = begun / (slope * n[0])
        if slope > 0 and _EARLY <= early <= _PAUSE and np.maximum(apart, 0.0).mean() < 0.5 * _FIT:
            return True
    return False


def may_fall_by_construction(rate: Floats) -> bool:
    """Whether C / t explains a fall as well as slower epochs do: no line is faster than the last, and the
    first took no longer than what lines soon after it add, as if its time had begun at nothing."""
    took = 1.0 / rate
    added = np.diff(took)
    if len(rate) < _LEAST or (added < 0).any():
        return False
    return bool(took[0] <= 2.0 * np.median(added[: max(3, len(added) // 3)]))
