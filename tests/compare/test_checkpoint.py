"""Checkpoints of two runs: what is on disk is loaded, and its values count."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.compare.planted_runs import asked_once, run  # noqa: F401 - a fixture

from hotloop.compare.checkpoint import checkpoint
from hotloop.compare.items import Item
from hotloop.compare.run import Run, run_of

Change = Callable[[dict[str, Any]], dict[str, Any]]


def rewritten(one: Run, path: Path, change: Change, later_s: float = 0.0) -> Run:
    """The run with its checkpoint at another path, changed, as if it had been written by the run itself."""
    note = one.trace.checkpoints[-1]
    torch.save(change(torch.load(note["path"], weights_only=True)), path)
    written = Path(note["path"]).stat().st_mtime + later_s
    os.utime(path, (written, written))
    return replace(one, traces=(replace(one.trace, checkpoints=({**note, "path": str(path)},)),))


def judged(one: Run, *, exact: bool = True) -> Item:
    return checkpoint(run_of(run("none")), one, exact=exact)


def times(factor: float, names: str = "") -> Change:
    def change(saved: dict[str, Any]) -> dict[str, Any]:
        return {
            name: value * factor if value.is_floating_point() and name.startswith(names) else value
            for name, value in saved.items()
        }

    return change


@pytest.mark.parametrize(
    ("change", "status"),
    [(times(1.0), "passed"), (times(1 + 1e-6), "failed"), (times(0.0, "5.bias"), "failed")],
)
def test_values_count(tmp_path: Path, change: Change, status: str) -> None:
    assert judged(rewritten(run_of(run("none")), tmp_path / "it.pt", change)).status == status


@pytest.mark.nightly
def test_a_file_that_was_renamed_when_complete_is_found(tmp_path: Path) -> None:
    one = rewritten(run_of(run("none")), tmp_path / "it.pt", times(1.0))
    note = one.trace.checkpoints[-1]
    during = replace(one.trace, checkpoints=({**note, "path": f"{note['path']}.partial"},))
    assert judged(replace(one, traces=(during,))).status == "passed"
    Path(note["path"]).unlink()
    assert judged(replace(one, traces=(during,))).status == "not-measured"


def test_values_of_other_computations_are_not_compared(tmp_path: Path) -> None:
    item = judged(rewritten(run_of(run("none")), tmp_path / "it.pt", times(0.0)), exact=False)
    assert (item.status, "values not compared" in item.words) == ("passed", True)


def test_what_was_not_loaded_is_not_measured(tmp_path: Path) -> None:
    one = rewritten(run_of(run("none")), tmp_path / "it.pt", times(1.0))
    (tmp_path / "it.pt").unlink()
    assert judged(one).status == "not-measured"
    later = rewritten(run_of(run("none")), tmp_path / "later.pt", times(1.0), later_s=600.0)
    item = judged(later)
    assert (item.status, "written over since" in item.words) == ("not-measured", True)


@pytest.mark.nightly
def test_a_file_that_both_wrote_is_the_later_run_s(tmp_path: Path) -> None:
    base, again = (
        rewritten(one, tmp_path / "it.pt", times(1.0))
        for one in (run_of(run("none")), run_of(run("none", number=1)))
    )
    item = checkpoint(base, again, exact=True)
    assert (item.status, "the base's was written over since" in item.words) == ("passed", True)
    assert "values not compared" in item.words


def test_an_earlier_file_is_not_what_a_run_wrote_whose_writes_were_thrown_away(tmp_path: Path) -> None:
    item = judged(rewritten(run_of(run("none")), tmp_path / "a.pt", times(1.0), -3600.0))
    assert item.status == "not-measured"
    assert "the candidate's was thrown away: the file there is an earlier one" in item.words
