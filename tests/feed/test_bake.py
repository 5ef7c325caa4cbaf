"""What is baked comes back bit for bit, whatever it was, and a batch is what default_collate would make."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bake_datasets import Counting, Given, Images, Point, Scene
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, default_collate

from hotloop.feed import Baked, BakeError, bake
from hotloop.feed.tree import flatten

DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.bool, torch.complex64,
]  # fmt: skip

#: Where syncing to disk costs nothing.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


def tensor_of(dtype: torch.dtype, shape: Sequence[int], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(tuple(shape), generator=generator) * 100).to(dtype)


tensors = st.builds(tensor_of, st.sampled_from(DTYPES), shapes, st.integers(0, 99))
arrays = st.builds(
    lambda dtype, shape, seed: (np.random.default_rng(seed).random(shape) * 99).astype(dtype),
    st.sampled_from(["u1", "<i4", ">f4", "f8", "?", "c8", "U3", "M8[s]"]),
    shapes,
    st.integers(0, 99),
)
leaves = st.one_of(
    tensors, arrays, st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats(),
    st.text(max_size=9), st.binary(max_size=9),
    st.sampled_from([np.float32(1.5), np.int8(-3), np.bool_(True), np.float64(0.1)]),
    st.complex_numbers(),
)  # fmt: skip
names = st.text("abcxyz/. ", max_size=4) | st.integers(0, 3)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(names, inner, max_size=3),
        st.builds(Point, inner, inner),
        st.builds(Scene, inner, st.text(max_size=3)),
    ),
    max_leaves=6,
)


def described(tree: Any) -> Any:
    """A tree as plain data that compares bit for bit, types and all."""
    found, structure = flatten(tree)
    return structure, [_leaf(leaf) for leaf in found]


def _leaf(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return (
            type(leaf),
            leaf.dtype,
            tuple(leaf.shape),
            leaf.contiguous().reshape(-1).view(torch.uint8).tolist(),
        )
    if isinstance(leaf, (np.ndarray, np.generic)):
        return type(leaf), leaf.dtype.str, leaf.shape, leaf.tobytes()
    return type(leaf), pickle.dumps(leaf)


def baked_of(samples: list[Any], folder: str, **options: Any) -> Baked:
    return bake(Given(samples), Path(folder) / "out", num_workers=0, **options)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(samples=st.lists(trees, max_size=6))
def test_any_samples_come_back_bit_for_bit(samples: list[Any]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        baked = baked_of(samples, folder, verify="full")
        assert len(baked) == len(samples)
        expected = [described(sample) for sample in samples]
        assert [described(sample) for sample in baked] == expected
        everything = list(range(len(samples)))
        assert [described(sample) for sample in baked.__getitems__(everything)] == expected


@st.composite
def alike(draw: st.DrawFn) -> list[Any]:
    """Samples of one form, with some leaves of varying length."""
    shape, dtype = draw(shapes), draw(st.sampled_from(DTYPES))
    ragged = draw(st.booleans())
    form = draw(st.sampled_from([dict, tuple, list, Point]))

    def one(seed: int) -> Any:
        inner = (tensor_of(dtype, shape, seed), np.full((2,), seed, np.int32), np.float32(seed))
        last = tensor_of(torch.float32, (seed % 3 if ragged else 2,), seed)
        parts = [inner, [seed, seed / 3, seed % 2 == 0, "t" * (seed % 4), b"b" * (seed % 3)], last]
        if form is dict:
            return dict(zip("abc", parts, strict=True))
        return Point(*parts[:2]) if form is Point else form(parts)

    return [one(draw(st.integers(0, 50))) for _ in range(draw(st.integers(1, 6)))]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(samples=alike() | st.lists(trees, min_size=1, max_size=4), data=st.data())
def test_gather_is_what_default_collate_gives(samples: list[Any], data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(-len(samples), len(samples) - 1), min_size=1, max_size=8))
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        baked = baked_of(samples, folder)
        expected = outcome(lambda: default_collate([samples[index] for index in indices]))
        assert outcome(lambda: baked.gather(indices)) == expected
        assert (
            outcome(lambda: baked.gather(indices, lambda shape, dtype: torch.empty(shape, dtype=dtype)))
            == expected
        )


def outcome(call: Any) -> Any:
    """What a call gives, or the type of what it raises."""
    try:
        return described(call())
    except Exception as error:
        return type(error)


def test_a_sample_that_fits_no_column_is_kept_whole(tmp_path: Path) -> None:
    dataset = Images(odd_every=5)
    baked = bake(dataset, tmp_path / "out", num_workers=2, verify="full")
    assert [described(sample) for sample in baked] == [described(dataset[k]) for k in range(96)]
    assert described(baked.gather([0, 2, 3])) == described(default_collate([dataset[k] for k in (0, 2, 3)]))
    with pytest.raises(KeyError):  # as default_collate says of the samples themselves
        baked.gather([1, 2])


@pytest.mark.parametrize("method", ["fork", "spawn", pytest.param("forkserver", marks=pytest.mark.nightly)])
def test_workers_of_any_start_method_bake_and_read(tmp_path: Path, method: str) -> None:
    dataset = Images(32)
    baked = bake(dataset, tmp_path / "out", num_workers=1, multiprocessing_context=method)
    loader = DataLoader(baked, batch_size=8, num_workers=1, multiprocessing_context=method)
    assert [described(batch) for batch in loader] == [
        described(default_collate([dataset[k] for k in range(start, start + 8)])) for start in range(0, 32, 8)
    ]


def test_the_bytes_do_not_depend_on_who_wrote_them(tmp_path: Path) -> None:
    dataset = Images(odd_every=7)
    for number, (workers, method) in enumerate([(0, None), (3, "fork")]):
        bake(dataset, tmp_path / str(number), num_workers=workers, multiprocessing_context=method)
    assert contents(tmp_path / "0") == contents(tmp_path / "1")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_baking_again_only_opens(tmp_path: Path) -> None:
    dataset = Counting()
    bake(dataset, tmp_path / "out", num_workers=0)
    dataset.reads.clear()
    bake(dataset, tmp_path / "out", num_workers=0)
    assert dataset.reads == []


class Noisy(Images):
    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = super().__getitem__(index)
        sample["image"] = sample["image"].float() + torch.randn(3, self.side, self.side)
        return sample


class Streaming(IterableDataset):  # type: ignore[misc, type-arg]
    def __iter__(self) -> Any:
        return iter(range(3))


@pytest.mark.parametrize(
    ("dataset", "words"), [(Noisy(), "not the same"), (Streaming(), "map-style"), (object(), "map-style")]
)
def test_what_cannot_be_baked_is_refused_with_the_reason(tmp_path: Path, dataset: Any, words: str) -> None:
    with pytest.raises(BakeError, match=words):
        bake(dataset, tmp_path / "out", num_workers=0)
    assert list(tmp_path.iterdir()) == []


class Broken(Images):
    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 17:
            raise ZeroDivisionError("no such picture")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_raises_is_named_with_its_traceback(tmp_path: Path, workers: int) -> None:
    with pytest.raises(BakeError) as caught:
        bake(Broken(), tmp_path / "out", num_workers=workers)
    assert "sample 17 (part 5)" in caught.value.message
    assert "no such picture" in caught.value.message
    assert "__getitem__" in caught.value.message


def test_a_folder_that_is_no_bake_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text("mine")
    with pytest.raises(BakeError, match="not a bake"):
        bake(Images(), tmp_path / "out", num_workers=0, overwrite=True)
    assert contents(tmp_path) == {"out/manifest.json": b"mine"}
