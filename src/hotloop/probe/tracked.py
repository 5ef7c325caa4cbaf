"""A dictionary that remembers which of its keys were read; a dict in every respect but its exact type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

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
