"""Rows of a long recording lie in files that have no name, or in memory where there can be none."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotloop.record.recording import IN_MEMORY, empty_rows, release


def in_a_file(array: np.ndarray[Any, Any]) -> bool:
    base: Any = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    return base is not None


def test_many_rows_lie_in_a_file_where_one_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = empty_rows(IN_MEMORY + 1, tmp_path)
    found["start"] = np.arange(len(found))
    for _ in range(2):
        np.testing.assert_array_equal(found["start"], np.arange(len(found)))
        release(found)
    assert in_a_file(found) and in_a_file(found[10:]["start"])
    assert not list(tmp_path.iterdir())
    assert not in_a_file(empty_rows(IN_MEMORY, tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    found = empty_rows(IN_MEMORY + 1, tmp_path / "missing too")
    assert len(found) == IN_MEMORY + 1 and not in_a_file(found)
