"""Runs over time: a change is marked where runs differ by more than they do anyhow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hotloop.cli.main import main
from hotloop.flow.history import history, render


def write(folder: Path, rates: list[float], *, command: str = "train.py", exit_code: int = 0) -> None:
    """Run folders with reports as ``hotloop run`` leaves them, an hour apart."""
    for number, per_s in enumerate(rates):
        run = folder / f"{Path(command).stem}-{number:02}"
        run.mkdir(parents=True)
        (run / "run.json").write_text("{}")
        report = {
            "command": ["python", command], "start_unix_s": 1e9 + 3600.0 * number, "bottleneck": "input",
            "exit_code": exit_code,
            "throughput": {
                "samples_per_s": per_s, "steps_per_s": per_s / 8, "ci95": [per_s / 8 * 0.99, per_s / 8 * 1.01]
            },
        }  # fmt: skip
        (run / "report.json").write_text(json.dumps(report))


STEADY = [100.0, 102.0, 99.0, 101.0, 98.5, 100.5, 101.5]


def test_a_lasting_change_is_marked_once(tmp_path: Path) -> None:
    write(tmp_path, [*STEADY, 81.0, 80.0, 82.0, 81.5])
    marks = [(one.name, one.ratio) for one in history(tmp_path) if one.changed]
    assert [name for name, _ in marks] == ["train-07"]
    assert marks[0][1] is not None
    assert marks[0][1][0] == pytest.approx(0.807, abs=0.01)


def test_what_runs_differ_by_anyhow_is_no_change(tmp_path: Path) -> None:
    write(tmp_path, [100.0, 130.0, 90.0, 115.0, 85.0, 125.0, 95.0])
    write(tmp_path, [100.0, 50.0, 200.0], command="other.py")  # too few to tell
    assert not [one for one in history(tmp_path) if one.changed]
    assert "after 3 like it" in render([one for one in history(tmp_path) if one.command == "other.py"])


def test_the_gate_looks_at_the_newest_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, [*STEADY, 80.0])
    write(tmp_path, STEADY, command="even.py")
    assert main(["history", str(tmp_path), "--fail-if-slower", "5%"]) == 1
    told = capsys.readouterr()
    assert "train-07: 0.797x" in told.err
    assert "SLOWER 0.80x" in told.out
    assert "python even.py" in told.out
    assert main(["history", str(tmp_path), "--fail-if-slower", "30%"]) == 0


def alter(run: Path, **values: object) -> None:
    """Change the report of a run."""
    report = json.loads((run / "report.json").read_text())
    (run / "report.json").write_text(json.dumps(report | values))


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_run_in_steps_a_second_takes_no_other_out(tmp_path: Path, exit_code: int) -> None:
    write(tmp_path, [*STEADY, 80.0])
    pace = {"samples_per_s": None, "steps_per_s": 700.0, "ci95": None}
    alter(tmp_path / "train-06", throughput=pace, exit_code=exit_code)
    assert main(["history", str(tmp_path), "--fail-if-slower", "5%"]) == 1


@pytest.mark.parametrize("change", ["what-if", "patched", "applied threads=1"])
def test_a_run_with_a_change_is_shown_and_not_compared(
    tmp_path: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, [*STEADY, 80.0])
    field = {
        "what-if": {"what_if": [{"name": "free-data"}]},
        "patched": {"patch": {"met": [], "missed": []}},
        "applied threads=1": {"applied": [{"id": "threads", "value": 1}]},
    }[change]
    alter(tmp_path / "train-07", **field)
    assert main(["history", str(tmp_path), "--fail-if-slower", "5%"]) == 0
    assert f"train-07 {change}\n" in capsys.readouterr().out


def test_broken_runs_are_shown_and_foreign_reports_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, [100.0], exit_code=1)
    for number, text in enumerate(('{"command": 3}', "[" * 100_000, '{"command": ["\\u001b[2J"]}')):
        run = tmp_path / f"bad-{number}"
        run.mkdir()
        (run / "run.json").write_text("{}")
        (run / "report.json").write_text(text)
    assert main(["history", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "not whole" in out
    assert "bad-" not in out
    assert main(["history", str(tmp_path / "none")]) == 2
