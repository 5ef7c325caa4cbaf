"""The rate of training, from whatever a file has: printed rates, step times, counters against a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from hotloop.logs.averages import Verdict, blocks, judged, reconstructed, resolution_s
from hotloop.logs.meanings import PHASE_ROLES, Floats, Ints, Stream

_SAMPLES: Final = {"img", "image", "imgs", "images", "sample", "samples", "examples", "ex", "clip", "frames"}
_AS_PRINTED: Final = "rates as printed"


@dataclass(frozen=True, kw_only=True)
class Series:
    """[n] rates over [n] steps. ``time_s`` since the first row where the file has a clock.

    ``how`` says where the rate comes from. ``printed`` is the rate as printed where that was no rate of now.
    """

    step: Floats
    rate: Floats
    line: Floats
    unit: str
    how: str
    time_s: Floats | None
    stream: Stream
    verdict: Verdict = "unknown"
    printed: Floats | None = None

    @property
    def undated(self) -> bool:
        """Whether these are rates as printed, and the file has no clock to hold them against."""
        return self.how == _AS_PRINTED and self.time_s is None


def rates(streams: Sequence[Stream]) -> Series | None:
    """The best series of a file, None where nothing tells a rate."""
    found = [series for stream in streams if stream.mode == "train" for series in _of_stream(stream)]
    return max(found, key=_worth, default=None)


def _worth(series: Series) -> tuple[bool, bool, float, float]:
    """Many rows first, then what was printed in the log itself, then what needs least inference."""
    order = ("samples/s", "steps/s", "tokens/s", "epochs/h")
    rows = len(series.rate)
    return (rows >= 6, not series.stream.bar, np.log2(min(rows, 64) + 1) // 2, -order.index(series.unit))


def _of_stream(stream: Stream) -> list[Series]:
    numbered = any(stream.get(role) is not None for role in ("step", "epoch", "samples", "clock", "elapsed"))
    if len(stream) < (2 if numbered else 8):  # a few numbers in prose are no series
        return []
    if stream.bar:
        return [series for series in (_of_bar(stream),) if series is not None]
    found = []
    for role, unit in (("sample_rate", "samples/s"), ("rate", "steps/s"), ("token_rate", "tokens/s")):
        values = stream.get(role)
        if values is not None:
            found.append(_printed(stream, values, unit))
    times = stream.get("time")
    if times is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            if by_epochs(stream):
                found.append(_series(stream, 3600.0 / times, "epochs/h", "epoch times as printed"))
            else:
                found.append(_series(stream, 1.0 / times, "steps/s", "step times as printed"))
    if not found:
        counted = _counted(stream)
        found += [counted] if counted is not None else []
    return [series for series in found if len(series.rate)]


def _series(stream: Stream, rate: Floats, unit: str, how: str, at: Ints | None = None) -> Series:
    """Rates of some rows, by default of all that have one."""
    at = np.flatnonzero(np.isfinite(rate) & (rate > 0)) if at is None else at
    rate = rate[at] if len(rate) != len(at) else rate
    clock = seconds(stream)
    return Series(
        step=steps(stream)[at],
        rate=rate,
        line=stream.columns["line"][at],
        unit=unit,
        how=how,
        time_s=clock[at] - clock[0] if clock is not None else None,
        stream=stream,
    )


def by_epochs(stream: Stream) -> bool:
    """Whether a line stands for an epoch: epochs are counted, and no steps."""
    return stream.get("step") is None and stream.get("epoch") is not None


def _printed(stream: Stream, values: Floats, unit: str) -> Series:
    """A printed rate, replaced by the rate of now where it is an average since some start."""
    series = _series(stream, values, unit, _AS_PRINTED)
    counter = stream.get("step")
    if counter is None:
        counter = stream.get("epoch")
    good = np.isfinite(values) & (values > 0)
    n = (counter if counter is not None else np.arange(1.0, len(values) + 1))[good]
    clock = seconds(stream)
    verdict = judged(series.rate, n, clock[good] if clock is not None else None)
    if verdict not in ("cumulative", "constant-numerator"):
        return replace(series, verdict=verdict)
    now = reconstructed(series.rate, n, verdict, epochs=by_epochs(stream))
    keep = np.isfinite(now) & (now > 0)
    rebuilt = _series(stream, now[keep], unit, "printed averages, rebuilt", np.flatnonzero(good)[keep])
    return replace(rebuilt, verdict=verdict, printed=series.rate)


def steps(stream: Stream) -> Floats:
    """[n] steps since the first epoch; the epoch, or the row, where steps are not counted."""
    step, epoch = stream.get("step"), stream.get("epoch")
    if step is None:
        counter = stream.get("samples")
        step = counter if counter is not None else epoch
    if step is None:
        return np.arange(1.0, len(stream.columns["line"]) + 1) * stream.stride
    again, filled = restarts(stream, step), _filled(step)
    rises = np.diff(filled)
    usual = float(np.median(rises[rises > 0])) if (rises > 0).any() else np.inf
    # A fall to something well above the beginning is a run that was resumed, no new epoch.
    begins = filled[again] <= max(4 * usual, filled[0])
    return unwrapped(step, again[begins], stream.get("total"))


def restarts(stream: Stream, counter: Floats) -> Ints:
    """Rows at which a counter starts again: it falls, or is full again on another line."""
    filled = _filled(counter)
    again = np.diff(filled) < 0
    total = stream.get("total")
    if stream.bar and total is not None:
        again |= (np.diff(filled) == 0) & (filled[1:] == total[1:]) & (np.diff(stream.columns["line"]) > 0)
    return np.flatnonzero(again).astype(np.int64) + 1


def unwrapped(counter: Floats, again: Ints, total: Floats | None = None) -> Floats:
    """A counter that starts again at some rows as one that goes on."""
    filled = _filled(counter)
    lasts = filled[again - 1]
    if total is not None:
        lasts = np.fmax(lasts, total[again - 1])
    added = np.zeros(len(filled))
    added[again] = lasts
    return np.asarray(filled + np.cumsum(added), float)


def _filled(values: Floats) -> Floats:
    """NaN replaced by the value before."""
    good = np.isfinite(values)
    index = np.maximum.accumulate(np.where(good, np.arange(len(values)), 0))
    return np.where(np.isfinite(values[index]), values[index], 0.0)


def seconds(stream: Stream) -> Floats | None:
    """[n] seconds of the stream's clock, without the jumps of midnight; None without one."""
    clock = stream.get("clock")
    if clock is None:
        elapsed = stream.get("elapsed")
        if elapsed is None:
            return None
        return unwrapped(elapsed, restarts(stream, elapsed))
    filled = _filled(clock)
    jumps = np.diff(filled, prepend=filled[:1])
    midnight = (jumps < -43200) & (filled < 4e8 * 3)
    return np.asarray(filled + 86400.0 * np.cumsum(midnight), float)


