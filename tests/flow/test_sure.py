"""``run --until-sure``: when looks agree, that the command then ends cleanly, and that it says the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import running
from tests.diagnose.synthetic import evidence, steps

from hotloop.flow.sure import Sure, agreed, changes

CASES = Path(__file__).resolve().parents[2] / "benchmarks" / "accuracy" / "cases"


def one(
    steps: int, bottleneck: str = "input", first: str = "input/slow-sample", **more: Any
) -> dict[str, Any]:
    same = {"steps": steps, "passes": 1, "bottleneck": bottleneck, "first": first}
    return {**same, "doubt": "", "changes": 0.0, "precise": True, **more}


def test_three_looks_that_agree_are_enough_and_their_steps_are_said() -> None:
    looks = [one(100), one(130), one(1700)]
    assert "steps 100, 130, 1,700" in agreed(looks, 3)
    assert agreed(looks[:2], 2) == ""
    assert agreed([one(100, first="input/single-process"), *looks[1:]], 3) == ""
    assert agreed([one(100, "host"), *looks[1:]], 3) == ""
    assert agreed(looks, 3, passes=2) == ""
    assert agreed([*looks[1:], one(2000, passes=2)], 4, passes=2)


def test_what_chance_may_change_or_is_not_known_well_enough_goes_on() -> None:
    looks = [one(100), one(130)]
    assert agreed([*looks, one(170, precise=False)], 3) == ""
    assert agreed([*looks, one(170, doubt="other programs kept 2 of 2 cores busy")], 3) == ""
    assert agreed([*looks, one(170, changes=0.003)], 3), "6 / 9 pi^2 of 5 % is 0.0034"
    assert agreed([*looks, one(170, changes=0.003)], 4) == "", "each look has its part of the 5 %"


def test_two_causes_that_cost_the_same_change_places_by_chance() -> None:
    clear = {"data_wait": 0.06, "forward": 0.02}
    assert changes(evidence(steps(clear)), "input") == 0.0
    assert changes(evidence(steps(clear)), "startup") == 1.0
    noise = np.random.default_rng(5).normal(0.05, 0.01, (2, 100))
    even = changes(evidence(steps({"data_wait": noise[0].tolist(), "forward": noise[1].tolist()})), "input")
    assert 0.02 < even < 0.98


def test_a_look_that_fails_and_a_run_of_ranks_are_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise ImportError('the json of the user')")
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    sure = Sure(tmp_path / "no-run", said.append)
    while not said:
        sure.tick()
    sure.close()
    assert len(said) == 1 and "no-run" in said[0] and "cannot look" in said[0]
    other = Sure(tmp_path, said.append)
    for _ in range(2):
        other._answered('{"ranks": 2}', "")
    assert said[1:] == ["--until-sure does not end a run of 2 ranks: they have to end at the same step"]
    other._answered(json.dumps(one(100, doubt="other programs kept 2 cores busy")), "")
    assert other.told == ["--until-sure went on: other programs kept 2 cores busy"]


@pytest.mark.parametrize("how", ["HOTLOOP_STEPS", "HOTLOOP_UNTIL"])
def test_a_loop_that_marks_its_steps_is_ended(how: str, tmp_path: Path) -> None:
    (tmp_path / "until").write_text("it was sure")
    script = """
        import hotloop, torch
        p = torch.zeros(2)
        for i in range(10**6):
            with hotloop.step(update=True):
                p += 1.0
    """
    known = {"HOTLOOP_STEPS": ("7", "--steps 7, and 5 before them as warm-up")}
    value, why = known.get(how, (str(tmp_path / "until"), "it was sure"))
    (ended,) = running.run_observed(script, folder=tmp_path, env={how: value}).notes["exit"]
    assert ended["reason"] == "steps" and ended["steps"] <= 12 and ended["why"] == why


def test_the_file_ends_the_run_in_an_orderly_way(tmp_path: Path) -> None:
    (tmp_path / "until").write_text("it was sure")
    script = """
        import atexit, torch
        atexit.register(print, "goodbye")
        p = torch.nn.Parameter(torch.zeros(2)); optimizer = torch.optim.SGD([p], lr=0.1)
        for i in range(100000):
            p.sum().backward(); optimizer.step()
    """
    done = running.run_observed(script, folder=tmp_path, env={"HOTLOOP_UNTIL": str(tmp_path / "until")})
    assert (done.returncode, done.stdout) == (0, "goodbye\n")
    (ended,) = done.notes["exit"]
    assert (ended["reason"], ended["why"]) == ("steps", "it was sure")
    assert ended["steps"] < 1000


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("case", "old", "new"),
    [
        ("host_python_loss_loop", "range(16)", "range(10**6)"),
        ("input_remote_sleep_one_worker", "in loader:", "in (b for _ in range(10**6) for b in loader):"),
    ],
)
def test_a_planted_case_without_end_is_ended_with_the_verdict_of_the_whole(
    case: str, old: str, new: str, tmp_path: Path
) -> None:
    text = (CASES / f"{case}.py").read_text()
    said = []
    for name, script, flags in (("whole", text, ()), ("sure", text.replace(old, new), ("--until-sure",))):
        (tmp_path / f"{name}.py").write_text(script)
        command = ("run", *flags, "--out", name, "--", sys.executable, f"{name}.py")
        done = running.succeeded(running.hotloop(*command, folder=tmp_path, warm=False))
        report = json.loads((tmp_path / name / "report.json").read_text())
        said.append(report["bottleneck"])
        truth = next(line for line in text.splitlines() if line.startswith("# truth:"))
        assert report["findings"][0]["id"] in truth  # of two that cost the same either may be first
    assert said[0] == said[1]
    assert "error rate 5 %" in report["ended"] and "ended after" in done.stderr
    assert not (tmp_path / "sure" / "until-sure").exists()
