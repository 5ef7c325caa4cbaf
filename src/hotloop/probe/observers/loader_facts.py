"""What a DataLoader was built with, and what its dataset is."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from typing import Any, Final

from hotloop.probe.observers.open_files import open_file
from hotloop.state.identity import code_place, name_of
from hotloop.state.stored import attributes

_PLAIN: Final = (
    "batch_size", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "drop_last",
    "timeout", "in_order",
)  # fmt: skip
_MAX_ATTRIBUTES: Final = 64
_MAX_ITEMS: Final = 256
_MAX_TRANSFORMS: Final = 32


def loader_facts(loader: Any, module: Any, length: Callable[[Any], int]) -> dict[str, Any]:
    """The settings in effect and the dataset's facts, as the ``loader`` note carries them.

    Of a loader that is no DataLoader some are None: unknown.
    """
    own = not isinstance(loader, module.DataLoader)
    iterable = isinstance(loader.dataset, module.IterableDataset)
    facts: dict[str, Any] = {"class": name_of(type(loader)), "own": own}
    facts.update((name, getattr(loader, name, None)) for name in _PLAIN)
    sampler, batch_sampler = getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)
    started, given = start_method(loader), getattr(loader, "multiprocessing_context", None)
    facts.update(
        shuffle=type(sampler).__name__ == "RandomSampler" if sampler is not None else None,
        sampler=name_of(type(sampler)) if sampler is not None else None,
        batch_sampler=name_of(type(batch_sampler)) if batch_sampler is not None else None,
        collate_fn=name_of(getattr(loader, "collate_fn", None)),
        worker_init_fn=name_of(getattr(loader, "worker_init_fn", None)),
        multiprocessing_context=started if given is not None or started != "fork" else None,
        generator=getattr(loader, "generator", None) is not None,
        iterable=iterable,
        dataset=dataset_facts(loader.dataset, sampler, iterable=iterable, length=length),
    )
    if own and not loader._auto_collation:
        facts["drop_last"] = None  # nobody asks for it
    return facts


def start_method(loader: Any) -> str:
    """How its workers start: "fork", "forkserver" or "spawn". What the script has yet to set stays open."""
    context = getattr(loader, "multiprocessing_context", None)
    ask = getattr(context, "get_start_method", multiprocessing.get_start_method)
    method: str = ask(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    return method


def dataset_facts(
    dataset: Any, sampler: Any, *, iterable: bool, length: Callable[[Any], int] = len
) -> dict[str, Any]:
    """Class, place of ``__getitem__`` (or ``__iter__``), length and rough size of the arrays a dataset
    holds.
    """
    inner = own_dataset(dataset)
    method = "__iter__" if iterable else "__getitem__"
    file, line = code_place(getattr(type(inner), method, None))
    return {
        "class": type(dataset).__name__,
        "module": type(dataset).__module__,
        "inner_class": type(inner).__name__,
        "inner_module": type(inner).__module__,
        "len": None if iterable else _length(dataset, sampler, length),
        "file": file,
        "line": line,
        # Rough bytes of tensors, arrays and lists that are attributes: nothing but sizes is read.
        "bytes": sum(_size(value, 2) for value in list(attributes(inner).values())[:_MAX_ATTRIBUTES]),
        "transforms": transforms_of(inner),
        "open_file": open_file(dataset),
    }


def own_dataset(dataset: Any) -> Any:
    """The user's own dataset, below Subset, ConcatDataset and their like."""
    for _ in range(8):
        below = getattr(dataset, "dataset", None) if type(dataset).__module__.startswith("torch.") else None
        if below is None:
            break
        dataset = below
    return dataset


def transforms_of(dataset: Any) -> list[str]:
    """Names of what a dataset changes its samples with, going by its attributes' names; composed ones taken
    apart.
    """
    names: dict[str, None] = {}
    left = _transforms_in(dataset)
    for _ in range(2 * _MAX_TRANSFORMS):
        if not left:
            break
        one = left.pop(0)
        parts = _transforms_in(one)
        if parts:
            left = parts + left
        else:
            names[str(name_of(one))] = None
    return list(names)[:_MAX_TRANSFORMS]


def _transforms_in(obj: Any) -> list[Any]:
    held = attributes(obj)
    found: list[Any] = []
    for name, value in list(held.items())[:_MAX_ATTRIBUTES]:
        if type(name) is str and any(word in name.lower() for word in ("transform", "augment")):
            found += value if type(value) in (list, tuple) else [value]
    if not found and type(obj).__module__ == "torch.nn.modules.container":
        found = list((held.get("_modules") or {}).values())
    return [one for one in found[:_MAX_TRANSFORMS] if callable(one) and one is not obj]


def _size(value: Any, depth: int) -> int:
    kind = type(value)
    if kind.__name__ == "Tensor" and kind.__module__ == "torch":
        return int(value.numel() * value.element_size()) if "strided" in str(value.layout) else 0
    if kind.__name__ == "ndarray" and kind.__module__ == "numpy":
        return int(value.nbytes)
    if kind in (str, bytes, bytearray, int, float):
        return sys.getsizeof(value)
    if kind in (list, tuple, dict) and depth and value:
        items = list(value.values()) if kind is dict else value
        step = max(1, len(items) // _MAX_ITEMS)
        sample = items[::step]
        return sys.getsizeof(value) + sum(_size(item, depth - 1) for item in sample) * len(items) // len(
            sample
        )
    return 0


def _length(dataset: Any, sampler: Any, length: Callable[[Any], int]) -> int | None:
    """The length of a dataset where torch's own sampler asks for it."""
    if not type(sampler).__module__.startswith("torch."):
        return None
    try:
        return length(dataset)
    except (TypeError, NotImplementedError):
        return None
