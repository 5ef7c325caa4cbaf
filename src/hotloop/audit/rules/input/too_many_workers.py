"""``input/too-many-workers`` in source: one worker for each core of the machine, in each process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "input/too-many-workers"
_COUNTS: Final = frozenset(["os.cpu_count", "multiprocessing.cpu_count", "psutil.cpu_count"])


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where num_workers is exactly the machine's count of processors."""
    for loader in tree.loaders:
        node = loader.given.get("num_workers")
        value = loader.module.value(node) if node is not None else None
        if isinstance(value, ast.Call) and loader.module.dotted(value.func) in _COUNTS:
            yield hit(
                ID,
                loader.module,
                loader.call,
                "low",
                f"num_workers is {ast.unparse(value)}: every processor of the machine, also those that a "
                "container or a scheduler does not give to this job, and as many again for each GPU's "
                "process.",
                "Use len(os.sched_getaffinity(0)) less 1 or 2, divided by the processes on the machine.",
            )
