"""``compare``: side by side, and a gate that says when it cannot tell."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from dataclasses import replace

import numpy as np
import pytest
from tests.compare.planted_runs import hotloop, run
from tests.running import succeeded

from hotloop.cli.arguments import part
from hotloop.cli.compare import gate
from hotloop.compare import table
from hotloop.compare.comparison import Comparison, Group, compare
from hotloop.compare.run import run_of
from hotloop.compare.speed import _Pace, _ratio
from hotloop.findings import Finding


@pytest.fixture(scope="module")
def slower() -> Comparison:
    pair = [Group(label=kind, runs=(run_of(run(kind), kind),)) for kind in ("none", "slow")]
    (found,) = compare(pair)
    return found


def test_what_moved_is_named(slower: Comparison) -> None:
    assert slower.speed.ratio is not None and slower.speed.ratio < 1
    assert slower.phases[0].phase == "data_wait"
    assert slower.phases[0].candidate_s > slower.phases[0].base_s + 0.02  # 16 samples of 2 ms
    assert slower.phases[0].beyond_noise
    found = Finding(id="cadence/images", message="", advice="", evidence=(), severity="low")
    had, noted, none = (run_of(run("none")) for _ in range(3))
    had, noted = replace(had, findings=(found,)), replace(noted, findings=(replace(found, severity="info"),))
    told = compare([Group(label=f"{i}", runs=(one,)) for i, one in enumerate((had, noted, none))])
    assert [one.gone for one in told] == [(), (found.id,)]


def test_a_phase_that_others_may_have_stretched_is_in_doubt() -> None:
    base, slow = (run_of(run(kind), kind) for kind in ("none", "slow"))
    at = np.arange(0.0, 60.0, 0.5)
    waiting = {"t_s": at, "cpu_ratio": 0 * at, "main_cpu_s": at * 0.001, "core_wait_s": at}
    beside = replace(
        slow.recording, system={"t_s": at, "cpu_ratio": 1 + 0 * at}, process_system={slow.lead.pid: waiting}
    )
    (found,) = compare(
        [Group(label=one.label, runs=(one,)) for one in (base, replace(slow, recording=beside))]
    )
    assert found.phases[0].phase == "data_wait" and not found.phases[0].beyond_noise
    assert found.speed.doubt and found.speed.ci95 is not None
    assert found.speed.ci95[0] < 1 < found.speed.ci95[1]  # the cores that it did not get may be all of it


def test_launches_of_both_sides_share_their_noise() -> None:
    slow, fast = _Pace(2.0, 0.05, 1, launches=2), _Pace(1.0, 0.15, 1, launches=2)
    ratio, half = _ratio(slow, fast)
    assert ratio == 2
    assert half == pytest.approx(4.303 * 0.025**0.5, rel=1e-3)  # Student, two degrees of freedom


@pytest.mark.parametrize(
    ("edges", "doubt", "judged"),
    [
        ((0.80, 0.90), False, "slower"),
        ((0.80, 0.90), True, "cannot tell"),  # others were on the machine
        ((0.90, 1.05), False, "cannot tell"),
        ((0.98, 1.02), False, "same"),
        ((1.05, 1.10), False, "faster"),
        (None, False, "cannot tell"),
    ],
)
def test_a_limit_of_three_percent(
    slower: Comparison, edges: tuple[float, float] | None, doubt: bool, judged: str
) -> None:
    speed = replace(slower.speed, ci95=edges, doubt=doubt)
    assert replace(slower, speed=speed).judged(0.03) == judged


def test_the_table_fits_with_launches_under_one_label() -> None:
    runs = [f"before={run('none')}", f"before={run('none', number=1)}", f"after={run('slow')}"]
    done = succeeded(hotloop("compare", *runs))
    assert "data_wait" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_other_commands_are_said_above_the_speed() -> None:
    folders = run("none"), run("none", number=1)
    alike = [Group(label=f"{i}", runs=(run_of(folder, f"{i}"),)) for i, folder in enumerate(folders)]
    other = Group(label="other", runs=(run_of(run("slow"), "other"),))
    nested = [replace(one, label=f"/long/enough/to/be/cut/verify-{i}/base") for i, one in enumerate(alike)]
    assert "verify-0/base" in (told := table.render(nested, compare(nested))) and "verify-1/base" in told
    assert "commands" not in table.render(alike, compare(alike))
    text = table.render([alike[0], other], compare([alike[0], other]), 50)
    above, _, _ = text.partition("\nspeed ")
    assert "\nnote: other: one launch of a side" in above
    assert max(len(line) for line in text.splitlines() if "/" not in line) <= 50  # a path stays whole
    assert above.startswith("the commands differ\n  0 ") and "\n  other " in above


@pytest.mark.parametrize(
    ("edges", "strict", "code"), [((0.8, 0.9), False, 1), ((0.9, 1.1), False, 0), ((0.9, 1.1), True, 1)]
)
def test_the_gate_closes_only_beyond_the_noise(
    slower: Comparison, edges: tuple[float, float], strict: bool, code: int
) -> None:
    one = replace(slower, speed=replace(slower.speed, ci95=edges, doubt=False))
    assert gate([one], 0.03, strict=strict) == code


def test_a_crashed_run_does_not_pass_the_gate(capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = compare([Group(label=kind, runs=(run_of(run(kind), kind),)) for kind in ("slow", "crash")])
    one = replace(one, label="/runs/" + "nightly-" * 9, speed=replace(one.speed, doubt=False))
    assert (one.judged(0.03), gate([one], 0.03, strict=False)) == ("cannot tell", 1)
    said = capsys.readouterr().err
    assert "not whole" in said.replace("\n", " ")
    assert max(map(len, said.splitlines())) <= 80


def test_json_and_bad_input() -> None:
    done = hotloop("compare", "--json", str(run("none")), str(run("none", number=1)))
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["comparisons"][0]["settings"] == {}
    assert [entry["num_steps"] for entry in found["runs"]] == [64, 64]
    assert found["runs"][0]["label"] == run("none").name, "no path where the last part tells them apart"
    alone = hotloop("compare", str(run("none")))
    assert (alone.returncode, "nothing to compare" in alone.stderr) == (2, True)
    for text in ("much", "3", "1", "1000%", "-1%", "nan"):
        with pytest.raises(ArgumentTypeError, match="write 3%"):
            part(text)
    assert [part(text) for text in ("3%", "0.03", "150%", "0")] == [0.03, 0.03, 1.5, 0.0]
    limit = hotloop("compare", "a", "b", "--fail-if-slower", "3")
    assert (limit.returncode, "write 3%" in limit.stderr) == (2, True)
    strict = hotloop("compare", "a", "b", "--strict")
    assert (strict.returncode, "--fail-if-slower 3% --strict" in strict.stderr) == (2, True)
