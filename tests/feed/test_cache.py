"""What comes out of a cache is what the dataset gives, whatever it gives, and stays so."""

from __future__ import annotations

import collections
import dataclasses
import math
import random
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from cache_samples import Ragged, Squares, is_right
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ChainDataset, DataLoader, Dataset, Subset, default_collate

from hotloop import fast
from hotloop.feed import budget
from hotloop.feed.cache import rendezvous
from hotloop.feed.cache.cache import SampleCache
from hotloop.feed.cache.dataset import cached
from hotloop.feed.cache.policies import POLICIES
from hotloop.feed.cache.reading import MISSING
from hotloop.feed.errors import CacheError
from hotloop.feed.stages import stage

MIB = 1 << 20


@pytest.fixture(autouse=True)
def on_our_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What else runs here has nothing to do with these tests: short memory, another run of these tests."""
    monkeypatch.setattr(rendezvous.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(budget, "pressure", lambda: budget.Pressure(shortage_bytes=0, reason=""))


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Box:
    corners: Any
    label: str


class Listed(Dataset[Any]):
    """Samples as they are in a list."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


def same(left: Any, right: Any) -> bool:
    """Equal in type, dtype, shape and value, all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and left.shape == right.shape and left.equal(right)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if dataclasses.is_dataclass(left):
        return same(vars(left), vars(right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=200),
    st.tuples(
        st.sampled_from(
            [torch.uint8, torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.int64]
        ),
        st.lists(st.integers(0, 5), max_size=3),
    ).map(lambda made: torch.arange(int(np.prod(made[1]))).to(made[0]).reshape(made[1])),
    st.tuples(st.sampled_from(["u1", "<f8", ">i4", "M8[s]", "S3"]), st.integers(0, 9)).map(
        lambda made: np.zeros(made[1], made[0])
    ),
    st.sampled_from([np.float32(1.5), np.int64(3), np.bool_(True), 2j, Box]),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
        st.builds(Point, inner, inner),
        st.builds(Box, inner, st.text(max_size=5)),
        st.dictionaries(st.integers(), inner, max_size=2).map(collections.OrderedDict),
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("policy", POLICIES)
@given(samples=st.lists(trees, min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_any_tree_comes_back_as_it_was(policy: str, samples: list[Any]) -> None:
    cache = SampleCache(len(samples), max_bytes=8 * MIB, policy=policy)
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


@pytest.mark.parametrize("policy", POLICIES)
def test_writing_into_a_sample_does_not_reach_the_cache(policy: str) -> None:
    kept = cached(Squares(), 8 * MIB, policy)
    for _ in range(3):
        data, _ = kept[3]
        assert is_right((data, 3), 3)
        data.zero_()
    kept.close()


def test_views_cannot_be_written_to_and_outlive_the_cache() -> None:
    samples = [{"array": np.arange(5) + index, "tensor": torch.arange(9) + index} for index in range(9)]
    kept = cached(Listed(samples), 8 * MIB, copy=False)
    for index in range(9):
        kept[index]
    view = kept[4]
    with pytest.raises(ValueError, match="read-only"):
        view["array"][0] = 1
    kept.close()
    del kept
    assert same(view, samples[4])
    with pytest.raises(ValueError, match="copy=False needs policy='keep'"):
        cached(Squares(), 8 * MIB, "lru", copy=False)


def test_indices_mean_what_they_mean_to_the_dataset() -> None:
    class Named(Squares):
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(0) if index == "first" else super().__getitem__(index)

    kept = cached(Named(), 8 * MIB)
    assert is_right(kept[-1], 39)
    assert is_right(kept[np.int64(5)], 5)
    assert is_right(kept[torch.tensor(6)], 6)
    assert is_right(kept["first"], 0)
    assert kept.stats().num_items == 3
    with pytest.raises(IndexError):
        kept[40]
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


@pytest.fixture(params=["compiled", "python"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(fast, "gather", None)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("policy", POLICIES)
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
        lambda index: collections.OrderedDict(a=torch.tensor([index])),
        lambda index: f"text of {index}" if index % 2 else "other",
        lambda index: (
            "ä" * (index % 3),
            {"file": f"{5**index}.png", "x": torch.full((5,), index)},
            b"b" * index,
        ),
    ],
)
def test_gather_is_default_collate(policy: str, make: Any) -> None:
    samples = Listed([make(index) for index in range(12)])
    kept = cached(samples, 8 * MIB, policy)
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


def test_texts_of_any_length_are_gathered_with_the_rest() -> None:
    samples = Listed([(torch.full((300,), index), f"{5**index}.png") for index in range(12)])
    kept = cached(samples, 8 * MIB)
    chosen = np.array([7, 0, 11])
    assert kept.cache.gather(chosen) is MISSING
    list(map(kept.__getitem__, range(12)))
    assert same(kept.cache.gather(chosen), batches_of(samples, chosen.tolist()))
    kept.close()


@pytest.mark.parametrize("room", [True, False])
def test_few_that_are_missing_are_made_once_for_their_batch(room: bool) -> None:
    reads: list[int] = []

    class Counted(Squares):
        def __getitem__(self, index: int) -> Any:
            reads.append(index)
            return super().__getitem__(index)

    kept = cached(Counted(num_bytes=40_000), 8 * MIB if room else 600_000)
    for index in range(8 if room else len(kept)):  # all but what drop_last left, or what fits
        kept[index]
    here = [index for index in range(len(kept)) if index in kept.cache][:4]
    gone = [index for index in range(len(kept)) if index not in kept.cache][:2]
    reads.clear()
    before = kept.stats()
    for chosen in ([*here, *gone], [gone[1], *here, gone[0]]):
        data, numbers = kept.gather(chosen)
        assert all(is_right((data[row], int(numbers[row])), index) for row, index in enumerate(chosen))
    assert sorted(reads) == (gone if room else sorted([*gone, *gone]))
    after = kept.stats()
    assert after.misses - before.misses == (2 if room else 4)
    assert after.hits - before.hits == (10 if room else 8)
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


def test_the_dataset_reads_what_is_missing_in_one_go() -> None:
    asked: list[list[int]] = []

    class Batched(Squares):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            asked.append(indices)
            return [self[index] for index in indices]

    kept = cached(Batched(), 8 * MIB, fingerprint="batched")
    kept.__getitems__([1, 2, 3])
    samples = kept.__getitems__([2, 5, -1, 3])
    assert asked == [[1, 2, 3], [5, 39]]
    assert [number for _, number in samples] == [2, 5, 39, 3]
    kept.close()


def test_torch_loads_from_it_and_from_a_part_of_it() -> None:
    kept = cached(Ragged(30), 8 * MIB)
    loader = DataLoader(Subset(kept, range(5, 25)), batch_size=4, shuffle=True, collate_fn=list)
    for _ in range(2):
        assert sorted(number for batch in loader for _, number in batch) == list(range(5, 25))
    assert kept.stats().hits == 20
    kept.close()


def test_a_random_stage_is_refused_by_name_and_by_leaf() -> None:
    class Augmented(Squares):
        @stage("decode")
        def decode(self, index: int) -> dict[str, Any]:
            return {"image": torch.full((9,), index), "label": index}

        @stage("flip")
        def flip(self, sample: dict[str, Any]) -> dict[str, Any]:
            return {**sample, "image": sample["image"] * random.random()}

        def __getitem__(self, index: int) -> Any:
            return self.flip(self.decode(index))

    with pytest.raises(CacheError, match=r"flip is not the same on a second read.*image"):
        cached(Augmented(), 8 * MIB)
    frozen = cached(Augmented(), 8 * MIB, allow_random=True)
    assert same(frozen[3], frozen[3])
    early = cached(Augmented(), 8 * MIB, stage="decode")
    first, second = early[3], early[3]
    assert not same(first, second)
    assert early.stats().hits == 1
    with pytest.raises(ValueError, match="decode, flip"):
        cached(Augmented(), 8 * MIB, stage="crop")
    frozen.close()
    early.close()


def test_what_cannot_be_kept_is_said_once_and_still_delivered() -> None:
    samples = [(index, (lambda: 1) if index in (1, 3) else 0) for index in range(5)]
    with pytest.raises(CacheError, match="it cannot be stored"):
        cached(Listed(samples[1:4]), 8 * MIB)
    kept = cached(Listed(samples), 8 * MIB, fingerprint="functions")
    with pytest.warns(RuntimeWarning, match="sample 1 is not cached"):
        kept[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kept[3][0] == 3
    kept.close()


def test_a_sample_larger_than_the_cache_is_delivered() -> None:
    for policy in POLICIES:
        kept = cached(Squares(9, 3 * MIB), MIB, policy)
        assert is_right(kept[2], 2)
        assert is_right(kept[2], 2)
        assert kept.stats().num_items == 0
        kept.close()


def test_bad_arguments_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="none of keep, lru, cost, clairvoyant"):
        cached(Squares(), MIB, "fifo")
    with pytest.raises(ValueError, match="is iterable"):
        cached(ChainDataset([]), MIB)
    with pytest.raises(ValueError, match="not a size"):
        cached(Squares(), "many")
    with pytest.raises(CacheError, match="the table of 100000 samples alone takes"):
        cached(Squares(100_000), MIB)


def test_an_empty_dataset_is_an_empty_cache() -> None:
    kept = cached(Squares(0), MIB)
    assert len(kept) == 0
    assert list(DataLoader(kept)) == []
    kept.print_cache_stats()
    kept.close()


def test_the_statistics_in_the_words_of_the_guide(capsys: pytest.CaptureFixture[str]) -> None:
    kept = cached(Squares(100, MIB // 8), 32 * MIB)
    for _ in range(4):
        for index in range(10):
            kept[index]
    kept.print_cache_stats()
    first, second = capsys.readouterr().out.splitlines()
    assert first == "Size 10 items; Memory 1.3/32.0 MB; Hit Rate 75.00% (30 hits / 10 misses)"
    assert second.startswith("policy keep; 0 evictions; ")
    assert kept.stats().saved_s > 0
    kept.close()


@pytest.mark.parametrize("policy", POLICIES)
def test_as_many_layouts_as_samples(policy: str) -> None:
    """Beyond the log of layouts a sample carries its own."""
    kept = cached(Ragged(400), MIB, policy)
    for _ in range(2):
        assert all(is_right(kept[index], index) for index in range(400))
    assert kept.stats().num_items > 100
    kept.close()


def test_the_memory_in_use_grows_with_what_is_in_it_and_ends_at_the_limit() -> None:
    limit = 8 * MIB
    for policy in POLICIES:
        for dataset in (Squares(150, MIB // 8), Ragged(300, MIB // 4)):
            kept = cached(dataset, limit, policy)
            kept[0]
            assert kept.cache.resident_bytes < limit // 4
            for index in range(len(dataset)):
                kept[index]
            assert limit * 0.9 < kept.cache.resident_bytes <= limit
            assert kept.stats().num_bytes > limit * 0.85
            kept.close()


class OneHot:
    """Labels that share two tensors."""

    def __init__(self, labels: list[int]) -> None:
        two = torch.eye(2)
        rows = [two[0], two[1]]
        self.targets = [rows[label] for label in labels]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> Any:
        return index, self.targets[index]


def test_datasets_whose_shared_objects_come_in_another_order_do_not_share_a_cache() -> None:
    kept, other = (cached(OneHot([0, 1, *(index % 2 ^ flip for index in range(60))]), MIB) for flip in (0, 1))
    assert [int(kept[index][1][1]) for index in range(62)] == [0, 1] + [0, 1] * 30
    assert [int(other[index][1][1]) for index in range(62)] == [0, 1] + [1, 0] * 30
    kept.close()
    other.close()


def test_the_disk_tier_takes_what_memory_cannot_and_serves_the_next_run(tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    first = cached(Squares(40, 50_000), MIB, disk=tmp_path)
    for index in range(40):
        first[index]
    first.epoch_end()
    first.close()
    dataset = Squares(40, 50_000)
    again = cached(dataset, MIB, disk=tmp_path)
    before = dataset.reads
    assert all(is_right(again[index], index) for index in range(40))
    assert dataset.reads == before
    again.close()


def test_missing_says_what_it_is() -> None:
    cache = SampleCache(3, max_bytes=MIB)
    assert repr(cache.get(0)) == "MISSING"
    assert cache.get(0, None) is None
    assert cache.gather(np.array([0])) is MISSING
    cache.close()


# -- a cache that has everything -----------------------------------------------------------------------------


class Named(Dataset[Any]):
    """Samples that are dictionaries with a tensor, an array, and numbers in a tuple."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        number = range(40)[index]
        return {
            "x": torch.full((3, 2), number, dtype=torch.float64),
            "y": (np.full(4, number, np.int16), number, number / 3, number % 2 == 0),
            "none": torch.empty(0, 5),
        }


