"""A device whose streams run when chance says so: copies read the host's memory late, freed memory is reused.

Stands in for ``torch.cuda`` (:meth:`Device.install`). What is wrong without a GPU's luck shows here: a copy
whose source was filled again, a read before its copy, memory given back while another stream still uses it.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

POISON = 0xA5


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.done = True

    def record(self, stream: Stream | None = None) -> None:
        self.done = False
        (stream or self.device.current).add(self._pass)

    def query(self) -> bool:
        self.device.chance()
        return self.done

    def synchronize(self) -> None:
        self.device.num_waits += not self.done
        while not self.done:
            self.device.one()

    def _pass(self) -> None:
        self.done = True


@dataclass
class Stream:
    device: Device
    work: deque[Callable[[], None] | Event] = field(default_factory=deque)

    def add(self, work: Callable[[], None] | Event) -> None:
        self.work.append(work)
        self.device.chance()

    def wait_event(self, event: Event) -> None:
        if not event.done:
            self.add(event)

    def is_ready(self) -> bool:
        while self.work and isinstance(self.work[0], Event) and self.work[0].done:
            self.work.popleft()
        return bool(self.work) and not isinstance(self.work[0], Event)

    def run(self) -> None:
        work = self.work.popleft()
        assert not isinstance(work, Event)
        work()


@dataclass
class Block:
    """Memory of the device, and the streams that were said to use it besides the one it was made on."""

    memory: np.ndarray[Any, np.dtype[np.uint8]]
    made_on: Stream
    used_by: list[Stream] = field(default_factory=list)


class Device:
    """``torch.cuda`` in small. With ``seed=None`` nothing runs until somebody waits for it."""

    def __init__(self, seed: int | None = None) -> None:
        self.random = None if seed is None else random.Random(seed)
        self.streams: list[Stream] = []
        self.main = self.current = self.new_stream()
        self.blocks: dict[int, Block] = {}
        self.num_waits = 0
        self.num_copies = 0

    def new_stream(self) -> Stream:
        self.streams.append(Stream(self))
        return self.streams[-1]

    # What hotloop uses of torch.cuda.
    def Stream(self, device: torch.device) -> Stream:  # noqa: N802
        return self.new_stream()

    def Event(self) -> Event:  # noqa: N802
        return Event(self)

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def current_stream(self, device: torch.device) -> Stream:
        return self.current

    def current_device(self) -> int:
        return 0

    # Time.
    def chance(self) -> None:
        if self.random is not None:
            for _ in range(self.random.choice((0, 0, 0, 1, 2, 5))):
                self.one()

    def one(self) -> bool:
        ready = [stream for stream in self.streams if stream.is_ready()]
        if ready:
            (self.random.choice(ready) if self.random is not None else ready[0]).run()
        return bool(ready)

    def finish(self) -> None:
        while self.one():
            pass
        assert not any(stream.work for stream in self.streams)

    # Tensors.
    def copy(self, host: torch.Tensor) -> torch.Tensor:
        """What ``.to(device, non_blocking=True)`` of page-locked memory does; it does not hold the source."""
        assert host.is_contiguous()
        self.num_copies += 1
        block = Block(np.full(max(1, host.nbytes), POISON, np.uint8), self.current)
        source, num_bytes, target = host.data_ptr(), host.nbytes, block.memory.ctypes.data

        def transfer() -> None:
            ctypes.memmove(target, source, num_bytes)

        self.current.add(transfer)
        made = torch.from_numpy(block.memory[: host.nbytes]).view(host.dtype).view(host.shape)
        self.blocks[id(made)] = block
        weakref.finalize(made, self._free, id(made), block)
        return made

    def _free(self, key: int, block: Block) -> None:
        """The allocator: whoever comes next may write as soon as all streams it was told of are done."""
        del self.blocks[key]
        self.random, chance = None, self.random
        reuser = self.new_stream()
        for stream in (block.made_on, *block.used_by):
            event = Event(self)
            event.record(stream)
            reuser.wait_event(event)
        reuser.add(lambda: block.memory.fill(POISON))
        self.random = chance

    def launch(self, tensor: torch.Tensor, found: list[Any]) -> None:
        """A kernel on the current stream that appends the values of ``tensor`` when it runs."""
        block, dtype, shape, size = self.blocks[id(tensor)], tensor.dtype, tensor.shape, tensor.nbytes
        self.current.add(
            lambda: found.append(
                torch.from_numpy(block.memory[:size].copy()).view(dtype).view(shape).tolist()
            )
        )

    def holds(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self.blocks

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Device:
        host_to, device = torch.Tensor.to, self

        def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            where = args[0] if args else None
            if not (isinstance(where, torch.device) and where.type == "cuda"):
                return host_to(self, *args, **kwargs)
            if device.holds(self):
                return self
            made = device.copy(self)
            if not kwargs.get("non_blocking"):
                done = Event(device)
                done.record()
                done.synchronize()
            return made

        def record_stream(self: torch.Tensor, stream: Stream) -> None:
            device.blocks[id(self)].used_by.append(stream)

        monkeypatch.setattr(torch, "get_device_module", lambda where: device)
        monkeypatch.setattr(torch.Tensor, "to", to)
        monkeypatch.setattr(torch.Tensor, "record_stream", record_stream)
        return self
