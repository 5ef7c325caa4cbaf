"""Replace a Python loop in the step by tensor operations."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="vectorize-hint",
    summary="Replace a Python loop in the step by tensor operations.",
    effect="numeric",
    alters="another order of additions rounds differently",
    answers=("host/python-in-step",),
    words="write the loop as operations on whole tensors; there is no automatic rewrite",
)