@pytest.mark.parametrize("compiled", [True, False])
def test_a_whole_cache_gathers_what_torch_collates(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(fast, "gather", None)
    dataset = Named()
    kept = cached(dataset, shared=False)
    for index in range(len(dataset)):
        kept[index]
    assert kept.cache.whole is None
    kept.gather(list(range(40)))
    whole = kept.cache.whole
    assert whole is not None
    before = kept.stats().hits
    for indices in ([3, 1, 39], [7], [-1, -40, 0], np.array([5, 5]), [np.int64(2), 4], [np.uint64(3)]):
        assert same(kept.gather(indices), default_collate([dataset[int(index)] for index in indices]))
    assert kept.stats().hits == before + 12
    into: list[torch.Tensor] = []
    out = kept.gather([8, 9], lambda shape, dtype: into.append(torch.empty(shape, dtype=dtype)) or into[-1])
    assert same(out, default_collate([dataset[8], dataset[9]]))
    assert any(out["x"] is one for one in into)
    with pytest.raises(IndexError):
        kept.gather([0, 40])
    kept.cache.stop(0)
    assert kept.cache.whole is None
    assert same(kept.gather([3, 1]), default_collate([dataset[3], dataset[1]]))


def test_a_cache_of_texts_or_of_samples_that_differ_is_gathered_by_looking_them_up() -> None:
    for samples in ([("a", 1), ("bc", 2)] * 8, [torch.zeros(2), torch.ones(3)] * 8):
        kept = cached(Listed(samples), shared=False)
        for _ in range(3):
            for index in range(0, 16, 2):
                kept.gather([index])
                kept.gather([index + 1])
        assert kept.cache.whole is None
