"""What the calls that read a sample return, and how large that is. Only on request (``hotloop memory``).

The second batch of each dataset in a process is made under a profile function: nothing is read twice, and
no random number is drawn. Seen is what a dataset's ``__getitem__`` calls itself, through ``Compose`` and
comprehensions; what C functions return is not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final

from hotloop.probe import batches
from hotloop.state.stored import attributes

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

#: The batch that is looked at: the first one opens files and imports.
_BATCH: Final = 2
_READERS: Final = ("__getitem__", "__getitems__", "__iter__", "__next__")
_LEAST_BYTES: Final = 256
_MOST: Final = 12
_MAX_DEPTH: Final = 8

Make = Callable[[Any, Any, Any], Any]


def watched(probe: Probe, make: Make) -> Make:
    """``make(maker, fetcher, index)``, looked at once for every dataset; see the ``stages`` note."""
    made: dict[int, int] = {}
    guard = probe.hooks.guard
    say = guard("stages", lambda *facts: _say(probe, *facts))
    begin = guard("stages", Stages)
    probe.on_fork("stages", made.clear)

    def body(maker: Any, fetcher: Any, index: Any) -> Any:
        count = made[id(fetcher.dataset)] = made.get(id(fetcher.dataset), 0) + 1
        stages = begin(fetcher.dataset) if count == _BATCH and sys.getprofile() is None else None
        if stages is None or not stages.readers:
            return make(maker, fetcher, index)
        sys.setprofile(guard("stages", stages.see))
        try:
            batch = make(maker, fetcher, index)
        finally:
            sys.setprofile(None)
        say(fetcher.dataset, index, stages)
        return batch

    return body


class Stages:
    """The profile function, and what it saw: (function, file, line of the call) -> bytes."""

    def __init__(self, dataset: Any) -> None:
        self.readers = _codes(dataset)
        self.found: dict[tuple[str, str, int], int] = {}

    def see(self, frame: FrameType, event: str, value: Any) -> None:
        """One event of the interpreter."""
        if event == "return" and value is not None:
            caller = self._reader_above(frame)
            if caller is not None:
                self._add(frame, caller, value)

    def _reader_above(self, frame: FrameType) -> FrameType | None:
        """The reading function that called this one, None where it did not, or this only passes on."""
        if frame.f_code in self.readers or _passes_on(frame):
            return None
        caller = frame.f_back
        for _ in range(_MAX_DEPTH):
            if caller is None or caller.f_code in self.readers:
                return caller
            if not _passes_on(caller):
                return None
            caller = caller.f_back
        return None

    def _add(self, frame: FrameType, caller: FrameType, value: Any) -> None:
        size = sum(_bytes(leaf) for _, leaf in batches.leaves(value))
        if size < _LEAST_BYTES:
            return
        key = (_name(frame), caller.f_code.co_filename, caller.f_lineno)
        if key in self.found or len(self.found) < _MOST:
            self.found[key] = self.found.get(key, 0) + size


def _say(probe: Probe, dataset: Any, index: Any, stages: Stages) -> None:
    try:
        samples = max(1, len(index))
    except TypeError:  # batch_size=None
        samples = 1
    if stages.found:
        probe.note(
            "stages",
            dataset=type(dataset).__name__,
            samples=samples,
            stages=[
                [name, probe.is_user.path(file), line, size / samples]
                for (name, file, line), size in stages.found.items()
            ],
        )


def _codes(dataset: Any) -> set[CodeType]:
    """The functions that read samples, of a dataset and of those it wraps."""
    found: set[CodeType] = set()
    todo, depth = [dataset], 0
    while todo and depth < _MAX_DEPTH:
        depth += 1
        one = todo.pop()
        functions = (vars(kind).get(name) for kind in type(one).__mro__ for name in _READERS)
        found.update(code for f in functions if isinstance(code := getattr(f, "__code__", None), CodeType))
        held = attributes(one)
        inner = held.get("datasets")
        todo += [held["dataset"]] if "dataset" in held else []
        todo += inner[:_MAX_DEPTH] if isinstance(inner, list) else []
    return found


def _passes_on(frame: FrameType) -> bool:
    """A comprehension, or a call of something that holds a list of ``transforms``."""
    if frame.f_code.co_name in ("<listcomp>", "<genexpr>", "<dictcomp>"):
        return True
    return isinstance(attributes(_first(frame)).get("transforms"), list | tuple)


def _first(frame: FrameType) -> Any:
    names = frame.f_code.co_varnames
    return frame.f_locals.get(names[0]) if frame.f_code.co_argcount else None


def _name(frame: FrameType) -> str:
    """A function's name; of an object that is called, its class's."""
    name, first = frame.f_code.co_name, _first(frame)
    called = name in ("__call__", "_wrapped_call_impl") or (
        callable(first) and hasattr(type(first), "_call_impl")
    )
    return type(first).__name__ if called and first is not None else name


def _bytes(leaf: Any) -> int:
    size = batches.num_bytes(leaf)
    if not size and any(kind.__module__ == "PIL.Image" for kind in type(leaf).__mro__):
        width, height = leaf.size
        return int(width * height * len(leaf.getbands()))
    return size
