"""Who holds tensors on a stretch of memory: for messages only, it looks at every object there is."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch

_MOST: Final = 5
_DEPTH: Final = 3
_HERE: Final = str(Path(__file__).parent)


def holders(address: int, num_bytes: int) -> list[str]:
    """Variables and attributes that hold a tensor on these bytes, as one would name them; at most 5."""
    found: dict[str, None] = {}
    for one in gc.get_objects():
        if type(one) is not torch.Tensor or one.layout is not torch.strided:
            continue
        offset = one.data_ptr() - address
        if offset >= 0 and offset < num_bytes:
            for name in _names(one, _DEPTH):
                found[name] = None
        if len(found) >= _MOST:
            break
    return list(found)


def _names(value: Any, depth: int) -> Iterator[str]:
    """What leads to an object: local variables, attributes and globals, elements of named containers."""
    yield from _variables(value)
    if not depth:
        return
    for referrer in gc.get_referrers(value):
        if isinstance(referrer, types.FrameType | types.CellType | types.GeneratorType):
            continue
        if isinstance(referrer, dict):
            key = next((name for name, held in referrer.items() if held is value), None)
            owners = [one for one in gc.get_referrers(referrer) if getattr(one, "__dict__", None) is referrer]
            if owners:
                yield f"{_word(owners[0])}.{key}"
            else:
                yield from (f"{name}[{key!r}]" for name in _names(referrer, depth - 1))
        elif isinstance(referrer, list | tuple):
            place = next((number for number, held in enumerate(referrer) if held is value), 0)
            yield from (f"{name}[{place}]" for name in _names(referrer, depth - 1))
        else:
            attributes = getattr(referrer, "__dict__", {})
            key = next((name for name, held in attributes.items() if held is value), None)
            yield f"{_word(referrer)}.{key}" if key is not None else f"a {type(referrer).__name__}"


def _word(owner: Any) -> str:
    return str(getattr(owner, "__name__", None) or type(owner).__name__)


def _variables(value: object) -> Iterator[str]:
    """Local variables of the running frames, not the loader's own, that are this object."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_HERE):
            for name, held in list(frame.f_locals.items()):
                if held is value:
                    yield f"{name} in {code.co_name} ({code.co_filename}:{frame.f_lineno})"
        frame = frame.f_back
