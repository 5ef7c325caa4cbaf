from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotloop.record.publish import write_text_atomic


def test_a_file_is_replaced_or_stays_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_text_atomic(path, "one")
    write_text_atomic(path, "zwei ü")
    assert path.read_text(encoding="utf-8") == "zwei ü"
    assert list(tmp_path.iterdir()) == [path]
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    with pytest.raises(UnicodeEncodeError):
        write_text_atomic(path, "\udcff")
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        write_text_atomic(tmp_path / "taken", "text")
    assert path.read_text() == "zwei ü"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["report.json", "taken"]
