"""How long a batch is valid, and what is done with its memory afterwards."""

from __future__ import annotations

import gc
import resource
import threading
from typing import Any

import numpy as np
import pytest
import torch
from loader_datasets import Everything, Large
from torch.utils.data import DataLoader, Dataset, default_collate

from hotloop.feed import FeedError, Loader
from hotloop.feed.arena import Arena
from hotloop.feed.memory import SharedFile
from hotloop.feed.packing import pack

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def right(number: int, batch: Any) -> bool:
    data, index = batch
    return bool((data == index[:, None]).all()) and index.tolist() == [2 * number, 2 * number + 1]


@pytest.mark.parametrize("options", [{}, {"copy": True}, {"debug": True}, {"prefetch_factor": 1}])
@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_whatever_is_kept_stays_right(options: dict[str, Any], num_workers: int) -> None:
    if not num_workers:
        options = {name: value for name, value in options.items() if name != "prefetch_factor"}
    loader = Loader(Large(60), batch_size=2, num_workers=num_workers, **options)
    kept: dict[int, Any] = {}
    for number, batch in enumerate(loader):
        if number % 3 == 0 or number > 25:
            kept[number] = batch
        if number == 20:
            del kept[0], kept[6]
    gc.collect()
    for number, batch in enumerate(loader):  # another epoch writes the slots again
        assert right(number, batch)
    for number, batch in kept.items():
        assert right(number, batch)


def test_any_kind_of_reference_keeps_a_batch() -> None:
    loader = Loader(Large(40), batch_size=2, num_workers=1, prefetch_factor=1)
    iterator = iter(loader)
    views = [next(iterator)[0][1, 5:9], next(iterator)[0].numpy()[1], next(iterator)[0].T.unsqueeze(0)]
    storage = next(iterator)[0].untyped_storage()
    weight = torch.ones(1 << 18, requires_grad=True)
    loss = (next(iterator)[0] * weight).sum()  # autograd keeps the batch
    rest = [int(index[0]) for _, index in iterator]
    assert rest == list(range(10, 40, 2))
    loss.backward()
    assert weight.grad is not None and weight.grad.eq(8 + 9).all()
    assert views[0].tolist() == [1.0] * 4 and np.all(views[1] == 3.0) and views[2].unique().tolist() == [4, 5]
    assert torch.tensor([], dtype=torch.float32).set_(storage).unique().tolist() == [6, 7]  # type: ignore[call-overload]


def test_a_batch_may_be_written_to() -> None:
    for number, (data, _) in enumerate(Loader(Large(), batch_size=2, num_workers=1)):
        assert data[0, 0] == 2 * number
        data.mul_(-7).add_(0.5)


def test_batches_dropped_by_another_thread() -> None:
    loader = Loader(Large(100), batch_size=2, num_workers=2)
    iterator = iter(loader)
    for number in range(50):
        batch: Any = [next(iterator)]
        assert right(number, batch[0])
        thread = threading.Thread(target=batch.clear)
        thread.start()
        thread.join()


def test_memory_is_used_again_only_when_given_back() -> None:
    iterator = iter(Loader(Large(60), batch_size=2, num_workers=1, prefetch_factor=1))
    first = next(iterator)
    address = first[0].data_ptr()
    addresses = {next(iterator)[0].data_ptr() for _ in range(10)}
    assert address not in addresses
    assert len(addresses) <= 4
    del first
    assert address in {next(iterator)[0].data_ptr() for _ in range(5)}


def test_given_back_early() -> None:
    loader = Loader(Large(40), batch_size=2, num_workers=1, prefetch_factor=1)
    kept = []
    for number, batch in enumerate(loader):
        assert right(number, batch)
        kept.append(batch[0].data_ptr())
        loader.give_back({"any": ["tree", batch]})
        loader.give_back(batch)  # once is enough
    assert len(set(kept)) <= 3
    loader.give_back(torch.ones(3))
    loader.give_back("nothing of it")


class Trainer:
    batch: Any = None


def test_debug_poisons_what_was_given_back_and_names_who_holds_it() -> None:
    loader = Loader(Large(40), batch_size=2, num_workers=1, prefetch_factor=1, debug=True)
    iterator = iter(loader)
    trainer = Trainer()
    trainer.batch = next(iterator)
    loader.give_back(trainer.batch)
    assert trainer.batch[0].isnan().all()
    with pytest.raises(FeedError, match=r"batch 0 was given back and is still held by") as raised:
        list(iterator)
    assert "Trainer.batch[0]" in str(raised.value)


class MixesWithTheOneBefore:
    """A collation with a memory, as mixup across batches has."""

    def __init__(self) -> None:
        self.before: Any = None

    def __call__(self, samples: Any) -> Any:
        batch = default_collate(samples)
        mixed = batch[0] if self.before is None else batch[0] + 1000 * self.before[0]
        self.before = batch
        return batch[0], mixed, batch[1]


