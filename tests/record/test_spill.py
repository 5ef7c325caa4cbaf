"""Arrays of a long recording lie in files that have no name, or in memory where there can be none."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotloop.record.spill import end_to_end, release


def pieces() -> list[np.ndarray[Any, Any]]:
    return [np.arange(3 * rows, dtype=np.float32).reshape(rows, 3) for rows in (40_000, 10, 30_000)]


def in_a_file(array: np.ndarray[Any, Any]) -> bool:
    base: Any = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    return base is not None


def test_large_arrays_lie_in_a_file_and_are_what_they_were(tmp_path: Path) -> None:
    parts = pieces()
    found = end_to_end(parts, tmp_path)
    assert parts == []
    for _ in range(2):
        np.testing.assert_array_equal(found, np.concatenate(pieces()))
        release(found)
    assert in_a_file(found) and in_a_file(found[10:, 1])
    assert not list(tmp_path.iterdir())


def test_small_ones_stay_in_memory(tmp_path: Path) -> None:
    found = end_to_end([np.zeros(0), np.arange(3.0), np.arange(2.0)], tmp_path)
    assert found.tolist() == [0, 1, 2, 0, 1] and not in_a_file(found)


def test_where_no_file_can_be_made_they_lie_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    found = end_to_end(pieces(), tmp_path / "missing too")
    np.testing.assert_array_equal(found, np.concatenate(pieces()))
    assert not in_a_file(found)
