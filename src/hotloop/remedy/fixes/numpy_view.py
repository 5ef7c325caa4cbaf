"""Write and read the elements of a tensor through a numpy view of its memory.

No live form: an element access looks the same to torch whoever made the tensor, and only the source says that
its numbers are plain ones.
"""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="numpy-view",
    summary="Write and read the elements of a tensor through a numpy view of its memory.",
    effect="exact",
    alters=(
        "a value that torch refuses to store raises numpy's error, or becomes infinite; "
        "one that is not finite and goes to integers raises numpy's error"
    ),
    answers=(
        "cadence/evaluation",
        "host/python-in-step",
        "host/recomputed-targets",
        "input/slow-collate",
        "input/slow-sample",
        "input/repeated-work",
    ),
    where_named=True,
    source="hotloop.remedy.source.elements:numpy_view",
    rewrites=True,
    words="before the loop view = tensor.numpy(), in it view[i, j] = number; or vectorize the loop",
)
