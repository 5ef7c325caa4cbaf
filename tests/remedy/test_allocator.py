"""Growing segments: asked for beside what is set already, where torch reads it. Not yet run on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.running import run_observed

from hotloop.remedy import catalogue
from hotloop.remedy.live.allocator import expandable

GROW = "expandable_segments:True"
OLD, NEW = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {OLD: GROW}),
        ({OLD: "max_split_size_mb:128"}, {OLD: f"max_split_size_mb:128,{GROW}"}),
        ({OLD: "expandable_segments:False,a:1"}, {OLD: f"{GROW},a:1"}),
        ({NEW: "roundup_power2_divisions:[256:1,>:2]"}, dict.fromkeys(
            (OLD, NEW), f"roundup_power2_divisions:[256:1,>:2],{GROW}")),
        ({OLD: GROW}, {OLD: GROW}),
        ({NEW: GROW, OLD: "a:1"}, {NEW: GROW, OLD: f"a:1,{GROW}"}),
    ],
)  # fmt: skip
def test_what_is_set_beside_it_stays(given: dict[str, str], wanted: dict[str, str]) -> None:
    assert expandable(given) == wanted


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("import os, torch\nprint(os.environ['PYTORCH_CUDA_ALLOC_CONF'])", "torch finds no CUDA device"),
        (
            "import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'a:1'\nimport torch\nprint('a:1')",
            "the script sets the allocator's configuration itself",
        ),
    ],
)
def test_it_arrives_before_torch_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, status: str
) -> None:
    monkeypatch.setenv(OLD, "max_split_size_mb:128")
    env = catalogue.environment([catalogue.parse("expandable-segments")])
    done = run_observed(script, folder=tmp_path, env=env, warm=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("a:1", f"max_split_size_mb:128,{GROW}")
    assert [note["status"] for note in done.notes["remedy"]] == [status]
