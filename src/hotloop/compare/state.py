"""What training left in memory: parameters, buffers, generators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotloop.compare.items import Check
from hotloop.compare.trace import Trace
from hotloop.record.recording import Note


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
    for name, a, b in _pairs(base.trained, candidate.trained):
        mine, other = ({item[0]: item[1:] for item in note["items"]} for note in (a, b))
        labels = dict.fromkeys([*mine, *other])
        total += len(labels)
        hidden = {label for label in labels if _unread(mine.get(label)) or _unread(other.get(label))}
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


def _unread(facts: list[Any] | None) -> bool:
    """Whether a parameter is there, but no checksum of its values."""
    return facts is not None and facts[0] is None


def _pairs(base: Mapping[str, Note], candidate: Mapping[str, Note]) -> list[tuple[str, Note, Note]]:
    """What was trained in both, by name, or where no name is in both by the order in which it was left."""
    if not base.keys() & candidate.keys():
        return [(name, a, b) for (name, a), b in zip(base.items(), candidate.values(), strict=False)]
    return [(name, base[name], candidate[name]) for name in base if name in candidate]


def generators(base: Trace, candidate: Trace) -> str:
    """Words where random generators that began alike ended apart, "" where none did or nothing is known."""
    a, b = base.generators, candidate.generators
    names = [
        name
        for name in a
        if f"{name}_first" in a
        and a[f"{name}_first"] == b.get(f"{name}_first")
        and a[name] != b.get(name, a[name])
    ]
    return f"the generators of {' and '.join(names)} ended in another state" if names else ""
