"""Two loss trajectories held beside each other: equal bits, float noise, the same course, or not.

Seeded runs over the same batches are compared point by point, from the first loss that differs: rounding
begins small (measured: 5e-7 for another memory layout or thread count, 4e-4 under bfloat16), a change begins
at once (3e-5 and more for a frozen bias or 2 % more learning rate). A lower precision keeps the course within
a small part of what the run learned: 8e-3 for bfloat16, against 0.29 and more for wrong labels.

Unseeded runs are compared with the spread of several baselines. A check that could not have seen a change
says so: where the loss hardly moves, every candidate looks alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from hotloop.compare.items import Check
from hotloop.compare.rounding import as_rounding
from hotloop.compare.run import TENSOR_FLOAT, Trace
from hotloop.measure.steps import Floats

#: The course: smoothed losses stay within this part of the loss, and of what the run learned.
COURSE: Final = 0.02
OF_LEARNED: Final = 0.05
#: Nothing is told where the run learned less than this, relative to the loss where that is above 1.
LEARNED: Final = 1e-3
LEAST: Final = 8
#: The first losses that differ part by rounding alone, before training multiplies it: twenty times what was
#: measured in float32 and bfloat16; the formats between have 8 times bfloat16's digits. Coarsest first.
SUDDEN: Final = {"bfloat16": 1e-2, "float16": 1e-3, TENSOR_FLOAT: 1e-3}
SUDDEN_FLOAT32: Final = 1e-5
SUDDEN_FIRST: Final = 3
#: How many times the difference between repeats of the base is still noise.
REPEATED: Final = 3.0
#: Unseeded runs: smoothing, the losses they need, how many times the baselines' own spread is still noise.
EMA: Final = 0.1
FIRST: Final = 30
SPREAD: Final = {2: 3.0}
SPREAD_MORE: Final = 2.0
#: The spread says something where the run learned this many times the allowed distance.
POWER: Final = 10.0


def seeded(base: Trace, candidate: Trace, repeats: Sequence[Trace] = ()) -> Check:
    """Compare point by point; both runs have seen the same batches, and so have ``repeats`` of the base.

    What the base does not repeat of itself (atomics on a GPU) is allowed to the candidate three times over.
    Where one of them is perturbed, the candidate may part from the base as that does.
    """
    count = min(len(base.losses), len(candidate.losses))
    if count < LEAST:
        return Check(outcome="not-measured", words=f"{count} losses in common, {LEAST} are needed")
    a, b = base.losses[:count], candidate.losses[:count]
    bad = np.flatnonzero(~np.isfinite(b))
    if len(bad) and np.isfinite(a[bad[0]]):
        return Check(outcome="differs", words=f"not finite from loss {bad[0] + 1} on, the base's is")
    if np.array_equal(base.exact[:count], candidate.exact[:count]):
        if count > 1 and np.ptp(np.nan_to_num(a)) == 0:
            words = f"all {count:,} losses are the same number: nothing could be told from them"
            return Check(outcome="indistinct", words=words, distance=0.0)
        return Check(outcome="bit-equal", words=f"{count:,} losses bit-equal", distance=0.0)
    known = [one for one in repeats if len(one.losses) >= count]
    others, moved = ([o.losses[:count] for o in known if o.perturbed is which] for which in (False, True))
    finite = np.all(np.isfinite([a, b, *others, *moved]), axis=0)
    if finite.sum() < LEAST:
        return Check(outcome="not-measured", words="too few finite losses to compare")
    at = int(np.flatnonzero(base.exact[:count] != candidate.exact[:count])[0])
    begins = f"first difference at loss {at + 1}: {a[at]:.9g} and {b[at]:.9g}"
    sudden = sudden_limit(base.precision) if base.precision == candidate.precision else None
    a, b, others, moved = a[finite], b[finite], [o[finite] for o in others], [o[finite] for o in moved]
    if moved and sudden:
        scale = max(1.0, float(np.abs(a).max()))
        seen = max(COURSE * scale, OF_LEARNED * learned_at_least(a))
        if found := as_rounding(a, b, moved, least=sudden * scale, seen=seen, begins=begins):
            return found
    return _close(a, b, others, int(finite[:at].sum()), begins, sudden=sudden)


def sudden_limit(precision: Sequence[str]) -> float:
    """How far rounding alone parts two losses at once, relative, of runs at this one precision."""
    told = " ".join(precision)
    return next((limit for kind, limit in SUDDEN.items() if kind in told), SUDDEN_FLOAT32)


def _close(
    a: Floats, b: Floats, others: Sequence[Floats], at: int, begins: str, *, sudden: float | None
) -> Check:
    """Two trajectories that are equal until ``at``, and repeats of the first.

    ``sudden`` is the relative limit on the first losses that differ, None where precisions differ.
    """
    scale, learned = max(1.0, float(np.abs(a).max())), learned_at_least(a)

    def apart_in(view: Callable[[Floats], Floats]) -> tuple[float, float]:
        """The largest difference, and how much of one the repeats allow."""
        mine, other, *rest = (view(one) for one in (a, b, *others))
        noise = max((float(np.abs(mine - one).max(initial=0.0)) for one in rest), default=0.0)
        return float(np.abs(mine - other).max(initial=0.0)), REPEATED * noise

    apart, noise = apart_in(smoothed)
    widest, limit = max(COURSE * scale, noise), max(OF_LEARNED * learned, noise)
    first, first_noise = apart_in(lambda losses: losses[at : at + SUDDEN_FIRST])
    at_once = sudden is None or first > max(sudden * scale, first_noise)
    if apart > widest and at_once:
        words = f"apart by {apart:.2g} (smoothed), noise is at most {widest:.2g}; {begins}"
        return Check(outcome="differs", words=words, distance=apart, limit=widest)
    if sudden is not None and at_once:
        words = f"{first:.1e} apart at once: more than rounding, at the same precision; {begins}"
        return Check(outcome="differs", words=words, distance=first, limit=sudden * scale)
    # Would a change that matters have stood out? Half of what was learned, for a learning rate 1.5 times as
    # high, would.
    if apart <= widest and learned < (LEARNED if apart <= limit else COURSE) * scale:
        words = (
            f"not distinguishable: the losses are within {apart:.1e}, but the loss moved by no more than "
            f"{max(0.0, learned):.1e}, so a change would not show; compare longer runs, or from the start"
        )
        return Check(outcome="indistinct", words=words, distance=apart)
    part = f"{apart / learned:.1%} of what was learned" if learned > 0 else "nothing was learned"
    if apart <= min(limit, widest):
        words = f"within {apart:.1e} (smoothed), {part}; {begins}"
        return Check(outcome="close", words=words, distance=apart, limit=min(limit, widest))
    words = f"apart by {apart:.2g} (smoothed), {part}; {begins}"
    if at_once:
        return Check(outcome="differs", words=words, distance=apart, limit=limit)
    words = f"{words}; it begins as rounding does, which training may multiply, or a small change"
    return Check(outcome="not-measured", words=words, distance=apart, limit=limit)


def unseeded(baselines: Sequence[Trace], candidate: Trace) -> Check:
    """Compare with the spread of two or more baselines that differ in their seeds alone."""
    count = min(len(candidate.losses), *(len(one.losses) for one in baselines))
    if count < 2 * FIRST:
        words = f"{count} losses in common: a spread of baselines needs {2 * FIRST}"
        return Check(outcome="not-measured", words=words)
    if not np.isfinite(candidate.losses[:count]).all():
        return Check(outcome="differs", words="the candidate's losses are not all finite")
    courses = [ema(one.losses[:count]) for one in baselines]
    moving = _moving(np.mean(courses, axis=0))
    learned = learned_at_least(np.mean([one.losses[:count] for one in baselines], axis=0))
    pairs = [(a, b) for i, a in enumerate(courses) for b in courses[:i]]
    spread = max(_rms(a - b, moving) for a, b in pairs)
    if not spread:
        return Check(outcome="not-measured", words="all baselines are the same, bit for bit: no other seeds")
    allowed = SPREAD.get(len(courses), SPREAD_MORE) * spread
    mine = ema(candidate.losses[:count])
    distance = min(_rms(mine - course, moving) for course in courses)
    told = f"{len(courses)} baselines over {moving.stop - moving.start:,} losses"
    if distance > allowed:
        words = f"outside the band of {told}: {distance:.2g} from the nearest, the band allows {allowed:.2g}"
        return Check(outcome="differs", words=words, distance=distance, limit=allowed)
    short = moving.stop - moving.start < FIRST
    if short or learned < POWER * allowed:
        why = (
            "the loss reached its floor too soon for a change to show"
            if short
            else f"the band allows {allowed:.2g}, much of the {max(0.0, learned):.2g} that was learned"
        )
        words = f"not distinguishable: inside the band of {told}, but {why}; seeded runs tell finer"
        return Check(outcome="indistinct", words=words, distance=distance, limit=allowed)
    words = (
        f"inside the band of {told}: {distance:.2g} from the nearest; what moves the loss by less than "
        f"{allowed:.2g} would not show, seeded runs tell finer"
    )
    return Check(outcome="close", words=words, distance=distance, limit=allowed)


def learned_at_least(losses: Floats) -> float:
    """How far the loss moved from its first to its last fifth, less two standard errors; may be negative."""
    part = max(4, len(losses) // 5)
    first, last = losses[:part], losses[-part:]
    error = np.sqrt(first.var(ddof=1) / part + last.var(ddof=1) / part)
    return float(abs(first.mean() - last.mean()) - 2 * error)


def smoothed(values: Floats) -> Floats:
    """Means over a window of a twentieth of the run, at least 10 losses (all, of fewer)."""
    width = min(len(values), max(10, len(values) // 20))
    return np.convolve(values, np.full(width, 1 / width), mode="valid")


def ema(values: Floats) -> Floats:
    """Exponential moving average, weight 0.1, started at the mean of the first ten."""
    out = np.empty_like(values)
    level = float(values[:10].mean())
    for i, value in enumerate(values):
        level += EMA * (float(value) - level)
        out[i] = level
    return out


def _moving(course: Floats) -> slice:
    """From the tenth loss until all but a twentieth of the way is made: later every run looks alike."""
    start = 10
    end = float(course[-max(1, len(course) // 10) :].mean())
    total = abs(float(course[start]) - end)
    far = np.flatnonzero(np.abs(course[start:] - end) > 0.05 * total)
    return slice(start, start + int(far[-1]) + 1 if len(far) else start + 1)


def _rms(values: npt.NDArray[np.float64], where: slice) -> float:
    return float(np.sqrt(np.mean(values[where] ** 2)))


# Proof by running: the losses of a short changed run beside those of an unmodified one.


#: Updates of each run: enough for what a rewriting gets wrong at once, or at the second turn of a branch.
STEPS: Final = 32


@dataclass(frozen=True, kw_only=True)
class SameLosses:
    """``same`` is None where nothing can be told."""

    same: bool | None
    words: str


def same_losses(
    base: Trace | None, candidate: Trace | None, again: Callable[[bool], Trace | None], *, exact: bool
) -> SameLosses:
    """The losses of an unmodified run beside those of a changed one; ``exact``: the same bits are wanted.

    ``again`` gives another unmodified run, with True a perturbed one, and is called where losses differ: a
    change may round as far as training makes of a last bit; what does not repeat its own tells nothing.
    """
    if base is None or candidate is None or not base.recorded or not candidate.recorded:
        return SameLosses(same=None, words="no losses were seen")
    found = seeded(base, candidate)
    if found.outcome == "bit-equal" or (not exact and found.outcome == "close"):
        return SameLosses(same=True, words=found.words)
    if not exact and found.distance and (moved := again(True)) is not None and moved.perturbed:
        found = seeded(base, candidate, [moved])
        if found.outcome == "close":
            return SameLosses(same=True, words=found.words)
    if found.outcome in ("indistinct", "not-measured") and not (exact and found.distance):
        return SameLosses(same=None, words=found.words)
    repeat = again(False)
    own = seeded(base, repeat) if repeat is not None and repeat.recorded else None
    if repeat is None or own is None or own.outcome in ("differs", "not-measured"):
        return SameLosses(same=None, words="the unmodified run does not give the same losses twice")
    if own.outcome != "bit-equal":
        found = seeded(base, candidate, [repeat])
        told = {"differs": False, "indistinct": None, "not-measured": None}
        return SameLosses(same=told.get(found.outcome, True), words=found.words)
    return SameLosses(same=False, words=found.words)
