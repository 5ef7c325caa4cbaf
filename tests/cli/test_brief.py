"""A brief says what to write and how to judge it; its commands judge a change written by its words."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.running import hotloop, succeeded
from tests.waiting import waiting

from hotloop import load
from hotloop.fix.edits import Left
from hotloop.flow import brief as brief_of
from hotloop.flow.brief import brief
from hotloop.flow.examine import build_report, examine, read
from hotloop.remedy import catalogue
from hotloop.report.html import brief as render

SCRIPT = waiting(128, 0.02)


def test_a_program_reads_a_run_as_the_report_says_it(project: Path) -> None:
    found = load(project / "run")
    report = json.loads((project / "run" / "report.json").read_text())
    assert (found.verdict, found.bottleneck) == (report["verdict"], report["bottleneck"])
    assert [one.id for one in found.findings] == [one["id"] for one in report["findings"]]
    seconds = found.steps["end_s"] - found.steps["start_s"]
    assert len(seconds) == report["num_steps"] and found.steps["data_wait"].sum() <= seconds.sum()
    assert found.verdict.split(":")[0] in str(found) and "<iframe" in found._repr_html_()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script that waits for its samples, and its run."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text(SCRIPT)
    command = ("--", sys.executable, "train.py", "--n_threads", "0")  # which it does not read
    succeeded(hotloop("run", "--evidence", "--out", "run", *command, folder=folder))
    return folder


@pytest.fixture(scope="module")
def found(project: Path) -> dict[str, Any]:
    return brief(project / "run", "input/single-process")


def test_a_brief_of_random_samples_names_no_cache(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(waiting(40, 0.02, draws=True))
    hotloop("run", "--out", "run", "--", sys.executable, "train.py", folder=tmp_path)
    document = brief(tmp_path / "run", "input/slow-sample")
    assert "cache-samples" not in [one["id"] for one in document["remedies"]]
    assert document["effect"] == "numeric"
    document = brief(tmp_path / "run", "input/single-process")  # workers draw other numbers: other values
    assert document["effect"] == "semantic" and "bit for bit" not in " ".join(document["same"])
    assert all(
        "--effect semantic" in one["command"] for one in document["judge"] if "verify" in one["command"]
    )
    done = hotloop("fix", "--no-check", "run", folder=tmp_path)
    assert "num_workers=" in done.stdout and "effect: semantic" in done.stderr


def test_what_an_argument_asks_for_is_recorded_again_with_its_new_value(project: Path) -> None:
    left = Left(remedy="num-workers", why="it is given", write="run it with --n_threads 2")
    patch: Any = SimpleNamespace(left=[left], changes=[])
    told = brief_of._remedy(catalogue.get("num-workers"), {"data": {}}, patch, False)
    examination = examine(read(project / "run"))
    after = brief_of._judge(project / "run", examination, build_report(examination), "exact", [told])[0]
    assert told["write"] == left.write and after["command"].endswith("train.py --n_threads 2")


def test_a_brief_of_a_loop_that_acts_asks_for_actions_and_not_for_batches(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brief_of, "acts", lambda _: True)
    same = brief(project / "run", "input/single-process")["same"]
    assert "actions" in same[0] and not any("batch" in line for line in same)


def test_a_brief_holds_cause_place_numbers_recipe_and_what_must_stay(found: dict[str, Any]) -> None:
    assert found["id"] == "input/single-process"
    code = found["code"]
    assert "DataLoader(" in code["lines"][found["where"]["line"] - code["first"]]
    numbers = found["numbers"]
    assert numbers["cost_ci95"][0] <= numbers["cost_s_per_step"] <= numbers["cost_ci95"][1]
    assert numbers["most_gain"] > 1
    workers = next(one["spelled"] for one in found["remedies"] if one["id"] == "num-workers")
    assert f"num_workers={workers.partition('=')[2]}, persistent_workers=True" in found["recipe"]
    assert found["effect"] == "exact" and "every loss, bit for bit" in found["same"]


def test_what_backward_does_for_it_is_part_of_the_most_that_removing_it_gives() -> None:
    report = {"step_s": {"mean": 0.1}, "num_steps": 9, "throughput": {"steps_per_s": 10.0, "ci95": None}}
    loop = {"id": "host/python-in-step", "cost_s_per_step": 0.02, "cost_ci95": None, "share": 0.2}
    numbers = brief_of._numbers(report, {**loop, "gain": None, "data": {"besides_s": 0.03}})
    assert numbers["most_gain"] == pytest.approx(2.0)
    least = brief_of._numbers(report, {**loop, "gain": None, "data": {"at_least": True}})
    assert least["most_gain"] is None  # what is known is what it costs at least


def test_the_document_marks_the_line_and_has_each_command(found: dict[str, Any]) -> None:
    text = render(found)
    (marked,) = [line for line in text.splitlines() if line.startswith("> ")]
    assert f"{found['where']['line']}  for x, y in DataLoader(" in marked
    assert all(f"```\n{one['command']}\n```" in text for one in found["judge"])
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "## Cause", "## Numbers", "## What to write", "## When this is wrong", "## What must stay the same",
        "## How to judge it",
    ]  # fmt: skip


def test_its_commands_judge_a_change_written_by_its_words(project: Path, found: dict[str, Any]) -> None:
    (project / "train.py").write_text(SCRIPT.replace("batch_size=2,", "batch_size=2, num_workers=2,"))
    after, same, faster, _ = [shlex.split(one["command"]) for one in found["judge"]]
    assert hotloop(*after[1:], folder=project).returncode == 0
    verified = hotloop(*same[1:], folder=project)
    assert verified.returncode == 0, verified.stdout
    compared = json.loads(hotloop(*faster[1:], "--json", folder=project).stdout)
    assert compared["comparisons"][0]["ratio"] > 1
    (project / "train.py").write_text(SCRIPT)


def test_a_finding_is_named_by_number_or_id_and_others_are_listed(project: Path) -> None:
    done = hotloop("brief", "run", "input/single-process", "--json", folder=project)
    number = str(json.loads(done.stdout)["number"])
    assert brief(project / "run", number)["id"] == "input/single-process"
    done = hotloop("brief", "run", "input/no-such", folder=project)
    assert done.returncode == 2 and f"{number} input/single-process" in done.stderr


@pytest.mark.nightly
def test_without_evidence_the_base_is_recorded_first(project: Path) -> None:
    assert hotloop("run", "--out", "bare", "--", sys.executable, "train.py", folder=project).returncode == 0
    first = brief(project / "bare")["judge"][0]["command"]
    assert first.startswith(f"hotloop run --evidence --out {project}/bare-base -- ")
