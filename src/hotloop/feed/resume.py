"""Where an iterator is in its epoch, as data, and how another one gets there.

The state is what was drawn from the sampler so far, by number, and the random states with which the epoch
began: the other iterator draws the same again and leaves out what was handed out. A checksum over the indices
tells a sampler that cannot be repeated from one that can.
"""

from __future__ import annotations

import pickle
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

import numpy as np
import torch

from hotloop.feed import randomness
from hotloop.feed.errors import FeedError
from hotloop.feed.worker import REPLAY

VERSION: Final = 2


class Position:
    """Where an iterator is. ``num_done``: every batch before it was handed out; ``beyond``: later ones.

    Made where an epoch begins, before the first index is drawn.
    """

    def __init__(self, loader: Any) -> None:
        self.num_done = 0
        self.beyond: set[int] = set()
        self.by_worker: dict[int, int] = {}
        self.next_worker = 0
        self._start = _Start(loader)
        self._drawn = 0
        self._checksum = 0
        self._checksums: dict[int, int] = {0: 0}  # of everything drawn before a number

    def drew(self, index: Any, data: bytes) -> None:
        """Another batch's indices were drawn; ``data`` is their pickle."""
        if type(index) is not list or not index or type(index[0]) is not int:
            data = _bytes_of(index)  # equal objects may differ in their pickles
        self._drawn += 1
        self._checksum = self._checksums[self._drawn] = zlib.crc32(data, self._checksum)

    def handed_out(self, number: int, worker: int = 0) -> None:
        """A batch was handed out, or skipped because it had been."""
        self.beyond.add(number)
        while self.num_done in self.beyond:
            self.beyond.remove(self.num_done)
            del self._checksums[self.num_done]
            self.num_done += 1
        self.by_worker[worker] = self.by_worker.get(worker, 0) + 1
        self.next_worker = worker + 1

    def passed_over(self, number: int) -> None:
        """There was no such batch: its worker had no more."""
        count, following = dict(self.by_worker), self.next_worker
        self.handed_out(number)
        self.by_worker, self.next_worker = count, following

    def state(self) -> dict[str, Any]:
        """Plain data: numbers, lists and uint8 tensors."""
        return {
            "num_done": self.num_done,
            "beyond": sorted(self.beyond),
            "by_worker": dict(self.by_worker),
            "next_worker": self.next_worker,
            "checksum": self._checksums[self.num_done],
            "start": self._start.state,
        }

    def check(self, state: dict[str, Any]) -> None:
        """What was drawn again is what was drawn then.

        Raises:
            FeedError: it is not.
        """
        number = state["num_done"]
        if self._checksums.get(number) != state["checksum"]:
            raise FeedError(
                f"the sampler gave other indices than before for the first {number} batches",
                hint="it draws from a random state that is not its own, or the dataset changed: give it a "
                "generator, or state_dict and load_state_dict",
            )


def _bytes_of(index: Any) -> bytes:
    """The same bytes for equal indices in any process; of objects of a stranger's class only its name."""
    if isinstance(index, torch.Tensor):
        return _bytes_of(index.tolist())
    if isinstance(index, np.ndarray | np.generic):
        return _bytes_of(index.tolist())
    if isinstance(index, list | tuple):
        return b"(" + b",".join(map(_bytes_of, index)) + b")"
    if index is None or isinstance(index, int | float | str | bytes):
        return repr(index).encode()
    return type(index).__qualname__.encode()


class _Start:
    """The random states and the samplers' own at the beginning of an epoch."""

    def __init__(self, loader: Any) -> None:
        self._random = randomness.capture()
        self._generators = [one.get_state() for one in generators_of(loader)]
        self._samplers = [_sampler_state(one) for one in _samplers_of(loader)]

    @cached_property
    def state(self) -> dict[str, Any]:
        """What the states of all positions of the epoch share."""
        return {
            "random": as_tensor((self._random, self._samplers)),
            "generators": self._generators,
        }


@contextmanager
def beginning_again(loader: Any, state: dict[str, Any]) -> Iterator[None]:
    """The random states of the epoch's beginning while its indices are drawn again; then this process's own.

    Generators the loader or its sampler was given stay where the drawing leaves them.
    """
    random, samplers = from_tensor(state["start"]["random"])
    with randomness.preserved():
        randomness.restore(random._replace(cuda=()))
        for generator, found in zip(generators_of(loader), state["start"]["generators"], strict=True):
            generator.set_state(found)
        for sampler, found in zip(_samplers_of(loader), samplers, strict=True):
            _restore_sampler(sampler, found)
        yield


