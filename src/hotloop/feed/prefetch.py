"""Batches copied to the device ahead of their step, on a stream of their own, around any loader.

Three things make such a copy right. The step's stream waits for the copy's event before it reads. A tensor
made on the side stream is told (``record_stream``) that the step's stream uses it, or the allocator would
hand its memory to the next copy while the step still reads. And the host batch stays alive until the copy's
event has passed: its memory may be a slot that a worker fills again as soon as nobody holds it.

Tested on a simulated asynchronous device and on an H200 (tests marked `gpu`).
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from hotloop.feed.tree import Leaf, flatten, unflatten


class DevicePrefetcher:
    """Iterates over ``loader``, with the tensors of every batch on ``device`` and copied ahead of time.

    Args:
        loader: any iterable of batches (a DataLoader, a list, a generator); each pass iterates it anew.
        device: where batches go. On the CPU, and on devices without streams, a batch is moved when it is
            asked for and nothing is read ahead.
        depth: how many batches are read and copied ahead of the one in use; 0: each is read when it is asked
            for, and copied while the device still computes what it was given before.
        transform: applied to every batch on the device, as if it were the first line of the loop's body (it
            runs on the loop's own stream, so random numbers are drawn in the loop's order). The place to turn
            uint8 into float: a quarter of the bytes cross the bus.

    Tensors anywhere in the batch are copied, in dictionaries, sequences, named tuples and dataclasses; an
    object with a ``to`` method of its own is moved by it, when its batch is handed out; everything else stays
    as it is. Only page-locked batches overlap with computation (``pin_memory=True`` on the loader).

    An exception of the loader is raised where its batch would have come, and iteration can go on as the
    loader allows. Attributes are the loader's (``dataset``, ``sampler``), but for :attr:`state_dict`: the
    loader's own is ``depth`` batches ahead.

    Raises:
        ValueError: ``depth`` is below 0.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        device: torch.device | str | int,
        *,
        depth: int = 2,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        if depth < 0:
            raise ValueError(f"depth must be at least 0, got {depth}")
        self.loader = loader
        self.device = torch.device(device)
        self.depth = depth
        self.transform = transform
        self._side: Any = None
        self._latest: Callable[[], _Ahead | None] = lambda: None

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        streams = _streams(self.device)
        if streams is None:
            return _AsAsked(self)
        if self._side is None:
            if self.device.index is None:
                self.device = torch.device(self.device.type, streams.current_device())
            self._side = streams.Stream(device=self.device)
        iterator = _Ahead(self, streams, self._side)
        self._latest = weakref.ref(iterator)
        return iterator

    def __getattr__(self, name: str) -> Any:
        if name == "loader" or name.startswith("__"):  # a copy that is being made has no loader yet
            raise AttributeError(name)
        return getattr(self.loader, name)

    def _finished(self, batch: Any) -> Any:
        """A batch on the device as the loop gets it."""
        return batch if self.transform is None else self.transform(batch)

    @property
    def state_dict(self) -> Callable[[], Any]:
        """The loader's state as of the batch in use, whatever was read ahead since; if it has one."""
        own: Callable[[], Any] = self.loader.state_dict  # type: ignore[attr-defined]

        def state() -> Any:
            ahead = self._latest()
            return own() if ahead is None or ahead.state is None else ahead.state

        return state

    @property
    def load_state_dict(self) -> Callable[[Any], None]:
        """Give the loader its state back, for when iteration begins; if it has one."""
        own: Callable[[Any], None] = self.loader.load_state_dict  # type: ignore[attr-defined]

        def load(state_dict: Any) -> None:
            self._latest = lambda: None
            own(state_dict)

        return load


class _AsAsked:
    """Each batch moved when it is asked for, on the current stream."""

    def __init__(self, owner: DevicePrefetcher) -> None:
        self._owner = owner
        self._source = iter(owner.loader)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        owner = self._owner
        batch = next(self._source)
        leaves, structure = flatten(batch, _has_to)
        moved = [_moved(leaf, owner.device) for leaf in leaves]
        if any(new is not old for new, old in zip(moved, leaves, strict=True)):
            batch = unflatten(structure, moved)
        return owner._finished(batch)


class _Copied(NamedTuple):
    """A batch on its way: leaves (copies, or what is moved later), structure, event, the loader's state."""

    leaves: list[Any]
    late: tuple[int, ...]
    structure: Any
    event: Any
    state: Any


class _Failed(NamedTuple):
    """What the loader raised instead of a batch."""

    error: Exception
    state: Any


