"""What checkpoints hold: path, size, and of every entry its place, dtype and shape; never its values."""

from __future__ import annotations

import os
from types import FrameType
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from hotloop.hooks.wrapping import RAISED
from hotloop.probe import batches
from hotloop.state.stored import attribute

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

_MAX_ENTRIES: Final = 20_000
#: Notes of one run; a script that saves at every step says nothing new.
_MAX_NOTES: Final = 200


def layout(saved: Any) -> list[list[Any]]:
    """``[path, dtype, shape]`` of tensors and ``[path, type, null]`` of everything else, in order."""
    found: list[list[Any]] = []
    for path, value in batches.leaves(saved, _MAX_ENTRIES):
        shape, dtype = batches.shape(value), attribute(value, "dtype")
        if dtype is not None and shape is not None:
            found.append([path, str(dtype).replace("torch.", ""), list(shape)])
        else:
            found.append([path, type(value).__name__, None])
    return found


class Checkpoints:
    """Notes every ``torch.save``."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._count = 0
        self._layouts: set[int] = set()

    def install(self, observer: str) -> None:
        """Observe ``torch.save``."""
        probe = self._probe
        also = (probe.torch.serialization,)
        probe.hooks.around(probe.torch, "save", observer, self._begin, self._end, also=also, unseen=True)

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        saved = args[0] if args else kwargs.get("obj")
        target = args[1] if len(args) > 1 else kwargs.get("f")
        path = target if isinstance(target, (str, os.PathLike)) else getattr(target, "name", None)
        return (saved, path) if isinstance(path, (str, os.PathLike)) and self._count < _MAX_NOTES else None

    def _end(self, token: Any, start: int, stop: int, result: Any) -> None:
        saved, path = token
        if result is RAISED:
            return
        self._count += 1
        entries = layout(saved)
        digest = crc32(repr(entries).encode("utf-8", "backslashreplace"))
        new = digest not in self._layouts
        self._layouts.add(digest)
        self._probe.note(
            "checkpoint",
            path=os.path.abspath(path),
            layout=digest,
            entries=entries if new else None,
            updates=self._probe.updates,
        )
