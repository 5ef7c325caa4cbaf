"""Whether a result is its receiver's alone: what others hold too, the script may change in another place."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from hotloop.remedy.live import packed

_PLAIN: Final = (int, float, str, bytes, complex, type(None))


def is_shared(result: Any) -> bool:
    """Whether anybody but the caller, and what it holds itself, refers to a part of a result that could be
    changed in place. ``result`` is a local variable of the caller's and nothing else.
    """
    return _more(sys.getrefcount(result), result) or any(_more(*one) for one in _inside(result))


def overlaps(result: Any, others: Iterable[Any]) -> bool:
    """Whether arrays and tensors of a result lie in the memory of others."""
    numpy = sys.modules.get("numpy")
    lie = [view for part in packed.mutable(result) if (view := _memory(part)) is not None]
    if numpy is None or not lie:
        return False
    there = [view for other in others if (view := _memory(other)) is not None]
    return any(numpy.may_share_memory(one, other) for one in lie for other in there)


def _more(count: int, value: Any) -> bool:
    if not (type(value) in (list, dict) or packed.has_memory(value) or packed.is_image(value)):
        return False
    if count > _ALONE:
        return True
    base = getattr(value, "base", None) if packed.is_array(value) else None
    return base is not None and value.flags.writeable and sys.getrefcount(base) > _ALONE_BASE


def _inside(value: Any, depth: int = 0) -> Iterator[tuple[int, Any]]:
    """What containers hold, with how often each is referred to but for that its holder does so twice."""
    if type(value) not in (list, tuple, dict) or depth > sys.getrecursionlimit() // 8:
        return
    parts = value.values() if type(value) is dict else value
    if all(isinstance(one, _PLAIN) for one in parts):
        return
    twice = Counter(map(id, parts))
    for part in parts:
        if not twice[id(part)]:
            continue
        yield sys.getrefcount(part) - _ALONE_INSIDE + _ALONE - twice.pop(id(part)) + 1, part
        yield from _inside(part, depth + 1)


def _memory(value: Any) -> Any:
    """An array over the memory of an array or a tensor; None of anything else."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return None if value.dtype.hasobject else value
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    if value.layout is not torch.strided or value.device.type != "cpu" or not value.numel():
        return None
    try:
        whole = value.detach().untyped_storage()
        return numpy.asarray(torch.tensor([], dtype=torch.uint8).set_(whole)) if numpy is not None else None
    except (RuntimeError, TypeError, NotImplementedError):  # subclasses that hold no memory of their own
        return None


def _counted() -> tuple[int, int, int]:
    """How often what is nobody else's is referred to here: alone, in a list, and as the base of an array."""

    class Array:
        def __init__(self, base: Any) -> None:
            self.base = base

    def seen(result: Any) -> int:
        return sys.getrefcount(result)

    result = [0]
    within = [[0]]
    inside = [sys.getrefcount(part) for part in within]
    view = Array([0])
    base = getattr(view, "base", None)
    return seen(result), inside[0], sys.getrefcount(base)


_ALONE, _ALONE_INSIDE, _ALONE_BASE = _counted()
