"""A fix that is interrupted between two files leaves both as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fix.golden import case_of, patch_of

from hotloop.fix import patch as patches


def test_an_interrupt_between_two_files_restores_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of("yaml_ignored")
    patch = patch_of(case.write(tmp_path / "project"), {**case.facts, "apply": ["num-workers=8"]})
    before = {path: path.read_bytes() for path in patch.files}
    assert len(before) == 2
    really, written = patches.write_bytes_atomic, []

    def write(path: Path, data: bytes) -> None:
        if len(written) == 1:
            written.append(path)
            raise KeyboardInterrupt
        written.append(path)
        really(path, data)

    monkeypatch.setattr(patches, "write_bytes_atomic", write)
    with pytest.raises(KeyboardInterrupt):
        patches.write(patch)
    assert len(written) == 3
    assert {path: path.read_bytes() for path in before} == before
