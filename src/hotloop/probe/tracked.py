"""A dictionary that remembers which of its keys were read; a dict in every respect but its exact type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

#: Told the key that was read, or ALL.
Read = Callable[[Any], None]


class _All:
    """The type of ALL."""


#: Every key was read at once: items, values, iteration, copies.
ALL = _All()


class TrackedBatch(dict[Any, Any]):
    """A batch whose reads are watched. Copies, pickles and unions of it are plain dictionaries."""

    __slots__ = ("_read",)
    _read: Read | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._read = None

    @classmethod
    def of(cls, batch: dict[Any, Any], read: Read) -> TrackedBatch:
        """The same keys and values, watched."""
        tracked = cls(batch)
        tracked._read = read
        return tracked

    def _tell(self, key: Any) -> None:
        if self._read is not None:
            self._read(key)

    def __getitem__(self, key: Any) -> Any:
        self._tell(key)
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        """Reads one key."""
        self._tell(key)
        return super().get(key, default)

    def pop(self, key: Any, *default: Any) -> Any:
        """Reads one key and takes it out."""
        self._tell(key)
        return super().pop(key, *default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Reads one key, or puts it in."""
        self._tell(key)
        return super().setdefault(key, default)

    def popitem(self) -> tuple[Any, Any]:
        """Reads everything."""
        self._tell(ALL)
        return super().popitem()

    # Overriding __iter__ and keys also takes `**batch`, dict(batch) and other.update(batch) off the fast
    # path.

    def __iter__(self) -> Any:
        self._tell(ALL)
        return super().__iter__()

    def __reversed__(self) -> Any:
        self._tell(ALL)
        return super().__reversed__()

    def keys(self) -> Any:
        """Reads everything."""
        self._tell(ALL)
        return super().keys()

    def values(self) -> Any:
        """Reads everything."""
        self._tell(ALL)
        return super().values()

    def items(self) -> Any:
        """Reads everything."""
        self._tell(ALL)
        return super().items()

    def copy(self) -> dict[Any, Any]:
        """A plain dictionary; reads everything."""
        self._tell(ALL)
        return dict(super().items())

    def __or__(self, other: Any) -> Any:
        self._tell(ALL)
        return dict(super().items()) | other if isinstance(other, dict) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        self._tell(ALL)
        return other | dict(super().items()) if isinstance(other, dict) else NotImplemented

    def __eq__(self, other: object) -> bool:
        self._tell(ALL)
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        self._tell(ALL)
        return super().__ne__(other)

    __hash__ = None

    def __repr__(self) -> str:
        self._tell(ALL)
        return super().__repr__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._tell(ALL)
        return dict, (dict(super().items()),)

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(2)

    def __copy__(self) -> dict[Any, Any]:
        return self.copy()


def register_with_pytree(pytree: Any) -> None:
    """Have ``torch.utils._pytree`` see a tracked batch as the dictionary it is; what it rebuilds is plain."""

    def flatten(batch: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
        return list(batch.values()), list(dict.keys(batch))

    def rebuild(values: Iterable[Any], keys: list[Any]) -> dict[Any, Any]:
        return dict(zip(keys, values, strict=True))

    if TrackedBatch not in pytree.SUPPORTED_NODES:
        pytree._private_register_pytree_node(TrackedBatch, flatten, rebuild)
