"""What a module consists of, by what the objects hold: methods of a class of the script's may do anything.

The order, and that each comes once, are those of ``torch.nn.Module.named_modules`` and ``parameters``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hotloop.state.stored import attributes


def named_modules(root: Any) -> Iterator[tuple[str, Any]]:
    """(path, module) of a module and everything below it; the path of the first is empty."""
    todo, seen = [("", root)], set[int]()
    while todo:
        path, module = todo.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        below = [(f"{path}.{name}" if path else name, one) for name, one in _items(module, "_modules")]
        todo += reversed(below)


def modules(root: Any) -> Iterator[Any]:
    """A module and everything below it."""
    return (module for _, module in named_modules(root))


def parameters(root: Any) -> Iterator[Any]:
    """The parameters of a module and of everything below it."""
    return _tensors(root, "_parameters")


def buffers(root: Any) -> Iterator[Any]:
    """The buffers of a module and of everything below it."""
    return _tensors(root, "_buffers")


def _tensors(root: Any, kind: str) -> Iterator[Any]:
    seen = set[int]()
    for module in modules(root):
        for _, tensor in _items(module, kind):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield tensor


def _items(module: Any, kind: str) -> list[tuple[str, Any]]:
    held = attributes(module).get(kind)
    if isinstance(held, dict):
        items = list(dict.items(held))
    elif held is not None and type(held).__module__.startswith("torch."):  # of a scripted module
        items = list(held.items())
    else:
        items = []
    return [(name, one) for name, one in items if one is not None]
