"""Whether two samples are the same, leaf by leaf, and what differs in words."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop.feed.layout import ARRAY, PICKLED, TENSOR, Encoded, Field, encode
from hotloop.feed.tree import paths


def snapshot(sample: Any) -> Encoded:
    """A sample as it is now, with bytes of its own: a later change in place does not reach them.

    Raises:
        Exception: whatever pickling a leaf of an unknown type raises.
    """
    encoded = encode(sample)
    return Encoded(encoded.layout, [payload.copy() for payload in encoded.payloads])


def differences(first: Encoded, second: Encoded) -> list[str]:
    """One line per leaf that is not the same bit for bit; empty when the samples are equal."""
    before, after = first.layout, second.layout
    if before.structure != after.structure:
        return ["has another structure"]
    found = []
    for position, name in enumerate(paths(before.structure)):
        word = _difference(first, second, position)
        if word:
            found.append(f"{name}: {word}" if name else word)
    return found


def _difference(first: Encoded, second: Encoded, position: int) -> str:
    before, after = first.layout.fields[position], second.layout.fields[position]
    if before.kind != after.kind:
        return f"a {before.kind} first, then a {after.kind}"
    if before.dtype != after.dtype:
        return f"{before.dtype} first, then {after.dtype}"
    if before.shape != after.shape:
        return f"shape {before.shape} first, then {after.shape}"
    old, new = first.payloads[position], second.payloads[position]
    if np.array_equal(old, new):
        return ""
    if before.kind == PICKLED and _equal(old, new):
        return ""
    return _amount(before, old, new)


def _equal(old: NDArray[np.uint8], new: NDArray[np.uint8]) -> bool:
    """Equality by the objects' own word, as pickles of equal objects may differ."""
    try:
        first, second = pickle.loads(old.tobytes()), pickle.loads(new.tobytes())  # nosec B301
        if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
            return bool(torch.equal(first, second))
        return bool(first == second)
    except Exception:  # the objects' own: what cannot be compared is not the same
        return False


def _amount(field: Field, old: NDArray[np.uint8], new: NDArray[np.uint8]) -> str:
    if field.kind not in (TENSOR, ARRAY) or old.nbytes != new.nbytes:
        return "another value"
    num_elements = int(np.prod(field.shape)) if field.shape else 1
    width = old.nbytes // num_elements
    changed = int((old.reshape(num_elements, width) != new.reshape(num_elements, width)).any(axis=1).sum())
    return f"{changed:,} of {num_elements:,} elements differ"
