"""Fields of a batch that are loaded, shipped and never read, for loaders whose batch is exactly a ``dict``.

Watched are three batches in the steady state and the ones around every 50th, where code that runs «every N
steps» reads what others do not. Whatever reads a batch as a whole (``items()``, ``**batch``, a copy) counts
as reading all of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from hotloop.probe.probe import Probe

NAME: Final = "observers.unread"
FIRST: Final = 6
STEADY: Final = 3
EVERY: Final = 50
MAX_KEYS: Final = 64
#: A script that looks at exact types or walks nested structures in C gets plain dictionaries. One that can
#: compile gets them from the moment it does: by the first batch watched, steps have run.
_PARTICULAR: Final = (
    r"\btype\s*\([^)]*\)\s*(?:is\b|==|!=|in\b|not\b)|"
    r"\bpytree\b|\btree_map\b|\boptree\b|\bjit\b|\bvmap\b"
)


#: Told the key that was read, or ALL.
Read = Callable[[Any], None]
#: Every key was read at once: items, values, iteration, copies.
ALL: Final = object()
#: What reads its first argument. What reads everything: ``__iter__`` and ``keys`` also take ``**batch``,
#: ``dict(batch)`` and ``other.update(batch)`` off the fast path.
_OF_KEYS: Final = ("__getitem__", "get", "pop", "setdefault")
_OF_ALL: Final = (
    "popitem", "__iter__", "__reversed__", "keys", "values", "items", "__eq__", "__ne__", "__repr__",
)  # fmt: skip


class TrackedBatch(dict[Any, Any]):
    """A batch whose reads are watched. Copies, pickles and unions of it are plain dictionaries."""

    __slots__ = ("_read",)
    _read: Read | None
    __hash__ = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._read = None

    @classmethod
    def of(cls, batch: dict[Any, Any], read: Read) -> TrackedBatch:
        """The same keys and values, watched."""
        tracked = cls(batch)
        tracked._read = read
        return tracked

    def copy(self) -> dict[Any, Any]:
        """A plain dictionary."""
        return dict(self.items())

    def __or__(self, other: Any) -> Any:
        return self.copy() | other if isinstance(other, dict) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return other | self.copy() if isinstance(other, dict) else NotImplemented

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (self.copy(),)

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(2)

    def __copy__(self) -> dict[Any, Any]:
        return self.copy()


def _watched(name: str, *, whole: bool) -> Callable[..., Any]:
    """The method of ``dict`` that says first what it reads."""
    original = getattr(dict, name)

    def method(self: TrackedBatch, *args: Any) -> Any:
        if self._read is not None and (whole or args):
            self._read(ALL if whole else args[0])
        return original(self, *args)

    method.__name__ = name
    return method


for _name in (*_OF_KEYS, *_OF_ALL):
    setattr(TrackedBatch, _name, _watched(_name, whole=_name in _OF_ALL))


def register_with_pytree(pytree: Any) -> None:
    """Have ``torch.utils._pytree`` see a tracked batch as the dictionary it is; what it rebuilds is plain."""

    def flatten(batch: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
        return list(batch.values()), list(dict.keys(batch))

    def rebuild(values: Iterable[Any], keys: list[Any]) -> dict[Any, Any]:
        return dict(zip(keys, values, strict=True))

    if TrackedBatch not in pytree.SUPPORTED_NODES:
        pytree._private_register_pytree_node(TrackedBatch, flatten, rebuild)


class Watched:
    """What is known of one loader's batches."""

    __slots__ = ("batches", "keys", "read", "watched")

    def __init__(self) -> None:
        self.batches = 0
        self.watched = 0
        self.keys: set[str] = set()
        self.read: set[Any] = set()


class Unread:
    """Hands out tracked batches at chosen steps and tells at exit what nobody read."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._loaders: dict[int, Watched] = {}
        self._allowed: bool | None = None

    def restart(self) -> None:
        """In a forked child: its loaders are others."""
        self._loaders.clear()
        self._allowed = None

    def watch(self, iterator: Any, batch: dict[Any, Any]) -> TrackedBatch | None:
        """The batch, tracked, if this is a step to look at; else None."""
        probe = self._probe
        if not probe.training_started:
            return None
        loader = probe.loaders.loader_of(iterator) if probe.loaders is not None else 0
        state = self._loaders.get(loader)
        if state is None:
            state = self._loaders[loader] = Watched()
        state.batches += 1
        if not loader or ALL in state.read or not due(state.batches) or not self._may(batch):
            return None
        state.watched += 1
        state.keys.update(batch)
        return TrackedBatch.of(batch, state.read.add)

    def say(self) -> None:
        """Write what was loaded and never read."""
        for loader, state in self._loaders.items():
            read, unread = sorted(state.keys & state.read), sorted(state.keys - state.read)
            # A loader of which nothing was read was driven for its own sake; that says nothing of its fields.
            if state.watched >= STEADY and read and unread and ALL not in state.read:
                self._probe.note("unread", loader=loader, steps=state.watched, read=read, unread=unread)

    def _may(self, batch: dict[Any, Any]) -> bool:
        if compiled() or not 1 < len(batch) <= MAX_KEYS or not all(type(key) is str for key in batch):
            return False
        if self._allowed is None:
            self._allowed = not self._probe.places.mention(_PARTICULAR, unread=True)
            if self._allowed:
                register_with_pytree(sys.modules["torch.utils._pytree"])
        return self._allowed


def compiled() -> bool:
    """Whether torch.compile has compiled anything; that dynamo is imported says nothing."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("frames"))


def due(batches: int) -> bool:
    """Whether the n-th batch of a loader (counted from 1, once training has begun) is watched."""
    if batches < FIRST:
        return False
    if batches < FIRST + STEADY:
        return True
    every = EVERY if batches < 1010 else 500
    return (batches + 1) % every <= 2


def install(probe: Probe) -> None:
    """Watch what DataLoader iterators hand out."""
    unread = Unread(probe)
    hooks = probe.hooks

    def on_dataloader(module: Any) -> None:
        probe.loaders.track = hooks.guard(NAME, unread.watch)

    hooks.on_import("torch.utils.data.dataloader", on_dataloader, NAME)
    probe.on_exit(NAME, unread.say)
    probe.on_fork(NAME, unread.restart)
