"""A fix that is interrupted between two files leaves both as they were."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from golden import patch_of

from hotloop.remedy.source import publish


def test_an_interrupt_between_two_files_restores_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Path(__file__).parent / "golden" / "yaml_ignored"
    folder = tmp_path / "project"
    shutil.copytree(case / "before", folder)
    facts = json.loads((case / "facts.json").read_text())
    patch = patch_of(folder, {**facts, "apply": ["num-workers=8"]})
    before = {path: path.read_bytes() for path in patch.files}
    assert len(before) == 2
    really, written = publish.write_bytes_atomic, []

    def write(path: Path, data: bytes) -> None:
        if len(written) == 1:
            written.append(path)
            raise KeyboardInterrupt
        written.append(path)
        really(path, data)

    monkeypatch.setattr(publish, "write_bytes_atomic", write)
    with pytest.raises(KeyboardInterrupt):
        publish.write(patch)
    assert len(written) == 3
    assert {path: path.read_bytes() for path in before} == before
