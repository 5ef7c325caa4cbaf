"""``input/listing-per-sample``: a folder is listed again for every sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hotloop.audit.datasets import is_fixed
from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "input/listing-per-sample"
_LISTS: Final = frozenset(["os.listdir", "os.scandir", "os.walk", "glob.glob", "glob.iglob"])


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where the folder listed for a sample does not depend on the sample."""
    for dataset in tree.datasets:
        length = dataset.module.method(dataset.node, "__len__")
        calls = [*dataset.sample_calls()]
        calls += [c for named in _LISTS for c in dataset.module.calls_to(named)
                  if length is not None and dataset.module.function_of(c) is length]  # fmt: skip
        for call in calls:
            name = dataset.module.dotted(call.func)
            if name in _LISTS and call.args and is_fixed(dataset, call.args[0]):
                where = dataset.module.function_of(call)
                each = "sample" if where is not length else "len()"
                yield hit(
                    ID,
                    dataset.module,
                    call,
                    "medium",
                    f"{name} lists the same folder again for every {each}.",
                    "List it once in __init__ and sort the names: the order of a listing is not fixed.",
                )
                break