def test_a_collation_that_keeps_its_batches() -> None:
    options = {"batch_size": 2, "num_workers": 2}
    found = Loader(Large(60), collate_fn=MixesWithTheOneBefore(), **options)
    expected = DataLoader(Large(60), collate_fn=MixesWithTheOneBefore(), **options)
    for one, other in zip(found, expected, strict=True):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))
        del one, other


def test_what_workers_made_is_stacked_in_place() -> None:
    """A batch lies in the slot once: what was stacked is not copied again."""
    iterator = iter(Loader(Large(8), batch_size=4, num_workers=1, prefetch_factor=1))
    data, _ = next(iterator)
    slots = [slot for slot in iterator._ring.slots if slot.mapping is not None]
    assert slots[0].capacity < 1.2 * data.nbytes


def test_memory_is_given_out_as_long_as_nobody_keeps_it() -> None:
    file = SharedFile("test")
    arena = Arena(file)
    for _ in range(3):
        arena.open(0, arena.capacity)
        batch = {"x": arena.out((2, 3), torch.float32).zero_(), "y": [np.arange(1000)], "z": torch.ones(2)}
        pack(batch, arena)
        pack([batch, batch], arena)
        del batch
        assert not arena.close()
    arena.open(1, 0)
    kept = arena.out((2, 3), torch.float32)
    assert arena.close()
    assert not arena.gives_memory
    del kept


def test_small_and_empty_batches() -> None:
    batches = list(Loader(Everything(5), batch_size=2, num_workers=1, collate_fn=lambda samples: ()))
    assert batches == [(), (), ()]
    strings = list(Loader(["a", "b", "c"], batch_size=2, num_workers=1))  # type: ignore[arg-type]
    assert strings == [["a", "b"], ["c"]]
    large = list(Loader(["x" * 100_000] * 3, batch_size=2, num_workers=1))  # type: ignore[arg-type]
    assert [len(text) for text in large[0]] == [100_000] * 2


@pytest.mark.gpu
def test_slots_are_pinned_for_the_device() -> None:
    loader = Loader(Large(60), batch_size=2, num_workers=2, pin_memory=True)
    for number, (data, index) in enumerate(loader):
        assert data.is_pinned() and index.is_pinned()
        on_device = data.to("cuda", non_blocking=True)
        del data
        assert on_device[0].eq(2 * number).all()


@pytest.mark.gpu
def test_a_pinned_slot_is_not_written_while_the_device_copies() -> None:
    loader = Loader(Large(200), batch_size=2, num_workers=2, pin_memory=True, prefetch_factor=1)
    copies = []
    torch.cuda._sleep(200_000_000)  # every copy waits behind this
    for data, _ in loader:
        copies.append(data.to("cuda", non_blocking=True))
        del data
    for number, copy in enumerate(copies):
        assert copy[0].eq(2 * number).all() and copy[1].eq(2 * number + 1).all()


def test_without_workers_a_large_batch_is_stacked_though_only_some_samples_need_gradients() -> None:
    samples = [torch.full((1 << 18,), float(k), requires_grad=k > 0) for k in range(4)]
    (batch,) = Loader(samples, batch_size=4)  # type: ignore[arg-type]
    (expected,) = DataLoader(samples, batch_size=4)  # type: ignore[arg-type]
    assert batch.requires_grad and expected.requires_grad and torch.equal(batch, expected)


def test_copies_and_poison_without_workers() -> None:
    for copy in (False, True):
        loader = Loader(Large(), batch_size=4, debug=True, copy=copy)
        iterator = iter(loader)
        next(iterator)
        batch = next(iterator)
        del batch
        assert bool(iterator._reader._recycler._returned) != copy
        assert all((memory == 0xFF).all() for memory in iterator._reader._recycler._returned)


class Made(Dataset[Any]):
    """Samples of 100 KB that are new each time, and how many pages this process was given so far."""

    def __len__(self) -> int:
        return 64 * 30

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.from_numpy(np.full(100_000, index % 256, np.uint8))
        return image, resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def pages_a_batch() -> float:
    """Pages that one worker, with a heap of its own, is given for a batch once all slots are written."""
    loader = Loader(Made(), batch_size=64, num_workers=1, multiprocessing_context="spawn")
    last = [int(faults[-1]) for _, faults in loader]
    return (last[-1] - last[14]) / (len(last) - 15)


def test_a_worker_keeps_the_memory_of_the_samples_it_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert pages_a_batch() < 200  # of the 1,560 that a batch's samples take


@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_MMAP_THRESHOLD_", "65536"), ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=65536")],
)
def test_a_user_who_sets_the_heap_keeps_the_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    for other in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, value)  # each sample is mapped alone, whatever lies at the end of the heap
    assert pages_a_batch() > 1000
