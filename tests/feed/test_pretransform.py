"""A transform done once for all samples: equal to doing it sample by sample, or refused with the reason."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, RobustScaler, StandardScaler
from torch.utils.data import Dataset, TensorDataset

from hotloop.feed import pretransforming as module
from hotloop.feed.errors import FeedError
from hotloop.feed.pretransforming import NotVectorizable, pretransform

RNG = np.random.default_rng(0)
WINDOWS = RNG.normal(3.0, 2.0, (200, 16, 5))
ROWS = RNG.normal(-1.0, 4.0, (500, 7))


@pytest.mark.parametrize(
    "scaler", [StandardScaler(), MinMaxScaler(), RobustScaler(), StandardScaler(copy=False)]
)
@pytest.mark.parametrize("chunk_bytes", [1, 5000, 1 << 20])
def test_scalers_give_the_samples_own_bits(scaler: Any, chunk_bytes: int) -> None:
    scaler.fit(WINDOWS.reshape(-1, 5).copy())
    before = WINDOWS.copy()
    whole = pretransform(WINDOWS, scaler, chunk_bytes=chunk_bytes)
    assert np.array_equal(whole, np.stack([scaler.transform(window.copy()) for window in before]))
    assert np.array_equal(WINDOWS, before), "the input is not touched"


@pytest.mark.parametrize("chunk_bytes", [1, 700, 1 << 20])
@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=0, max_size=3),
    num_samples=st.integers(1, 70),
    dtype=st.sampled_from(["uint8", "int16", "float32", "float64", "bool"]),
    out_dtype=st.sampled_from([None, np.float32, torch.float16]),
    as_tensor=st.booleans(),
)
def test_elementwise_functions_of_any_shape_and_type(
    chunk_bytes: int, shape: list[int], num_samples: int, dtype: str, out_dtype: Any, as_tensor: bool
) -> None:
    data: Any = np.random.default_rng(1).integers(0, 80, (num_samples, *shape)).astype(dtype)
    if as_tensor:
        data = torch.from_numpy(data)

    def half(sample: Any) -> Any:
        return sample * 3 / 2

    whole = pretransform(data, half, chunk_bytes=chunk_bytes, dtype=out_dtype)
    assert isinstance(whole, torch.Tensor) == (
        out_dtype is torch.float16 or (as_tensor and out_dtype is None)
    )
    for index in range(num_samples):
        alone = half(data[index])
        assert np.array_equal(np.asarray(whole[index], np.float64), _as(alone, out_dtype))


def _as(value: Any, dtype: Any) -> Any:
    if dtype is torch.float16:
        return np.asarray(torch.as_tensor(value).to(dtype), np.float64)
    value = np.asarray(value)
    return value if dtype is None else value.astype(dtype).astype(np.float64)


def refused(data: Any, transform: Callable[[Any], Any], words: str, **how: Any) -> None:
    with pytest.raises(NotVectorizable, match=words) as caught:
        pretransform(data, transform, **how)
    assert caught.value.hint


def test_what_is_computed_over_the_samples_given_is_refused() -> None:
    def standardise(x: Any) -> Any:
        return (x - x.mean()) / x.std()

    refused(
        WINDOWS, standardise, r"standardise gives other values for sample 0 alone.* 80 of 80 differ, by up to"
    )
    refused(WINDOWS, lambda x: np.sort(x, axis=0), "other values")
    refused(WINDOWS, lambda x: np.cumsum(x, axis=0), "other values")


def test_random_and_stateful_transforms_are_refused() -> None:
    refused(WINDOWS, lambda x: x + np.random.rand(), "a second time: it is random or keeps state")
    refused(torch.ones(4, 3), torch.nn.Dropout(0.5), "Dropout gives other values .* a second time")
    seen: list[int] = []
    refused(WINDOWS, lambda x: x + len(seen) * (seen.append(1) is None), "keeps state")


def test_changes_of_number_shape_and_type_are_refused() -> None:
    refused(WINDOWS, lambda x: x.reshape(-1, 5), r"makes shape \(3200, 5\) of 200 samples at once")
    refused(WINDOWS, lambda x: x.sum(), r"makes shape \(\)")
    refused(
        WINDOWS, lambda x: x[:3] if x.ndim == 2 else x, r"shape \(3, 5\) for sample 0 alone and \(16, 5\)"
    )
    refused(
        WINDOWS,
        lambda x: x.astype(np.float32) if x.ndim == 2 else x,
        "float32 for sample 0 alone and float64",
    )


class Stored(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.reads: list[int] = []

    def __len__(self) -> int:
        return 90

    def __getitem__(self, index: int) -> torch.Tensor:
        self.reads.append(index)
        return torch.full((2,), index)


def test_a_dataset_is_read_once_but_for_what_is_checked() -> None:
    dataset = Stored()
    whole = pretransform(dataset, lambda x: x * 2)
    assert torch.equal(whole, torch.arange(90)[:, None].expand(90, 2) * 2)
    assert len(dataset.reads) == 1 + 90 + 32


def test_samples_of_several_shapes_or_kinds_are_refused() -> None:
    refused(
        [np.zeros(3), np.zeros(4)], lambda x: x, r"sample 1 is float64 \(4,\), sample 0 is float64 \(3,\)"
    )
    with pytest.raises(TypeError, match=r"sample 0 is a tuple.*dataset\.tensors"):
        pretransform(TensorDataset(torch.ones(3, 2), torch.ones(3)), lambda x: x)
    with pytest.raises(TypeError, match="no array of numbers"):
        pretransform(WINDOWS, lambda x: "text")
    with pytest.raises(TypeError, match="sparse"):
        pretransform(ROWS.round(), OneHotEncoder(handle_unknown="ignore").fit(ROWS.round()))
    with pytest.raises(TypeError, match="neither callable"):
        pretransform(WINDOWS, 3)


def test_files_in_and_out_in_bounded_memory(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "in.h5", "w") as file:
        source = file.create_dataset("x", data=RNG.normal(size=(4000, 512)))
        out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.float32, source.shape)
        tracemalloc.start()
        result = pretransform(source, lambda x: x * 2, out=out, chunk_bytes=256 << 10)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert result is out
        assert peak < 4 << 20, "the whole is 16 MB"
        assert np.array_equal(out, (source[:] * 2).astype(np.float32))


def test_a_result_larger_than_memory_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_memory_bytes", lambda: 100 << 10)
    with pytest.raises(FeedError, match=r"takes 125 KiB, and 100 KiB of memory are usable"):
        pretransform(WINDOWS, lambda x: x, chunk_bytes=1000)
    assert pretransform(WINDOWS, lambda x: x, dtype=np.float32).dtype == np.float32
