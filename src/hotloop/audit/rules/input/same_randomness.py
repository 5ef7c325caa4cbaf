"""``input/same-randomness``: every worker, or every epoch, draws the same random numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from hotloop.audit.datasets import DatasetClass
from hotloop.audit.hit import hit
from hotloop.audit.loaders import Loader, made_class
from hotloop.audit.module import UNKNOWN, Function, Module, chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "input/same-randomness"
_GENERATORS: Final = ("numpy.random.default_rng", "numpy.random.RandomState", "random.Random")
_IN_WORKER: Final = "Make the generator in the worker, on the first sample, seeded with torch.initial_seed()."
_SEEDS: Final = frozenset(["numpy.random.seed", "random.seed", "torch.manual_seed"])


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of a worker_init_fn that seeds with a constant, or a generator made in a Dataset's __init__."""
    for loader in tree.loaders:
        given = loader.given.get("worker_init_fn")
        seed = _constant_seed(tree, loader, given) if given is not None else None
        if seed is not None:
            yield hit(
                ID,
                loader.module,
                loader.call,
                "high",
                f"worker_init_fn seeds every worker with {seed}: all workers draw the same random "
                f"numbers, and "
                "the same again at every epoch.",
                "Leave it out: PyTorch seeds torch, random and numpy in each worker; or use "
                "torch.initial_seed().",
            )
    yield from _generators(tree)


def _constant_seed(tree: Tree, loader: Loader, given: ast.expr) -> str | None:
    body: ast.AST | None = given if isinstance(given, ast.Lambda) else None
    module: Module = loader.module
    parameters = [a.arg for a in given.args.args] if isinstance(given, ast.Lambda) else []
    if isinstance(given, ast.Name):
        found = tree.target(module, ast.Call(func=given, args=[], keywords=[]))
        if found is not None:
            module, function = found
            body, parameters = function, [a.arg for a in function.args.args]
    if body is None:
        return None
    calls = [n for n in ast.walk(body) if isinstance(n, ast.Call) and module.dotted(n.func) in _SEEDS]
    for call in calls:
        value = module.constant(call.args[0]) if call.args else UNKNOWN
        names = {n.id for n in ast.walk(call) if isinstance(n, ast.Name)}
        if isinstance(value, int) and not names & set(parameters):
            return f"{ast.unparse(call.func)}({value})"
    return None


def _generators(tree: Tree) -> Iterator[Finding]:
    if tree.mentions("get_worker_info", "worker_init_fn"):
        return
    shared = {made_class(loader) for loader in tree.loaders if _has_workers(loader)}
    for dataset in (dataset for dataset in tree.datasets if dataset.name in shared):
        module = dataset.module
        init = module.method(dataset.node, "__init__")
        for call in module.calls_to(*_GENERATORS):
            attribute = _kept_as(module, call)
            if not attribute or init is None or module.function_of(call) is not init:
                continue
            if _draws(dataset.getitem, f"self.{attribute}"):
                yield hit(
                    ID,
                    module,
                    call,
                    "high",
                    f"self.{attribute} is made once and copied into every worker: all workers draw the same "
                    "random numbers, and with workers that start anew every epoch repeats them.",
                    _IN_WORKER,
                )
        yield from _of_the_module(dataset)


def _of_the_module(dataset: DatasetClass) -> Iterator[Finding]:
    """A generator made when the file is imported: forked workers draw from copies of it."""
    module = dataset.module
    for call in module.calls_to(*_GENERATORS):
        parent = module.parents.get(call)
        if not isinstance(parent, ast.Assign) or parent not in module.tree.body:
            continue
        name = chain(parent.targets[0])
        if name and any(chain(c.func).startswith(f"{name}.") for c in dataset.sample_calls()):
            yield hit(
                ID,
                module,
                call,
                "high",
                f"{name} is made when this file is imported, and each forked worker of {dataset.name} gets a "
                "copy: all workers draw the same random numbers. PyTorch seeds numpy.random's global state "
                "in workers, not generators like this.",
                _IN_WORKER,
            )


def _has_workers(loader: Loader) -> bool:
    return loader.has("num_workers") is True and loader.constant("num_workers", 0) != 0


def _kept_as(module: Module, call: ast.Call) -> str:
    parent = module.parents.get(call)
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    is_self = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
    return target.attr if isinstance(target, ast.Attribute) and is_self else ""


def _draws(getitem: Function | None, owner: str) -> bool:
    return getitem is not None and any(
        isinstance(n, ast.Attribute) and isinstance(n.value, ast.Attribute) and chain(n.value) == owner
        for n in ast.walk(getitem)
    )
