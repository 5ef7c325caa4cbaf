"""Batches on the device ahead of their step: right under every interleaving, in order, let go in time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.simulated_streams import Device
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import Dataset

from hotloop.feed.loader import Loader
from hotloop.feed.prefetch import DevicePrefetcher


class Recycling:
    """Batches in buffers that are filled with -1, and used again, as soon as nobody holds the batch."""

    def __init__(self, num_batches: int) -> None:
        self.num_batches = num_batches
        self.free: list[np.ndarray[Any, Any]] = []
        self.num_read = 0
        self.num_held = 0
        self.most_held = 0

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number in range(self.num_batches):
            self.num_read += 1
            packed = PackedSequence(self._tensor(number + 200), torch.tensor([4]))
            yield {
                "image": self._tensor(number),
                "label": [self._tensor(number + 100)],
                "packed": packed,
                "name": str(number),
            }

    def _tensor(self, value: int) -> torch.Tensor:
        buffer = self.free.pop() if self.free else np.empty(4, np.int16)
        buffer[:] = value
        tensor = torch.from_numpy(buffer)
        self.num_held += 1
        self.most_held = max(self.most_held, self.num_held)
        weakref.finalize(tensor, self._back, buffer)
        return tensor

    def _back(self, buffer: np.ndarray[Any, Any]) -> None:
        self.num_held -= 1
        buffer[:] = -1
        self.free.append(buffer)


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device on which nothing happens until somebody waits."""
    return Device().install(monkeypatch)


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "cuda":
        Device(seed=3).install(monkeypatch)
    return str(request.param)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32), depth=st.integers(1, 4), num_batches=st.integers(0, 12), keep=st.booleans()
)
def test_every_kernel_reads_its_own_batch(seed: int, depth: int, num_batches: int, keep: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        device = Device(seed).install(patch)
        loader, found, kept = Recycling(num_batches), [], []
        for batch in DevicePrefetcher(loader, "cuda", depth=depth):
            device.launch(batch["image"], found)
            device.launch(batch["label"][0], found)
            device.launch(batch["packed"].data, found)
            if keep:
                kept.append(batch)
        batch = None
        device.finish()
    assert found == [[value] * 4 for k in range(num_batches) for value in (k, k + 100, k + 200)]
    assert loader.num_held == 0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), taken=st.integers(1, 4))
