"""Whether two runs were fed alike and left alike: samples, values of batches, parameters, buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from hotloop.compare.items import Check
from hotloop.compare.run import Batches, Trace
from hotloop.record.recording import Note


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
            at, same = int(wrong[0]) + 1, _same_passes(a, b)
            whole = (
                "" if same is None else f"; {'each pass has' if same else 'and not'} the same samples in all"
            )
            words = f"other samples from batch {at} on ({len(wrong):,} of {count:,} batches){whole}"
            return Check(outcome="differs", words=words, at=at)
    return Check(outcome="equal", words=f"the same samples in the same order, {total:,} batches")


def content(base: Trace, candidate: Trace) -> Check:
    """The values in every batch, as they were handed to the script.

    What the candidate left out cannot be compared; it may be left out where nothing had read it.
    """
    pairs = _pairs(base, candidate)
    total = sum(min(a.num_batches, b.num_batches) for a, b in pairs)
    differ: list[tuple[int, str]] = []
    what = "batches" if pairs and pairs[0][0].loader else "calls of the module"
    for name, mine, other in (
        (n, crc, b.leaves[n]) for a, b in pairs for n, crc in a.leaves.items() if n in b.leaves
    ):
        count = min(len(mine), len(other))
        wrong = np.flatnonzero(mine[:count] != other[:count])
        if len(wrong):
            differ.append((int(wrong[0]) + 1, f"{name!r} differs in {len(wrong):,} of {count:,} {what}"))
    if differ:
        at = min(at for at, _ in differ)
        words = "; ".join(words for _, words in differ[:3])
        return Check(outcome="differs", words=f"{words}, from batch {at} on", at=at)
    if not total:
        return Check(outcome="not-measured", words="no batch whose values could be read")
    gone = [(name, name in a.unread) for a, b in pairs for name in a.leaves if name not in b.leaves]
    if missing := [name for name, unread in gone if not unread]:
        words = f"{', '.join(missing)} not in the candidate's batches: whether anything read it is not known"
        return Check(outcome="not-measured", words=words)
    without = f"; without {', '.join(name for name, _ in gone)}, which nothing read" if gone else ""
    return Check(outcome="equal", words=f"the same values, {total:,} {what}{without}")


def other_samples(base: Trace, candidate: Trace, baselines: Sequence[Trace]) -> bool:
    """Whether whole passes hold other samples than the base's, where those of all baselines hold the same."""
    for number, (a, b) in enumerate(_pairs(base, candidate)):
        runs = [_same_passes(a, one.loaders[number]) for one in baselines if number < len(one.loaders)]
        if runs and all(runs) and _same_passes(a, b) is False:
            return True
    return False


def _pairs(base: Trace, candidate: Trace) -> list[tuple[Batches, Batches]]:
    return list(zip(base.loaders, candidate.loaders, strict=False))


def _same_passes(a: Batches, b: Batches) -> bool | None:
    """Whether each whole pass holds the same samples, in whatever order; None where there is no whole one."""
    pairs = list(zip(_pass_sums(a), _pass_sums(b), strict=False))
    return all(mine == other for mine, other in pairs) if pairs else None


def _pass_sums(batches: Batches) -> list[tuple[int, int]]:
    """(batches, sum of indices modulo 2^16) of every pass but the last, which may not be whole."""
    count = min(len(batches.order), len(batches.first))
    starts = np.flatnonzero(batches.first[:count])
    return [
        (int(end - start), int(batches.sums[start:end].sum()) & 0xFFFF) for start, end in pairwise(starts)
    ]


def parameters(base: Trace, candidate: Trace, *, part: bool = False) -> Check:
    """Checksums of all trained parameters and buffers at the end; of a run that was to end early nothing."""
    if not base.trained or not candidate.trained:
        which = "base" if not base.trained else "candidate"
        return Check(outcome="not-measured", words=f"the {which} left no trained state")
    if None not in (base.updates, candidate.updates) and base.updates != candidate.updates:
        words = f"after {base.updates:,} and {candidate.updates:,} updates"
        # A gradient scaler leaves updates out, by what overflows at its precision.
        if part or base.precision != candidate.precision:
            return Check(outcome="not-measured", words=f"{words}: not comparable")
        return Check(outcome="differs", words=words, missed=True)
    wrong, unread, total = [], 0, 0
    for name, a, b in _trained_in_both(base.trained, candidate.trained):
        mine, other = ({item[0]: item[1:] for item in note["items"]} for note in (a, b))
        labels = dict.fromkeys([*mine, *other])
        total += len(labels)
        hidden = {one for one in labels if None in (mine.get(one, [0])[0], other.get(one, [0])[0])}
        apart = [one for one in labels if one not in hidden and mine.get(one) != other.get(one)]
        if apart and a["updates"] != b["updates"]:
            words = f"{name} was read after {a['updates']:,} and {b['updates']:,} updates: not comparable"
            return Check(outcome="not-measured", words=words)
        wrong += [f"{name} {label}" for label in apart]
        unread += len(hidden)
    if wrong:
        more = f" and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
        words = f"{wrong[0]}{more} of {total:,} parameters and buffers differ"
        return Check(outcome="differs", words=words)
    if len(base.trained) != len(candidate.trained):
        words = f"{', '.join(base.trained)} in the base and {', '.join(candidate.trained)} in the candidate"
        return Check(outcome="not-measured", words=f"not the same was trained: {words}")
    if unread:
        words = f"the values of {unread:,} of {total:,} parameters and buffers could not be read"
        return Check(outcome="not-measured", words=words)
    return Check(outcome="equal", words=f"{total:,} parameters and buffers bit-equal")


def _trained_in_both(base: Mapping[str, Note], candidate: Mapping[str, Note]) -> list[tuple[str, Note, Note]]:
    """What was trained in both, by name, or where no name is in both by the order in which it was left."""
    if not base.keys() & candidate.keys():
        return [(name, a, b) for (name, a), b in zip(base.items(), candidate.values(), strict=False)]
    return [(name, base[name], candidate[name]) for name in base if name in candidate]
