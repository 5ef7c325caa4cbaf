"""Memory that a step frees stays with the process: no page is asked for twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.running import run_observed

from hotloop.feed.memory import heap_chosen
from hotloop.fix.flags import _MALLOPT
from hotloop.remedy import catalogue

#: Pieces above and below what glibc maps alone, freed and asked for again.
SCRIPT = """
import resource, torch
def step():
    pieces = [torch.empty(size << 20, dtype=torch.uint8).fill_(1) for size in (1, 9, 40)]
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
NAME = "keep-freed-memory"
APPLIED = catalogue.environment([catalogue.parse(NAME)])
PAGES_OF_A_STEP = (40 << 20) // 4096


def test_pages_stay(tmp_path: Path) -> None:
    found = run_observed(SCRIPT, folder=tmp_path / "found")
    kept = run_observed(SCRIPT, folder=tmp_path / "kept", env=APPLIED, warm=False)
    assert int(found.stdout) > 40 * PAGES_OF_A_STEP
    assert int(kept.stdout) < 10 * PAGES_OF_A_STEP
    assert kept.notes["remedy"][-1]["status"] == "in effect"


def test_the_patch_does_the_same() -> None:
    script = "\n".join(["import ctypes", "import sys", *_MALLOPT, SCRIPT])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 10 * PAGES_OF_A_STEP


def test_what_the_environment_chose_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    done = run_observed(SCRIPT, folder=tmp_path, env=APPLIED, warm=False)
    status = [note["status"] for note in done.notes["remedy"]]
    assert status == ["MALLOC_TRIM_THRESHOLD_ is set in the environment"]
    assert int(done.stdout) > 40 * PAGES_OF_A_STEP


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, ""),
        ({"LD_PRELOAD": "/usr/lib/libtcmalloc.so.4"}, "LD_PRELOAD has tcmalloc in glibc's place"),
        ({"LD_PRELOAD": "/usr/lib/libfaketime.so"}, ""),
        ({"GLIBC_TUNABLES": "glibc.malloc.check=3"}, "GLIBC_TUNABLES is set in the environment"),
        ({"MALLOC_ARENA_MAX": "2"}, ""),
    ],
)
def test_who_chooses_the_heap(environ: dict[str, str], words: str) -> None:
    assert heap_chosen(environ) == words