def generators_of(loader: Any) -> list[torch.Generator]:
    """The generators given to the loader and its samplers, each once."""
    found = [loader.generator, *(getattr(one, "generator", None) for one in _samplers_of(loader))]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())


def as_tensor(value: Any) -> torch.Tensor:
    """Any plain value as a uint8 tensor: ``torch.load`` takes it without asking."""
    return torch.frombuffer(bytearray(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)), dtype=torch.uint8)


def from_tensor(tensor: torch.Tensor) -> Any:
    """What :func:`as_tensor` was given."""
    return pickle.loads(tensor.numpy().tobytes())


def _samplers_of(loader: Any) -> list[Any]:
    found = [loader.batch_sampler, loader.sampler, getattr(loader.batch_sampler, "sampler", None)]
    return list({id(one): one for one in found if one is not None}.values())


def _sampler_state(sampler: Any) -> dict[str, Any]:
    """A sampler's own state: what its ``state_dict`` says, and the epoch it was set to."""
    state = {}
    if hasattr(sampler, "state_dict") and hasattr(sampler, "load_state_dict"):
        state["own"] = sampler.state_dict()
    if hasattr(sampler, "set_epoch") and hasattr(sampler, "epoch"):
        state["epoch"] = sampler.epoch
    return state


def _restore_sampler(sampler: Any, state: dict[str, Any]) -> None:
    if "own" in state:
        sampler.load_state_dict(state["own"])
    if "epoch" in state and sampler.epoch != state["epoch"]:
        sampler.set_epoch(state["epoch"])


class Resuming:
    """Comes among the bases of an iterator over worker processes: its state, and going on from one."""

    def state(self: Any) -> Any:
        """Where this iterator is, so that another one can go on from there; also after a worker's death."""
        if self._last_state is not None:
            return self._last_state
        oldest: dict[int, int] = {}
        for number, task in self._task_info.items():  # the first is the oldest
            oldest.setdefault(task.worker.number, number)
        states = {
            member.number: self._noted(member, oldest.get(member.number, self._send_idx))
            for member in self._workers
        }
        return {
            "position": self._position.state(),
            "base_seed": self._base_seed,
            "epoch": self._epoch,
            "num_workers": self._num_workers,
            "persistent": self._persistent_workers,
            "states": as_tensor({worker: found for worker, found in states.items() if found is not None}),
        }

    def _noted(self: Any, member: Any, task: int) -> Any:
        """Random states of a worker before a task, and the task before which it noted them.

        None: those it began with.
        """
        board = self._boards.get(member.number) or self._setup.board(member.number)
        self._boards[member.number] = board
        while True:
            found = board.find(self._epoch, task)
            if found is not None or not self._epoch or self._shutdown or not member.is_alive:
                return found or self._states.get(member.number)
            time.sleep(0.001)  # it notes its states when it reads that an epoch began

    def _skip(self: Any, state: dict[str, Any]) -> None:
        """Draw what was drawn before; workers make again what their noted states do not cover."""
        position, workers = state["position"], self._workers
        done, beyond = position["num_done"], set(position["beyond"])
        if self._setup.reading.is_iterable:
            for worker, count in position["by_worker"].items():
                for _ in range(count):
                    self._pass(workers[worker])
            self._next_worker = position["next_worker"] % len(workers)
            done = self._send_idx
        else:
            while self._send_idx < max(beyond | {done - 1}) + 1:
                if self._send_idx < done or self._send_idx in beyond:
                    self._pass(workers[self._send_idx % len(workers)])
                elif not self._dispatch():
                    break
            self._position.check(position)
            self._next_worker = self._send_idx % len(workers)
        self._rcvd_idx = done
        self._num_yielded = done + len(beyond)

    def _pass(self: Any, member: Any) -> None:
        """Leave out a batch that was handed out before."""
        number = self._send_idx
        first, data = self._count(self._draw_again(number))
        self._position.handed_out(number, member.number)
        if self._in_order and self._setup.seed_by == "worker":
            if number >= self._states.get(member.number, (0, None))[0]:
                member.send((REPLAY, number, first, data))
        elif self._setup.reading.is_iterable:
            member.send((REPLAY, number, first, data))