def _counted(stream: Stream) -> Series | None:
    """Steps against the clock, over blocks long enough for the clock's resolution."""
    clock = seconds(stream)
    count = stream.get("samples")
    unit = "samples/s" if count is not None else "steps/s"
    count = count if count is not None else stream.get("step")
    if clock is None or count is None or len(clock) < 3:
        return None
    keep = blocks(clock, resolution_s(stream.columns.get("clock", clock)))
    if len(keep) < 2:
        return None
    done, took = np.diff(_filled(count)[keep]), np.diff(clock[keep])
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = done / took
    good = (done > 0) & (took > 0)
    return _series(stream, rate[good], unit, "steps counted against the clock", keep[1:][good])


def _of_bar(stream: Stream) -> Series | None:
    """A progress bar's counts against its own elapsed seconds, per run of the bar."""
    columns = stream.columns
    count, elapsed = columns.get("step"), columns.get("elapsed")
    if count is None or elapsed is None or len(count) < 2:
        return None
    unit = "samples/s" if stream.unit in _SAMPLES else "steps/s"
    again = restarts(stream, count)
    position, clock = unwrapped(count, again, stream.get("total")), unwrapped(elapsed, again)
    keep = blocks(clock, 1.0)
    if len(keep) >= 4:
        done, took = np.diff(position[keep]), np.diff(clock[keep])
        good = (done > 0) & (took > 0)
        at, rate = keep[1:][good], done[good] / took[good]
        how = "counts of the progress bar against its clock"
    else:
        printed = columns["bar_rate"]
        at = np.flatnonzero(np.isfinite(printed) & (printed > 0))
        rate, how = printed[at], "rates as the progress bar printed them"
    return _series(stream, rate, unit, how, at) if len(at) else None


# Times that are no step's, told by all rows


_LEAST_TIMES: Final = 8
#: A step cannot take longer than the clock shows; whole seconds may halve what it shows of short ones.
_IMPOSSIBLE: Final = 1.6


def settle(stream: Stream) -> None:
    """Drop a ``time`` that cannot be a step's, and the phases beside it: the rate is then counted."""
    times = stream.get("time")
    if stream.mode != "train" or stream.bar or times is None:
        return
    at = np.flatnonzero(np.isfinite(times))
    clock = seconds(stream)
    count = steps(stream) if stream.get("step") is not None else stream.get("epoch")
    if len(at) <= _LEAST_TIMES:
        return
    if clock is None or count is None:
        wrong = _since_start(times[at])
        columns = {"elapsed": times} if wrong and stream.get("elapsed") is None else {}
    else:
        done, passed, columns = np.diff(count[at]), np.diff(clock[at]), {}
        good = (done > 0) & (passed > 0)
        taken = times[at[1:]][good] * done[good] / passed[good]
        wrong = len(taken) >= _LEAST_TIMES and float(np.median(taken)) > _IMPOSSIBLE
    if wrong:
        for role in ("time", *PHASE_ROLES):
            stream.columns.pop(role, None)
        stream.columns.update(columns)


def _since_start(times: Floats) -> bool:
    """Whether times rise with every row from near nothing, with each epoch perhaps."""
    rises = np.diff(times)
    usual = float(np.median(rises))
    if not usual > 0 or times[0] >= 3 * usual or np.mean(rises > 0) < 0.9:
        return False
    return bool(np.mean((rises > 0) | (times[1:] < 3 * usual)) > 0.98)
