"""Batches on the device ahead of their step: right under every interleaving, in order, let go in time."""

from __future__ import annotations

import copy
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
from torch.utils.data import DataLoader, Dataset

from hotloop.feed.accumulation import Accumulation
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


@settings(max_examples=150, deadline=None)
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


@settings(max_examples=60, deadline=None)
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


def test_host_memory_is_let_go_on_the_copies_stream() -> None:
    with pytest.MonkeyPatch.context() as patch:
        device = Device(seed=1).install(patch)
        streams: list[Any] = []

        class Telling(Recycling):
            def _back(self, buffer: np.ndarray[Any, Any]) -> None:
                streams.append(device.current)
                super()._back(buffer)

        kept = [batch["image"] for batch in DevicePrefetcher(Telling(30), "cuda") if batch.pop("packed")]
        side = device.blocks[id(kept[0])].made_on
        device.finish()
    assert side is not device.main
    of_copies = sum(stream is side for stream in streams)
    assert of_copies >= 2 * (30 - 5), "images and labels, but for those that the end of the loop waited for"


def test_on_the_cpu_the_loaders_own_objects_come_through_and_nothing_is_read_ahead() -> None:
    batches = [{"image": torch.ones(2), "name": "a"}, (torch.zeros(1), [3])]
    read = []
    prefetcher = DevicePrefetcher((read.append(b) or b for b in batches), "cpu")
    for number, batch in enumerate(prefetcher, 1):
        assert batch is batches[number - 1]
        assert len(read) == number


def test_the_transform_runs_on_the_current_stream_with_the_batch_there(frozen: Device) -> None:
    streams = []

    def transform(batch: dict[str, Any]) -> Any:
        streams.append(frozen.current)
        assert frozen.holds(batch["image"])
        return batch["name"]

    names = list(DevicePrefetcher(Recycling(5), "cuda", transform=transform))
    assert names == list("01234")
    assert set(map(id, streams)) == {id(frozen.main)}


def test_length_and_any_number_of_passes(device: str) -> None:
    prefetcher = DevicePrefetcher([torch.tensor([k]) for k in range(5)], device)
    assert len(prefetcher) == 5
    for _ in range(2):
        assert [b["name"] for b in DevicePrefetcher(Recycling(3), device)] == ["0", "1", "2"]
        assert sum(1 for _ in prefetcher) == 5
    first, second = iter(prefetcher), iter(prefetcher)
    assert next(first) is not next(second) or device == "cpu"
    assert sum(1 for _ in first) == sum(1 for _ in second) == 4
    with pytest.raises(StopIteration):
        next(first)


def test_a_loader_without_length_says_so(device: str) -> None:
    with pytest.raises(TypeError):
        len(DevicePrefetcher(iter([]), device))


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


def test_an_exception_ends_a_generator_after_the_batches_before_it(device: str) -> None:
    def generator() -> Iterator[torch.Tensor]:
        yield from torch.arange(3)
        raise ValueError("in the generator")

    taken = []
    with pytest.raises(ValueError, match="in the generator"):
        for batch in DevicePrefetcher(generator(), device, depth=3):
            taken.append(batch)
    assert len(taken) == 3


def test_an_exception_leaves_nothing_alive(frozen: Device) -> None:
    loader = Recycling(4)

    def failing() -> Iterator[Any]:
        yield from loader
        raise ValueError

    with pytest.raises(ValueError):
        for _ in DevicePrefetcher(failing(), "cuda"):
            pass
    gc.disable()
    try:
        assert loader.num_held == 0, "without the garbage collector"
    finally:
        gc.enable()


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


class Numbers(Dataset[dict[str, Any]]):
    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((3,), index), "name": f"sample {index}"}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_around_an_existing_dataloader(num_workers: int) -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=num_workers)
    with pytest.MonkeyPatch.context() as patch:
        device, found, names = Device(seed=5).install(patch), [], []
        for batch in DevicePrefetcher(loader, "cuda"):
            device.launch(batch["x"], found)
            names += batch["name"]
        device.finish()
    assert names == [f"sample {k}" for k in range(23)]
    assert [row[0] for batch in found for row in batch] == list(range(23))


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


@pytest.mark.parametrize("taken", range(9))
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


def test_the_loaders_attributes_are_there_and_state_only_where_it_has_one(device: str) -> None:
    loader = DataLoader(Numbers(), batch_size=4)
    prefetcher = DevicePrefetcher(loader, device)
    assert prefetcher.dataset is loader.dataset
    assert prefetcher.batch_size == 4
    assert not hasattr(prefetcher, "state_dict")
    assert not hasattr(prefetcher, "load_state_dict")
    assert hasattr(DevicePrefetcher(Resumable(), device), "state_dict")
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = prefetcher.colour
    assert copy.copy(prefetcher).loader is loader


def test_accumulation_around_it_around_a_loader_without_state(device: str) -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    accumulation = Accumulation(torch.optim.SGD([parameter], lr=0.1), steps=4)
    for batch in accumulation(DevicePrefetcher(DataLoader(Numbers(), batch_size=4), device)):
        accumulation.backward(parameter.sum(), len(batch["name"]))
    assert accumulation.num_optimizer_steps == 2
    assert parameter.item() == pytest.approx(0.8)


def test_a_device_without_streams_or_module() -> None:
    batches = list(DevicePrefetcher([torch.ones(3)], "meta"))
    assert batches[0].device.type == "meta"


def test_a_depth_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="depth must be at least 0"):
        DevicePrefetcher([], "cpu", depth=-1)


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


@pytest.mark.gpu
def test_on_a_gpu_memory_recycled_by_hand_is_not_filled_under_a_copy() -> None:
    class Pinned(Recycling):
        def _tensor(self, value: int) -> torch.Tensor:
            memory = self.free.pop() if self.free else torch.empty(1 << 22, dtype=torch.int16).pin_memory()
            memory.fill_(value)
            tensor = memory[:]
            weakref.finalize(tensor, self._back, memory)
            return tensor

        def _back(self, memory: Any) -> None:
            memory.fill_(-1)
            self.free.append(memory)

    seen = []
    for batch in DevicePrefetcher(Pinned(60), "cuda"):
        seen.append(torch.stack([batch["image"].amin(), batch["image"].amax()]))
    assert torch.stack(seen).cpu().tolist() == [[k, k] for k in range(60)]


@pytest.mark.gpu
def test_on_a_gpu_any_structure() -> None:
    batch = [
        Hidden(),
        Mover(torch.tensor([8])),
        torch.eye(2).to_sparse(),
        pack_sequence([torch.ones(2)]),
        "a",
    ]
    (moved,) = DevicePrefetcher([batch], "cuda")
    assert moved[0].tensor.is_cuda
    assert moved[1].tensor.is_cuda
    assert torch.equal(moved[2].to_dense().cpu(), torch.eye(2))
    assert moved[3].data.is_cuda
