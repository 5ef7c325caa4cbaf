"""Copies from the host to the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from hotloop.audit.loaders import Loader, batch_moves, region_loader
from hotloop.audit.module import Module
from hotloop.audit.patterns import Hit, Rule, at, each_loader, each_region, every_step, gives
from hotloop.audit.program import Program, uses_cuda
from hotloop.audit.regions import Region
from hotloop.source.nodes import argument, chain
from hotloop.source.values import method, value

_MAKERS: Final = frozenset(
    f"torch.{name}"
    for name in ("zeros", "ones", "full", "rand", "randn", "randint", "arange", "linspace", "empty", "eye")
)
_PINNED_BASES: Final = (
    "dict", "list", "tuple", "NamedTuple", "UserDict", "Mapping", "Sequence", "BatchEncoding"
)  # fmt: skip
_NOT_PINNED: Final = "PyTorch pins only tensors, mappings, sequences and objects with a pin_memory() method."


def _moved(program: Program, region: Region, call: ast.Call) -> bool:
    """``torch.zeros(...).to(device)`` in a file that uses CUDA."""
    module = region.module
    made = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(made, ast.Call) or module.dotted(made.func) not in _MAKERS or argument(made, "device"):
        return False
    name = chain(call.func).rpartition(".")[2]
    target = ast.unparse(call.args[0]) if call.args else ""
    moves = name == "cuda" or (name == "to" and ("cuda" in target or target.endswith("device")))
    return moves and uses_cuda(module)


def _moves(program: Program, region: Region, *, pinned: bool) -> list[ast.Call]:
    """Copies to the device of batches that the loop's loader surely pins, or surely does not."""
    loader = region_loader(program.loaders, region)
    known = loader is not None and loader.constant("pin_memory", False) is pinned
    return list(batch_moves(region)) if known else []


def _blocking(program: Program, region: Region) -> list[ast.Call]:
    """The loop's loader pins its batches, and their copies do not say non_blocking."""
    moves = _moves(program, region, pinned=True)
    return [call for call in moves if argument(call, "non_blocking") is None]


def _pageable(program: Program) -> Iterator[Hit]:
    """The loop's loader surely does not pin, and its batches are moved to CUDA."""
    for region in program.regions:
        moves = _moves(program, region, pinned=False)
        loader = region_loader(program.loaders, region)
        if not moves or loader is None or "cuda" not in region.module.text.text:
            continue
        hopeful = [call for call in moves if gives(region.module, call, "non_blocking", True)]
        words = "non_blocking=True has no effect on such memory: the" if hopeful else "The"
        yield at(
            region.module,
            (hopeful or moves)[0],
            "low",
            f"The loader (line {loader.call.lineno}) does not pin its batches. {words} host waits for each "
            "copy to the device, which goes through a buffer of the driver.",
        )


def _pin_no_effect(program: Program, loader: Loader) -> str:
    """The collate_fn surely returns an object of a class of the tree without pin_memory(), or the dataset
    holds modules that batch_size=None hands through.
    """
    if loader.constant("batch_size", 1) is None:
        pins = "pin_memory" in loader.given and loader.constant("pin_memory", False) is not False
        return _handed_through(program, loader) if pins else ""
    collate = loader.given.get("collate_fn")
    if loader.constant("pin_memory", False) is not True or not isinstance(collate, ast.Name):
        return ""
    target = program.target(loader.module, collate)
    returned = target[0].nodes(ast.Return, target[1]) if target else []
    names = {_class_name(target[0], node.value) for node in returned} if target else set()
    owners = program.owners(names.pop()) if len(names) == 1 else []
    node = owners[-1][1] if owners else None
    if node is None or node.decorator_list or method(node, "pin_memory") is not None:
        return ""
    bases = [chain(base).rpartition(".")[2] for base in node.bases]
    if any(base in _PINNED_BASES or program.owners(base) for base in bases):
        return ""
    return f"pin_memory=True has no effect: batches are {node.name} objects, and {_NOT_PINNED}"


def _handed_through(program: Program, loader: Loader) -> str:
    """Without a batch size a sample is pinned as it is: an nn.Module never is."""
    given = [one for one in program.datasets if one.getitem is not None]
    dataset = program.dataset(loader) or (given[0] if len(given) == 1 else None)
    if dataset is None or dataset.getitem is None:
        return ""
    returned = [one.value for one in dataset.module.nodes(ast.Return, dataset.getitem)]
    if not any(isinstance(one, ast.Name | ast.Subscript | ast.Call) for one in returned):
        return ""
    for node in dataset.module.nodes(ast.Name, dataset.node):
        for home, owner in program.owners(node.id):
            module = any(home.dotted(base) == "torch.nn.Module" for base in owner.bases)
            if module and method(owner, "pin_memory") is None:
                return (
                    f"pin_memory has no effect on samples of {dataset.name} ({dataset.module.name}:"
                    f"{node.lineno}): a {owner.name} is an nn.Module, and {_NOT_PINNED}"
                )
    return ""


def _class_name(module: Module, node: ast.expr | None) -> str:
    made = value(module, node) if isinstance(node, ast.Name) else node
    return made.func.id if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) else ""


RULES: Final[dict[str, Rule]] = {
    "transfer/blocking": each_region("low", _blocking),
    "transfer/created-on-host": every_step("low", when=_moved),
    "transfer/pageable": _pageable,
    "transfer/pin-no-effect": each_loader("medium", _pin_no_effect),
}
