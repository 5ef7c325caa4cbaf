"""``input/device-in-dataset``: samples are moved to the GPU one by one, in ``__getitem__``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.module import Module, chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "input/device-in-dataset"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of .cuda() and .to('cuda') in the code of one sample."""
    for dataset in tree.datasets:
        call = next((c for c in dataset.sample_calls() if _moves(dataset.module, c)), None)
        if call is not None:
            yield hit(
                ID,
                dataset.module,
                call,
                "medium",
                "Every sample is moved to the GPU by itself: a copy from pageable memory for each, and "
                "CUDA cannot "
                "be used in forked workers.",
                "Return CPU tensors; move the whole batch in the training loop, with pin_memory=True.",
            )


def _moves(module: Module, call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or module.dotted(call.func):
        return False
    if call.func.attr == "cuda":
        return chain(call.func.value) != ""
    if call.func.attr != "to" or not call.args:
        return False
    value = module.constant(call.args[0])
    return isinstance(value, str) and value.startswith("cuda")
