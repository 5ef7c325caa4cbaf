"""The page of evidence follows from the result files, and says which one is missing or broken."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the page has a picture")

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "docs"))

import evidence  # type: ignore[import-not-found]  # noqa: E402
import result_files  # type: ignore[import-not-found]  # noqa: E402


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = shutil.copytree(result_files.RESULTS, tmp_path / "results")
    for module in (result_files, evidence):
        monkeypatch.setattr(module, "RESULTS", folder)
    return folder


def test_the_page_and_its_picture_change_with_a_result(results: Path) -> None:
    kept, drawn = evidence.page(), evidence.picture()
    assert (kept, drawn) == tuple(path.read_text() for path in evidence.pages())
    [path] = results.glob("recovery-*-cases.json")
    text = json.loads(path.read_text())
    next(iter(text["cases"].values()))["tuned_per_s"] *= 2
    path.write_text(json.dumps(text))
    assert evidence.picture() != drawn
    (results / "another-cpu-2026-11-29.json").write_text("{}")
    assert "another-cpu-2026-11-29.json" in evidence.page()


def test_a_missing_or_broken_result_is_named(results: Path) -> None:
    [traces] = results.glob("traces-*.json")
    traces.write_text('{\n"mb": }')
    with pytest.raises(result_files.ResultError, match=rf"{traces.name}:2: no JSON: .*; measure it again"):
        evidence.page()
    traces.write_text("{}")
    with pytest.raises(result_files.ResultError, match=rf"{traces.name}: no mb; measure it again"):
        evidence.page()
    traces.unlink()
    with pytest.raises(result_files.ResultError, match=r"traces-\*\.json: no such .*benchmarks/traces\.py"):
        evidence.page()


def test_what_is_measured_leaves_the_last_table(results: Path) -> None:
    for size in (1000, 100_000):
        run = {"command": ["hotloop", "report"], "seconds": 2.5, "cpu_s": 2, "peak_mb": 300}
        row = {
            "ranks": 1024, "steps": size, "nodes": 8, "recording_mb": 9, "cores": 2, "load": 0.5,
            "runs": [run],
        }  # fmt: skip
        (results / "scale-cpu-2026-11-29.json").write_text(json.dumps(row))
        page = evidence.page()
        assert (
            f"| 1,024 x {size:,} | 8 | 9 MB | `hotloop report` | 2.5 s | 2.0 s | 300 MB | 2 cores, load 0.5 |"
            in page
        )
        assert ("1,024 ranks x 100,000 steps" in page) is (size == 1000)


def test_every_result_and_every_command_of_the_page_exists() -> None:
    page = evidence.page()
    assert [path.name for path in result_files.RESULTS.iterdir() if path.name not in page] == []
    named = set(re.findall(r"`python (\S+\.py)", page))
    assert [name for name in named if not (ROOT / name).exists()] == []
