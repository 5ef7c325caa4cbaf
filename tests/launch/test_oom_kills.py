"""The kernel's counts of kills for want of memory, in its own formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotloop import cgroups
from hotloop.launch.machine import oom_kills, oom_kills_since


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("memory.events", "low 0\nhigh 3\nmax 12\noom 4\noom_kill 2\noom_group_kill 1\n"),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
    ],
)
def test_both_versions_of_cgroups_are_read(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "folders", lambda controller, root: [tmp_path / "none", tmp_path])
    before = oom_kills()
    (tmp_path / name).write_text(text)
    assert oom_kills()["cgroup"] == 2
    assert "cgroup" not in oom_kills_since(before)  # it was not counted when the run began
    assert oom_kills_since({"cgroup": 1})["cgroup"] == 1


def test_a_kernel_without_counts_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "folders", lambda controller, root: [tmp_path])
    assert "cgroup" not in oom_kills()