class _Ahead:
    """One pass over the loader with copies in flight on the side stream."""

    def __init__(self, owner: DevicePrefetcher, streams: Any, side: Any) -> None:
        self._owner = owner
        self._streams = streams
        self._side = side
        self._queue: deque[_Copied | _Failed] = deque()
        self._in_flight: deque[tuple[Any, Any]] = deque()  # (event on the side stream, host batch)
        self._moving: deque[tuple[Any, Any]] = deque()  # (event on the loop's stream, host tensors)
        self._source = iter(owner.loader)
        self._keeps_state = hasattr(owner.loader, "state_dict")
        #: The loader's state as of the batch handed out last; None when the loader's own says it.
        self.state = self._loader_state()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._let_go()
        # At most two at a time: the first batch does not wait until ``depth`` others are made.
        for _ in range(2):
            # Nothing is read past an exception before it was raised.
            failed = self._queue and isinstance(self._queue[-1], _Failed)
            if len(self._queue) <= self._owner.depth and not failed:
                self._read()
        first = self._queue.popleft()
        if isinstance(first, _Failed):
            self.state = first.state
            try:
                raise first.error
            finally:
                del first  # or the traceback would keep this pass, and what it holds, in a cycle
        self.state = first.state
        return self._owner._finished(self._hand_out(first))

    def _read(self) -> None:
        try:
            host = next(self._source)
            state = self._loader_state()
            self._queue.append(self._copy(host, state))
        except StopIteration as end:
            self._queue.append(_Failed(end, None))
        except Exception as error:
            self._queue.append(_Failed(error, self._loader_state()))

    def _loader_state(self) -> Any:
        return self._owner.loader.state_dict() if self._keeps_state else None  # type: ignore[attr-defined]

    def _copy(self, host: Any, state: Any) -> _Copied:
        """Start the copies of a host batch on the side stream."""
        device = self._owner.device
        leaves, structure = flatten(host, _has_to)
        seen = [isinstance(leaf, torch.Tensor) and _is_plain(leaf) for leaf in leaves]
        late = tuple(i for i, leaf in enumerate(leaves) if not seen[i] and _has_to(leaf))
        with self._streams.stream(self._side):
            while len(self._in_flight) >= max(1, 2 * self._owner.depth):
                self._in_flight[0][0].synchronize()
                self._in_flight.popleft()
            copies = [
                leaf.to(device, non_blocking=True) if seen[i] else leaf for i, leaf in enumerate(leaves)
            ]
            event = self._streams.Event()
            event.record(self._side)
        self._in_flight.append((event, host))
        return _Copied(copies, late, structure, event, state)

    def _hand_out(self, copied: _Copied) -> Any:
        """The batch for the current stream, which waits for the copies where they are not done yet."""
        device = self._owner.device
        current = self._streams.current_stream(device)
        current.wait_event(copied.event)
        leaves = copied.leaves
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and _is_plain(leaf):
                leaf.record_stream(current)
        for i in copied.late:
            leaves[i] = self._move(leaves[i], current)
        return unflatten(copied.structure, leaves)

    def _move(self, leaf: Any, current: Any) -> Any:
        """An object moved by its own ``to``, on the current stream; blocking where its tensors are hidden."""
        inside, structure = flatten(leaf)
        if isinstance(structure, Leaf):
            return _moved(leaf, self._owner.device)
        try:
            moved = leaf.to(self._owner.device, non_blocking=True)
        except TypeError:
            return _moved(leaf, self._owner.device)
        event = self._streams.Event()
        event.record(current)
        self._moving.append((event, inside))
        return moved

    def _let_go(self) -> None:
        """Drop host batches whose copies are done.

        The side stream is current then: whoever fills their memory again after an event on the current stream
        (a pinned ring) waits for copies, not for the steps the host is ahead.
        """
        if self._in_flight and self._in_flight[0][0].query():
            with self._streams.stream(self._side):
                while self._in_flight and self._in_flight[0][0].query():
                    self._in_flight.popleft()
        while self._moving and self._moving[0][0].query():
            self._moving.popleft()

    def __del__(self) -> None:
        # After a break in the loop: the memory of the host batches must not be filled again under a copy.
        for waiting in (getattr(self, "_in_flight", ()), getattr(self, "_moving", ())):
            for event, _ in waiting:
                event.synchronize()


def _streams(device: torch.device) -> Any:
    """The device's module if it has streams and events (``torch.cuda``, ``torch.xpu``), else None."""
    if device.type == "cpu":
        return None
    try:
        module = torch.get_device_module(device)
    except RuntimeError:  # a device of tensors only: meta
        return None
    wanted = ("Stream", "Event", "stream", "current_stream", "current_device")
    return module if all(hasattr(module, name) for name in wanted) else None


def _has_to(leaf: Any) -> bool:
    """Tensors, and what moves itself (``PackedSequence``, a tokenizer's batch): neither is taken apart."""
    return callable(getattr(leaf, "to", None)) and not isinstance(leaf, type)


def _is_plain(tensor: torch.Tensor) -> bool:
    """A tensor with one stretch of memory of its own, as ``record_stream`` takes it."""
    return tensor.layout is torch.strided and not tensor.is_nested


def _moved(leaf: Any, device: torch.device) -> Any:
    return leaf.to(device) if _has_to(leaf) else leaf