def test_a_break_does_not_pull_the_memory_from_under_the_copies(seed: int, taken: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        device = Device(seed).install(patch)
        found: list[Any] = []
        left = taken
        for batch in DevicePrefetcher(Recycling(8), "cuda", depth=3):
            last, left = batch, left - 1
            if not left:
                break
        device.launch(last["image"], found)
        device.finish()
    assert found == [[taken - 1] * 4]


def test_the_next_batch_is_on_its_way_before_the_first_is_used_and_nobody_waits(frozen: Device) -> None:
    loader = Recycling(10)
    iterator = iter(DevicePrefetcher(loader, "cuda", depth=2))
    next(iterator)
    assert (loader.num_read, frozen.num_copies, frozen.num_waits) == (2, 5, 0), "the first waits for one more"
    next(iterator)
    next(iterator)
    assert (loader.num_read, frozen.num_waits) == (5, 1), "two ahead; the oldest copy of four was waited for"


def test_a_device_that_falls_behind_holds_a_bounded_number_of_batches(frozen: Device) -> None:
    loader = Recycling(50)
    for _ in DevicePrefetcher(loader, "cuda", depth=2):
        pass
    # Three tensors a batch: four batches with copies in flight, three not handed out, one being read.
    assert loader.most_held <= 3 * (4 + 3 + 1)
    gc.collect()
    assert loader.num_held == 0


def test_on_the_cpu_the_loaders_own_objects_come_through_and_nothing_is_read_ahead() -> None:
    batches = [{"image": torch.ones(2), "name": "a"}, (torch.zeros(1), [3])]
    read = []
    prefetcher = DevicePrefetcher((read.append(b) or b for b in batches), "cpu")
    for number, batch in enumerate(prefetcher, 1):
        assert batch is batches[number - 1]
        assert len(read) == number


class Failing:
    """Batches 0, 1, an error, 3, 4: as a DataLoader that goes on after a sample's exception."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.number = -1
        return self

    def __next__(self) -> torch.Tensor:
        self.number += 1
        if self.number == 2:
            raise KeyError("sample 2")
        if self.number == 5:
            raise StopIteration
        return torch.tensor([self.number])


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_an_exception_comes_where_its_batch_would_have_and_the_rest_follows(device: str, depth: int) -> None:
    iterator = iter(DevicePrefetcher(Failing(), device, depth=depth, transform=lambda batch: "batch"))
    assert next(iterator) == next(iterator) == "batch"
    with pytest.raises(KeyError, match="sample 2"):
        next(iterator)
    assert list(iterator) == ["batch", "batch"]


class Pair(NamedTuple):
    left: torch.Tensor
    right: Any


@dataclass
class Sample:
    image: torch.Tensor
    boxes: dict[str, Any]


class Hidden:
    """Moves itself; its tensors cannot be seen. As a scene's camera with a ``to`` of its own."""

    def __init__(self) -> None:
        self.tensor = torch.tensor([7])

    def to(self, device: torch.device) -> Hidden:
        self.tensor = self.tensor.to(device)
        return self


@dataclass
class Mover:
    """A container with a ``to`` that knows nothing of ``non_blocking``."""

    tensor: torch.Tensor

    def to(self, device: torch.device) -> Mover:
        return Mover(self.tensor.to(device))


def test_any_structure(frozen: Device) -> None:
    packed = pack_sequence([torch.tensor([1, 2]), torch.tensor([3])])
    batch = [
        Pair(torch.tensor([1]), {"a": (torch.tensor([2]), "text", None, np.ones(2))}),
        Sample(torch.tensor([3]), {"b": [4, 5.0]}),
        packed,
        Hidden(),
        Mover(torch.tensor([8])),
    ]
    (moved,) = DevicePrefetcher([batch], "cuda")
    pair, sample, packed_there, hidden, mover = moved
    assert type(pair) is Pair
    assert type(sample) is Sample
    assert isinstance(packed_there, PackedSequence)
    assert pair.right["a"][1:3] == ("text", None)
    assert isinstance(pair.right["a"][3], np.ndarray), "an array stays an array"
    assert sample.boxes == {"b": [4, 5.0]}
    there = [pair.left, pair.right["a"][0], sample.image, packed_there.data, hidden.tensor, mover.tensor]
    found: list[Any] = []
    for tensor in there:
        frozen.launch(tensor, found)
    frozen.finish()
    assert found == [[1], [2], [3], [1, 3, 2], [7], [8]]
    assert packed_there.batch_sizes.device.type == "cpu"
    assert not frozen.holds(packed_there.batch_sizes)


class Resumable:
    """A loader with a position; given a position, it goes on from there once."""

    def __init__(self) -> None:
        self.position = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.position < 8:
            self.position += 1
            yield torch.tensor([self.position - 1])
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


@pytest.mark.parametrize("taken", [0, 1, 5, 8])
def test_the_state_is_that_of_the_batch_in_use(device: str, taken: int) -> None:
    prefetcher = DevicePrefetcher(Resumable(), device, depth=3, transform=lambda batch: 1)
    iterator = iter(prefetcher)
    for _ in range(taken):
        next(iterator)
    state = prefetcher.state_dict()
    assert state == {"position": taken}

    resumed = DevicePrefetcher(Resumable(), device, depth=3, transform=lambda batch: 1)
    resumed.load_state_dict(state)
    assert len(list(resumed)) == 8 - taken
    assert len(list(iterator)) == 8 - taken
    assert prefetcher.state_dict() == {"position": 0}


class Images(Dataset[dict[str, Any]]):
    def __len__(self) -> int:
        return 160

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((64, 64), index, dtype=torch.int32), "index": index}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_slots_of_our_loader_are_not_filled_again_under_a_copy(num_workers: int, seed: int) -> None:
    loader = Loader(Images(), batch_size=4, num_workers=num_workers, debug=True)
    with pytest.MonkeyPatch.context() as patch:
        device, found, indices = Device(seed).install(patch), [], []
        for batch in DevicePrefetcher(loader, "cuda"):
            device.launch(batch["x"], found)
            device.launch(batch["index"], indices)
            del batch
        device.finish()
    assert [k for batch in indices for k in batch] == list(range(160))
    images = torch.tensor(found).view(160, -1)
    assert torch.equal(images.amin(1), torch.arange(160))
    assert torch.equal(images.amax(1), torch.arange(160))


def test_our_loader_resumes_where_the_step_was(frozen: Device) -> None:
    def loader() -> Loader:
        generator = torch.Generator().manual_seed(3)
        return Loader(Images(), batch_size=8, shuffle=True, generator=generator, num_workers=1)

    def indices(batches: Any) -> list[list[int]]:
        found: list[list[int]] = []
        for batch in batches:
            frozen.launch(batch["index"], found)
        frozen.finish()
        return found

    wanted = indices(DevicePrefetcher(loader(), "cuda"))
    prefetcher = DevicePrefetcher(loader(), "cuda", depth=3)
    iterator = iter(prefetcher)
    first = indices(next(iterator) for _ in range(6))
    state = prefetcher.state_dict()
    del iterator
    resumed = DevicePrefetcher(loader(), "cuda", depth=3)
    resumed.load_state_dict(state)
    assert first + indices(resumed) == wanted


@pytest.mark.gpu
@pytest.mark.parametrize("num_workers", [0, 2])
def test_on_a_gpu_every_step_sees_its_own_batch(num_workers: int) -> None:
    loader = Loader(Images(), batch_size=4, num_workers=num_workers, pin_memory=True, debug=True)
    work = torch.randn(2048, 2048, device="cuda")
    seen = []
    for _ in range(3):
        for batch in DevicePrefetcher(loader, "cuda", transform=lambda batch: batch["x"].float()):
            for _ in range(4):
                work = work @ work / work.norm()
            seen.append(torch.stack([batch.amin((1, 2)), batch.amax((1, 2))]))
    found = torch.cat(seen, dim=1).cpu()
    assert torch.equal(found, torch.arange(160.0).repeat(2, 3))
