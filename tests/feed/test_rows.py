"""Rows are gathered the same compiled and in Python, and never from or to where they do not belong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hotloop import fast
from hotloop.feed.collating import gather

SOURCE = np.random.default_rng(0).integers(0, 256, 9_000_001, np.uint8)


@pytest.fixture(params=["compiled", "python"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(fast, "gather", None)
    elif fast.gather is None:
        pytest.skip("not compiled for this interpreter")


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("skipped", [0, 3])
@pytest.mark.parametrize(
    ("num", "size"), [(1, 1), (5, 63), (64, 3072), (3, 8192), (300, 16_448), (40, 150_528), (2, 4_000_001)]
)
def test_every_row_comes_from_its_place(num: int, size: int, skipped: int) -> None:
    starts = np.random.default_rng(num).integers(0, SOURCE.size - size + 1, num)
    memory = torch.full((num * size + 128,), 7, dtype=torch.uint8)
    into = memory[skipped : skipped + num * size].view(num, size)
    gather(SOURCE, starts, into, size)
    for row, start in zip(into.numpy(), starts.tolist(), strict=True):
        assert np.array_equal(row, SOURCE[start : start + size])
    assert (memory[:skipped] == 7).all() and (memory[skipped + num * size :] == 7).all()


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("into", [torch.empty(2, 9), torch.empty(4, 2).t()])
def test_a_batch_of_another_size_is_refused(into: Any) -> None:
    with pytest.raises(ValueError, match="do not fill"):
        gather(SOURCE, np.array([0, 8]), into, 16)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("size", [8, 10_000])
def test_a_row_that_ends_outside_is_refused(size: int) -> None:
    with pytest.raises((IndexError, ValueError)):
        gather(SOURCE, np.array([0, SOURCE.size - size + 1]), torch.empty(2, size, dtype=torch.uint8), size)
