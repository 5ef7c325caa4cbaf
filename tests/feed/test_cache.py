"""What comes out of a cache is what the dataset gives, whatever it gives, and stays so."""

from __future__ import annotations

import math
import random
import warnings
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bake_datasets import Given, Point
from cache_samples import Ragged, Squares, is_right
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bake import described, trees
from tests.feed.test_rows import either  # noqa: F401 - a fixture
from torch.utils.data import ChainDataset, default_collate

from hotloop.feed import bake, budget
from hotloop.feed.cache import rendezvous
from hotloop.feed.cache.cache import SampleCache
from hotloop.feed.cache.dataset import cached
from hotloop.feed.errors import CacheError

MIB = 1 << 20


@pytest.fixture(autouse=True)
def on_our_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What else runs here has nothing to do with these tests: short memory, another run of these tests."""
    monkeypatch.setattr(rendezvous.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(budget, "memory_is_short", lambda: False)


def same(left: Any, right: Any) -> bool:
    return described(left) == described(right)


@given(samples=st.lists(trees | trees.map(lambda tree: OrderedDict(of=tree)), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_any_tree_comes_back_as_it_was(samples: list[Any]) -> None:
    cache = SampleCache(len(samples), max_bytes=8 * MIB)
    for index, sample in enumerate(samples):
        assert cache.put(index, sample)
    assert all(same(cache.get(index), sample) for index, sample in enumerate(samples))
    cache.close()


def test_the_second_epoch_reads_nothing() -> None:
    dataset = Squares()
    kept = cached(dataset, 8 * MIB)
    before = dataset.reads
    first = [kept[index] for index in range(len(kept))]
    assert dataset.reads == before + len(dataset)
    second = [kept[index] for index in range(len(kept))]
    assert dataset.reads == before + len(dataset)
    assert all(map(same, first, second))
    assert kept.stats().hits == kept.stats().misses == len(dataset)
    kept.close()


def test_writing_into_a_sample_does_not_reach_the_cache() -> None:
    kept = cached(Squares(), 8 * MIB)
    for _ in range(3):
        data, _ = kept[3]
        assert is_right((data, 3), 3)
        data.zero_()
    kept.close()


def test_an_error_of_the_dataset_is_passed_on_and_nothing_is_kept() -> None:
    class Failing(Squares):
        def __getitem__(self, index: int) -> Any:
            if index == 7:
                raise RuntimeError("broken file")
            return super().__getitem__(index)

    kept = cached(Failing(), 8 * MIB)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broken file"):
            kept[7]
    assert 7 not in kept.cache
    kept.close()


def batches_of(dataset: Any, indices: list[int]) -> Any:
    return default_collate([dataset[index] for index in indices])


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(
    "make",
    [
        lambda index: (torch.full((3, 4), index, dtype=torch.uint8), index),
        lambda index: {
            "x": np.full(5, index, np.int16),
            "t": f"{index:03d}",
            "f": float(index),
            "b": index < 3,
        },
        lambda index: Point([torch.tensor(index)], (b"ab", torch.zeros(0, 2))),
        lambda index: [torch.full((size,), index, dtype=torch.float64) for size in (9000, 1500)],
        lambda index: [torch.full((size,), index, dtype=torch.uint8) for size in (40_000, 40_001)],
        lambda index: {"number": np.float32(index), "wide": torch.full((2, 2), index, dtype=torch.bfloat16)},
        lambda index: OrderedDict(a=torch.tensor([index])),
        lambda index: f"text of {index}" if index % 2 else "other",
        lambda index: (
            "ä" * (index % 3),
            {"file": f"{5**index}.png", "x": torch.full((5,), index)},
            b"b" * index,
        ),
    ],
)
def test_gather_is_default_collate(make: Any) -> None:
    samples = Given([make(index) for index in range(12)])
    kept = cached(samples, 8 * MIB)
    given_out: list[torch.Tensor] = []

    def out(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        given_out.append(torch.empty(shape, dtype=dtype))
        return given_out[-1]

    for chosen in ([0, 1, 2], [3, 1, 1], [-1, 5, 3], list(range(12)), [11, 0, 7], [4]):
        assert same(kept.gather(chosen), batches_of(samples, chosen))
        assert same(kept.gather(chosen, out), batches_of(samples, chosen))
    stats = kept.stats()
    assert stats.hits + stats.misses == 2 * (3 + 3 + 3 + 12 + 3 + 1)
    kept.close()


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("num_bytes", [1000, 40_000])
def test_a_gathered_batch_fills_the_memory_it_was_given(num_bytes: int) -> None:
    kept = cached(Squares(num_bytes=num_bytes), 8 * MIB)
    for index in range(40):
        kept[index]
    slots: list[torch.Tensor] = []

    def out(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        slots.append(torch.zeros(1 + math.prod(shape), dtype=dtype)[1:].view(shape))  # at any address
        return slots[-1]

    data, numbers = kept.gather([3, 9, 30], out)
    assert [data.data_ptr(), numbers.data_ptr()] == [slot.data_ptr() for slot in slots]
    assert all(is_right((data[row], int(numbers[row])), index) for row, index in enumerate([3, 9, 30]))
    kept.close()


def test_a_random_stage_is_refused_by_name_and_by_leaf() -> None:
    class Augmented(Squares):
        def transform(self, sample: dict[str, Any]) -> dict[str, Any]:
            return {**sample, "image": sample["image"] * random.random()}

        def __getitem__(self, index: int) -> Any:
            return self.transform({"image": torch.full((9,), index), "label": index})

    with pytest.raises(CacheError, match=r"transform is not the same on a second read.*image"):
        cached(Augmented(), 8 * MIB)
    frozen = cached(Augmented(), 8 * MIB, allow_random=True)
    assert same(frozen[3], frozen[3])
    early = cached(Augmented(), 8 * MIB, stage="source")
    first, second = early[3], early[3]
    assert not same(first, second)
    assert early.stats().hits == 1
    with pytest.raises(ValueError, match="source, transform"):
        cached(Augmented(), 8 * MIB, stage="crop")
    frozen.close()
    early.close()


def test_what_cannot_be_kept_is_said_once_and_still_delivered() -> None:
    samples = [(index, (lambda: 1) if index in (1, 3) else 0) for index in range(5)]
    with pytest.raises(CacheError, match="it cannot be stored"):
        cached(Given(samples[1:4]), 8 * MIB)
    kept = cached(Given(samples), 8 * MIB, fingerprint="functions")
    with pytest.warns(RuntimeWarning, match="sample 1 is not cached"):
        kept[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kept[3][0] == 3
    kept.close()


def test_a_sample_larger_than_the_cache_is_delivered() -> None:
    kept = cached(Squares(9, 3 * MIB), MIB)
    assert is_right(kept[2], 2)
    assert is_right(kept[2], 2)
    assert kept.stats().num_items == 0
    kept.close()


def test_bad_arguments_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="is iterable"):
        cached(ChainDataset([]), MIB)
    with pytest.raises(ValueError, match="not a size"):
        cached(Squares(), "many")
    with pytest.raises(CacheError, match="the table of 100000 samples alone takes"):
        cached(Squares(100_000), MIB)


def test_the_memory_in_use_grows_with_what_is_in_it_and_ends_at_the_limit() -> None:
    limit = 8 * MIB
    for dataset in (Squares(150, MIB // 8), Ragged(300, MIB // 4)):
        kept = cached(dataset, limit)
        kept[0]
        assert kept.cache.resident_bytes < limit // 4
        for index in range(len(dataset)):
            kept[index]
        assert limit * 0.9 < kept.cache.resident_bytes <= limit
        assert kept.stats().num_bytes > limit * 0.85
        kept.close()


LAYOUTS = {
    "channels last": torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "transposed": torch.arange(12.0).view(3, 4).T,
    "permuted picture": torch.arange(24, dtype=torch.uint8).view(2, 4, 3).permute(2, 0, 1),
    "Fortran order": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "bytes in Fortran order": np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3)),
    "a default dictionary": defaultdict(list, a=[torch.ones(2)]),
    "a parameter": torch.nn.Parameter(torch.ones(2)),
    "negated": torch.tensor([1 + 2j]).conj().imag,
    "sparse": torch.eye(3).to_sparse(),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_cache_and_bake_give_back_what_the_dataset_gave(name: str, tmp_path: Path) -> None:
    sample = LAYOUTS[name]
    dataset = Given([sample] * 5)
    kept, baked = cached(dataset, MIB, shared=False), bake(dataset, tmp_path / "out", num_workers=0)
    kept[2], kept[4]
    for found in (kept[2], baked[2]):
        assert type(found) is type(sample)
        if isinstance(sample, defaultdict):
            assert found["b"] == [] and found["a"][0].equal(torch.ones(2))
        elif isinstance(sample, np.ndarray):
            assert found.strides == sample.strides and np.array_equal(found, sample)
        elif sample.is_sparse:
            assert found.is_sparse and found.to_dense().equal(sample.to_dense())
        else:
            assert found.stride() == sample.stride() and found.requires_grad == sample.requires_grad
            assert torch.equal(found, sample)
    if "dictionary" not in name and name not in ("sparse", "a parameter"):
        wanted = default_collate([sample, sample])
        for batch in (kept.gather([2, 4]), baked.gather([2, 4])):
            assert batch.stride() == wanted.stride() and torch.equal(batch, wanted)
    kept.close()


def test_a_tensor_of_a_graph_is_refused_in_words() -> None:
    with pytest.raises(CacheError, match="belongs to a graph cannot be stored"):
        cached(Given([torch.ones(2, requires_grad=True) * 2] * 3), MIB, shared=False)
