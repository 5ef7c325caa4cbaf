"""``input/per-sample-conversion`` in source: a fitted scaler transforms one sample at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from hotloop.audit.hit import hit
from hotloop.audit.module import chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "input/per-sample-conversion"
_SCALER: Final = re.compile(r"(^|[._])(\w*scaler|\w*normalizer|pca|imputer|\w*encoder)$", re.I)


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of scaler.transform() in the code of one sample, where the tree uses scikit-learn."""
    if not tree.mentions("sklearn"):
        return
    for dataset in tree.datasets:
        for call in dataset.sample_calls():
            owner = chain(call.func).removesuffix(".transform")
            if chain(call.func).endswith(".transform") and _SCALER.search(owner):
                yield hit(
                    ID,
                    dataset.module,
                    call,
                    "medium",
                    f"{owner}.transform() runs for every sample: scikit-learn checks and copies its input at "
                    "each call, which costs far more than the arithmetic.",
                    "Transform the whole array once, in __init__, or write (x - mean) * (1 / scale) with "
                    "arrays kept in the dataset.",
                )
                break
