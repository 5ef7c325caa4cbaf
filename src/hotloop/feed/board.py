"""What workers note of their random generators, so that a loader can be resumed between any two batches.

Every worker has a few places in the ring's file where it writes the states before a task. The loader reads
them without asking, also when the worker is busy or gone. A task without states can be made again from an
earlier one: cheap batches are noted only now and then.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any, Final

import numpy as np
import torch

from hotloop.feed import randomness
from hotloop.feed.memory import PAGE_BYTES, SharedFile, round_up

#: States are noted before every batch that took this long, else before one in ``_EVERY``: they cost ~50 us.
_WORTH_NOTING_NS: Final = 5_000_000
_EVERY: Final = 64
#: One place: the states take 10 KB, and 16 bytes for each CUDA device that is in use.
_PLACE_BYTES: Final = 4 * PAGE_BYTES
_HEAD: Final = struct.Struct("<qqqq")  # written last: epoch, task, bytes, 1 when whole


def board_bytes(depth: int) -> int:
    """Bytes one worker's notes take. ``depth``: the most tasks it may have that were not handed out."""
    return (depth + 3) * _PLACE_BYTES


class Board:
    """One worker's notes, as the worker and as the loader see them.

    ``whole``: only the first task of an epoch is noted, where what was read before cannot be skipped
    (iterable datasets).
    """

    def __init__(self, file: SharedFile, offset: int, depth: int, *, whole: bool) -> None:
        size = round_up(board_bytes(depth))
        self._bytes: Any = file.map(size, offset=offset).array()
        self._num_places = depth + 3
        self._whole = whole
        self._next = 0
        self._since = 0
        self._cheap = False
        self._epoch = -1

    def before(self, epoch: int, task: int) -> None:
        """In the worker: a task begins."""
        new = epoch != self._epoch
        if new or not (self._whole or (self._cheap and self._since < _EVERY)):
            self._epoch, self._since = epoch, 0
            self._write(epoch, task, _packed(randomness.capture()))
        self._since += 1

    def after(self, wall_ns: int) -> None:
        """In the worker: it ended."""
        self._cheap = wall_ns < _WORTH_NOTING_NS

    def find(self, epoch: int, task: int) -> tuple[int, bytes] | None:
        """The newest note of this epoch that is not after ``task``: its task, and the states before it.

        They are for :func:`unpacked`: a loader's state is taken far more often than it is used.
        """
        newest: tuple[int, bytes] | None = None
        for place in range(self._num_places):
            start = place * _PLACE_BYTES
            noted, number, size, whole = _HEAD.unpack_from(self._bytes, start)
            if whole and noted == epoch and number <= task and (newest is None or number > newest[0]):
                start += _HEAD.size
                newest = number, self._bytes[start : start + size].tobytes()
        return newest

    def _write(self, epoch: int, task: int, data: bytes) -> None:
        if len(data) > _PLACE_BYTES - _HEAD.size:
            return  # hundreds of devices: made again from the beginning of the epoch
        start = self._next * _PLACE_BYTES
        self._next = (self._next + 1) % self._num_places
        _HEAD.pack_into(self._bytes, start, 0, 0, 0, 0)
        self._bytes[start + _HEAD.size : start + _HEAD.size + len(data)] = np.frombuffer(data, np.uint8)
        _HEAD.pack_into(self._bytes, start, epoch, task, len(data), 1)


def _packed(states: randomness.RandomStates) -> bytes:
    """A pickle without tensors: theirs takes ten times as long."""
    plain: Any = states._replace(torch=states.torch.numpy(), cuda=tuple(one.numpy() for one in states.cuda))
    return pickle.dumps(plain, pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> randomness.RandomStates:
    """Random states as they were noted."""
    states: randomness.RandomStates = pickle.loads(data)
    return states._replace(
        torch=torch.from_numpy(states.torch), cuda=tuple(map(torch.from_numpy, states.cuda))
    )
