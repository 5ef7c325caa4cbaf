"""``hotloop analyze`` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.running import SRC


def hotloop(*arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hotloop", "analyze", *arguments],
        input=stdin,
        env={"PYTHONPATH": str(SRC), "PATH": "/usr/bin", **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    lines = [f"step {i} throughput: {2052 if i < 60 else 539} samples/s\n" for i in range(120)]
    path.write_text("".join(lines))
    return path


def test_it_says_when_and_how_much_in_eighty_columns(log: Path) -> None:
    done = hotloop(str(log))
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = done.stdout.splitlines()
    assert first == "Throughput falls from 2,052 to 539 samples/s (-74 %) at step 60 on."
    assert any("step 60: 2,052 -> 539 (-74 %)" in line for line in rest)
    assert all(len(line) <= 80 for line in rest)
    assert "\x1b" not in done.stdout
    assert max(map(len, hotloop(str(log), COLUMNS="60").stdout.splitlines()[1:])) <= 60  # in a pipe too


def test_json_has_the_agreed_shape(log: Path) -> None:
    document = json.loads(hotloop("--json", str(log)).stdout)
    assert document["schema"] == 1
    assert set(document) >= {"sources", "throughput", "changes", "phases", "findings"}
    (source,) = document["sources"]
    assert (source["file"], source["lines"], source["skipped"]) == (str(log), 120, 0)
    (change,) = document["changes"]
    assert (change["step"], change["before"], change["after"]) == (60, 2052, 539)
    assert document["findings"][0]["where"] == {"file": str(log), "line": 61, "function": ""}


def test_standard_input_is_a_log_too(log: Path) -> None:
    done = hotloop("-", stdin=log.read_text())
    assert done.stdout.splitlines()[0] == hotloop(str(log)).stdout.splitlines()[0]


def test_a_pattern_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "odd.log"
    path.write_text("".join(f"~~ {i} ~~ took 250 (waited 100)\n" for i in range(20)))
    pattern = r"~~ (?P<step>\d+) ~~ took (?P<time_ms>\d+) \(waited (?P<data_time_ms>\d+)\)"
    document = json.loads(hotloop("--json", "--pattern", pattern, str(path)).stdout)
    assert document["throughput"][0]["rate"] == 4.0
    assert document["phases"][1]["name"] == "data_wait"
    assert document["phases"][1]["s_per_step"] == pytest.approx(0.1)
    assert document["phases"][1]["share"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.log"], "error: nothing.log: no such file"),
        (["--pattern", "(", "LOG"], "--pattern is no regular expression"),
        (["--pattern", r"(?P<x>\d)", "LOG"], "--pattern has no named group that is known"),
        ([], "the following arguments are required"),
    ],
)
def test_mistakes_are_one_clear_error(arguments: list[str], words: str, log: Path) -> None:
    done = hotloop(*[str(log) if argument == "LOG" else argument for argument in arguments])
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_only_unreadable_files_is_a_mistake(tmp_path: Path) -> None:
    done = hotloop(str(tmp_path))
    assert done.returncode == 2
    assert "without logs" in done.stdout
