"""``input/prefetch-past-epoch``: the workers may hold more batches than an epoch has."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

from hotloop.audit.hit import hit
from hotloop.audit.loaders import Loader
from hotloop.audit.module import Module, chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "input/prefetch-past-epoch"
_TENSORS: Final = frozenset(
    ["torch.zeros", "torch.ones", "torch.rand", "torch.randn", "torch.empty", "torch.arange"]
)


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where workers, prefetch_factor, batch_size and the number of samples are all literals."""
    for loader in tree.loaders:
        if loader.role == "evaluation":
            continue
        workers = loader.constant("num_workers", 0)
        ahead = loader.constant("prefetch_factor", 2)
        batch = loader.constant("batch_size", 1)
        if not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in (workers, ahead, batch)):
            continue
        if (
            "sampler" in loader.given
            or "batch_sampler" in loader.given
            or "prefetch_factor" not in loader.given
        ):
            continue
        samples = _num_samples(tree, loader)
        batches = -(-samples // batch) if samples else 0
        if 0 < batches < workers * ahead:
            yield hit(
                ID,
                loader.module,
                loader.call,
                "low",
                f"{workers} workers x prefetch_factor={ahead} may hold {workers * ahead} batches; an epoch "
                f"has {batches} ({samples} samples, {batch} each): all of it lies in memory twice.",
                f"prefetch_factor=2 with at most {max(1, batches // 2)} workers keeps the same loop fed.",
            )


def _num_samples(tree: Tree, loader: Loader) -> int:
    """The length of the loader's dataset, where the source gives it as a literal; 0 where it does not."""
    node = loader.given.get("dataset")
    module = loader.module
    made = module.value(node) if isinstance(node, ast.Name | ast.Attribute) else node
    if not isinstance(made, ast.Call):
        return 0
    if module.dotted(made.func) == "torch.utils.data.TensorDataset" and made.args:
        return _first_size(module, made.args[0])
    name = chain(made.func).rpartition(".")[2]
    classes = [dataset for dataset in tree.datasets if dataset.name == name]
    length = classes[0].module.method(classes[0].node, "__len__") if len(classes) == 1 else None
    if length is None or not isinstance(length.body[-1], ast.Return):
        return 0
    return _count(classes[0].module.constant(length.body[-1].value))


def _first_size(module: Module, node: ast.expr) -> int:
    made = module.value(node) if isinstance(node, ast.Name | ast.Attribute) else node
    if not isinstance(made, ast.Call) or module.dotted(made.func) not in _TENSORS or not made.args:
        return 0
    first = made.args[0]
    return _count(module.constant(first.elts[0] if isinstance(first, ast.Tuple) and first.elts else first))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
