"""The mark of a run: who has the key recorded it, with this command in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotloop.record.runfile import is_own, mark


def test_only_ones_own_command_has_ones_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    own = mark(["python", "a.py"], "/w")
    assert is_own(["python", "a.py"], "/w", own)
    assert mark(["python", "a.py"], "/w") == own
    for command, cwd, given in (
        (["python", "b.py"], "/w", own), (["python", "a.py"], "/v", own), (["python", "a.py"], "/w", ""),
        (["python", "a.py"], "/w", own[:-1] + "\u00e9"),
    ):  # fmt: skip
        assert not is_own(command, cwd, given)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    assert not is_own(["python", "a.py"], "/w", own)


def test_without_a_key_that_is_private_there_is_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    own = mark(["a"], "/w")
    (tmp_path / "hotloop" / "key").chmod(0o644)
    assert mark(["a"], "/w") == ""
    assert not is_own(["a"], "/w", own)
    (tmp_path / "hotloop" / "key").unlink()
    (tmp_path / "hotloop").rmdir()
    (tmp_path / "hotloop").touch()
    assert mark(["a"], "/w") == ""
