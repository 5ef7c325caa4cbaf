"""Whether two runs were fed alike: the order of samples, and what was in the batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from hotloop.compare.items import Check
from hotloop.compare.trace import Batches, Trace


def order(base: Trace, candidate: Trace) -> Check:
    """The indices of every batch, in the main process: what the sampler said."""
    pairs = _pairs(base, candidate)
    known = [(a, b) for a, b in pairs if len(a.order) and len(b.order)]
    if not known:
        why = "the loader takes no indices" if pairs and pairs[0][0].loader else "no DataLoader"
        return Check(outcome="not-measured", words=f"{why}: only the content can be compared")
    total = 0
    for a, b in known:
        count = min(len(a.order), len(b.order))
        total += count
        wrong = np.flatnonzero(a.order[:count] != b.order[:count])
        if len(wrong):
            words = f"other samples from batch {wrong[0] + 1} on ({len(wrong):,} of {count:,} batches)"
            return Check(outcome="differs", words=words + _whole(a, b), at=int(wrong[0]) + 1)
    return Check(outcome="equal", words=f"the same samples in the same order, {total:,} batches")


def content(base: Trace, candidate: Trace) -> Check:
    """The values in every batch, as they were handed to the script.

    What the candidate left out cannot be compared; it may be left out where nothing had read it.
    """
    pairs = _pairs(base, candidate)
    total, names = 0, []
    missing: list[str] = []
    spared: list[str] = []
    for a, b in pairs:
        total += min(a.num_batches, b.num_batches)
        for name, crc in a.leaves.items():
            other = b.leaves.get(name)
            if other is None:
                (spared if name in a.unread else missing).append(name)
                continue
            count = min(len(crc), len(other))
            wrong = np.flatnonzero(crc[:count] != other[:count])
            if len(wrong):
                words = f"{name!r} differs in {len(wrong):,} of {count:,} batches"
                names.append((int(wrong[0]) + 1, words))
    if names:
        at = min(at for at, _ in names)
        words = "; ".join(words for _, words in names[:3])
        return Check(outcome="differs", words=f"{words}, from batch {at} on", at=at)
    if not total:
        return Check(outcome="not-measured", words="no batch whose values could be read")
    if missing:
        words = f"{', '.join(missing)} not in the candidate's batches: whether anything read it is not known"
        return Check(outcome="not-measured", words=words)
    what = "batches" if pairs[0][0].loader else "inputs of the module"
    without = f"; without {', '.join(spared)}, which nothing read" if spared else ""
    return Check(outcome="equal", words=f"the same values, {total:,} {what}{without}")


def other_samples(base: Trace, candidate: Trace, baselines: Sequence[Trace]) -> bool:
    """Whether whole passes hold other samples than the base's, where those of all baselines hold the same."""
    for number, (a, b) in enumerate(_pairs(base, candidate)):
        runs = [_pass_sums(one.loaders[number]) for one in baselines if number < len(one.loaders)]
        mine, other = _pass_sums(a), _pass_sums(b)
        count = min(map(len, (mine, other, *runs)))
        if runs and all(one[:count] == mine[:count] for one in runs) and other[:count] != mine[:count]:
            return True
    return False


def _pairs(base: Trace, candidate: Trace) -> list[tuple[Batches, Batches]]:
    return list(zip(base.loaders, candidate.loaders, strict=False))


def _whole(a: Batches, b: Batches) -> str:
    """Whether each whole pass holds the same samples all the same."""
    sums = [_pass_sums(one) for one in (a, b)]
    count = min(len(one) for one in sums)
    if not count:
        return ""
    same = sums[0][:count] == sums[1][:count]
    return "; each pass has the same samples in all" if same else "; and not the same samples in all"


def _pass_sums(batches: Batches) -> list[tuple[int, int]]:
    """(batches, sum of indices modulo 2^16) of every pass but the last, which may not be whole."""
    count = min(len(batches.order), len(batches.first))
    starts = np.flatnonzero(batches.first[:count])
    return [
        (int(end - start), int(batches.sums[start:end].sum()) & 0xFFFF) for start, end in pairwise(starts)
    ]
