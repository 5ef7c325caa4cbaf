"""The terminal report: narrow enough, plain when piped, and it says the right thing first."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import VERDICT, empty, findings, full, full_steps, healthy, recording

from hotloop import units
from hotloop.findings import Finding
from hotloop.report import model, terminal, words
from hotloop.report.next import of_findings, of_run

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def wide(text: str) -> int:
    return max(map(words.cells, text.splitlines()))


@pytest.mark.parametrize("width", [50, 80, 100])
@pytest.mark.parametrize("report", [full(), healthy(), empty()], ids=["full", "healthy", "empty"])
def test_no_line_is_wider_than_the_page(report: dict[str, Any], width: int) -> None:
    for color in (False, True):
        text = ANSI.sub("", terminal.render(report, width=width, color=color))
        # The path of the page and what is to be typed stay in one piece, to be copied.
        whole = ("report: ", "next: ", "      hotloop ")
        assert wide("\n".join(line for line in text.splitlines() if not line.startswith(whole))) <= width


def test_piped_it_holds_no_escape_and_no_trailing_space() -> None:
    text = terminal.render(full())
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_colour_changes_nothing_but_colour() -> None:
    report = full()
    colored = terminal.render(report, color=True)
    assert "\x1b[" in colored and ANSI.sub("", colored) == terminal.render(report)


def test_the_verdict_comes_first() -> None:
    head = " ".join(terminal.render(full()).split("\n\n")[1].split())
    assert head == VERDICT


def test_the_bar_is_one_line_whose_letters_are_the_shares() -> None:
    report = full()
    bar = next(line for line in terminal.render(report).splitlines() if line.startswith("DDDD"))
    assert len(bar) == 80
    share = next(phase["span_share"] for phase in report["phases"] if phase["name"] == "data_wait")
    assert bar.count("D") == pytest.approx(share * 80, abs=1)
    assert "D data wait" in terminal.render(report)


def test_seconds_beside_the_bar_are_of_what_the_bar_is_of() -> None:
    report = {**full(), "bottleneck": "startup"}
    phase = next(phase for phase in report["phases"] if phase["name"] == "checkpoint")
    whole, within = (units.duration(phase[key] / report["num_steps"]) for key in ("seconds", "span_seconds"))
    assert whole != within and re.search(rf"K checkpoint +{whole}  ", terminal.render(report))
    assert re.search(rf"K checkpoint +{within}  ", terminal.render(full()))


def test_what_the_verdict_says_is_not_said_again_below() -> None:
    report = full()
    report["findings"][0]["message"] = "Scaler.transform runs once per sample."
    text = terminal.render(report)
    assert "Scaler.transform" not in text
    assert report["findings"][0]["advice"] in " ".join(text.split())


def test_a_mean_that_is_not_the_steady_step_is_told_from_it() -> None:
    report = full()
    steady = 1 / report["throughput"]["steps_per_s"]
    assert "when steady" not in terminal.render(report)
    report["step_s"]["mean"] = 5 * steady
    assert f"/step ({units.duration(steady)} when steady) · " in terminal.render(report)


def test_updates_are_told_from_steps_and_what_lies_outside_of_them_is_said() -> None:
    report = full()
    report["num_updates"] = report["num_steps"]
    assert "updates)" not in terminal.render(report) and "outside the steps" not in terminal.render(report)
    report["num_updates"] = report["num_steps"] // 4
    phase = next(one for one in report["phases"] if one["name"] == "evaluation")
    phase["seconds"] = phase["span_seconds"] + 0.2 * report["wall_s"]
    said = terminal.render(report)
    assert f"steps ({report['num_updates']:,} updates)" in said and "outside the steps: evaluation" in said


def test_five_findings_in_full_and_the_rest_by_name() -> None:
    text = terminal.render(full())
    assert "1  input/slow-sample" in text and "57.1 ms ± 1.90 ms/step  62 %  high" in text
    assert "src/tcn_state/data/windows.py:19 in __getitem__" in text
    assert "> Transform all frames once in __init__ and index the result." in text
    assert "5  cadence/checkpoint" in text and "\n6  " not in text
    assert "4 more: host/sync-in-step" in text and "noted: device/amp-off" in text


def test_settings_that_differ_are_said_and_others_are_not() -> None:
    text = terminal.render(full())
    assert "num_workers is 2, configured 24 (configs/überbau.yaml:12)" in text
    assert "batch_size" not in text


def test_what_could_not_be_seen_startup_and_the_page_are_said() -> None:
    text = terminal.render(full())
    told = " ".join(text.split())
    assert "start-up 11.8 s: setup 5.20 s (most of it at train.py:4), import torch 4.10 s, other" in told
    assert "; then first batch 1.30 s" in text  # which start-up's 11.8 s do not hold
    assert "!  Worker 3 of rank 1 was killed" in text and "report.html" in text
    assert "rank 1 is slowest" in text


def test_a_healthy_run_gets_no_advice() -> None:
    text = terminal.render(healthy())
    assert "nothing worth fixing" in text.lower()
    assert ">" not in text
    tried = {**healthy(), "verdict": "Compute-bound: 90 %; worth a trial: page faults take 16 %."}
    assert "No single cause" not in terminal.render(tried)


def test_a_run_without_steps_says_why_that_may_be() -> None:
    text = terminal.render({**empty(), "exit_code": 3})
    assert "exit code 3 before a step was complete" in text
    assert "cannot be looked into" not in " ".join(text.split())  # python trian.py
    for other in ({"exit_code": 0}, {"exit_code": 130}, {"command": ["sudo", "python", "train.py"]}):
        text = terminal.render({**empty(), "exit_code": 3, **other})
        assert "cannot be looked into" in " ".join(text.split())
    text = terminal.render({**empty(), "without_torch": ["/usr/bin/python3"]})
    assert "Run the command with the Python that has torch" in text


def test_a_run_that_resumes_what_has_ended_is_told_so() -> None:
    report = {**empty(), "ranks": [{"rank": 0}], "exit_code": 0}
    assert "It read a checkpoint" not in terminal.render(report)
    assert "It read a checkpoint" in terminal.render({**report, "checkpoint_read": True})


def test_inference_is_told_from_a_script_that_ran_no_model() -> None:
    report = empty()
    report["ranks"] = [{"rank": 0}]
    report["phases"] = [
        {"name": "forward", "seconds": 3.0, "share": 1.0, "span_share": 0.0, "s_per_step": 0.0}
    ]
    assert "inference or evaluation only" in terminal.render(report)
    assert "inference or evaluation only" not in terminal.render({**report, "exit_code": 1})
    report["phases"][0]["seconds"] = 0.0
    report["warnings"] = []
    assert "no model was run" in terminal.render(report)
    trains = {**report, "phases": [{**report["phases"][0], "name": "backward", "seconds": 3.0}]}
    assert not re.search("no model was run|inference", terminal.render(trains))
    report["warnings"] = ["not all could be stored: disk I/O error"]
    assert "no model was run" not in terminal.render(report)


def test_a_file_name_cannot_move_the_cursor() -> None:
    report = full()
    report["findings"][0]["where"]["file"] = "/tmp/a\x1b[2J\n\rb.py"
    report["findings"][0]["message"] = "first\x1b[31m second\x07"
    text = terminal.render(report)
    assert "\x1b" not in text and "\r" not in text and "\x07" not in text
    assert "a\\x1b[2J\\n\\rb.py:19" in text


@settings(deadline=None)
@given(st.lists(st.floats(0.0001, 1), min_size=1, max_size=14), st.integers(40, 120))
def test_a_bar_is_exactly_as_wide_as_the_page(shares: list[float], width: int) -> None:
    counts = terminal.bar_columns([(str(i), share) for i, share in enumerate(shares)], width)
    assert sum(count for _, count in counts) == width
    assert all(count > 0 for _, count in counts)


@settings(deadline=None)
@given(st.text(max_size=200), st.integers(2, 80))
def test_wrapped_text_fits_and_loses_nothing(text: str, width: int) -> None:
    lines = words.wrap(text, width)
    assert all(words.cells(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == "".join(words.clean(text).split())


@settings(deadline=None)
@given(st.text(min_size=1, max_size=80), st.integers(8, 60))
def test_a_shortened_path_fits_and_keeps_its_line(name: str, limit: int) -> None:
    found = words.path(f"/very/long/folder/{name}", suffix=":12", limit=limit)
    assert words.cells(found) <= limit
    assert found.endswith(":12")


def test_the_command_is_shown_as_a_shell_takes_it() -> None:
    report = {**healthy(), "command": ["sh", "-c", "python train.py; echo done", "größe=3", "", "a\n"]}
    first = terminal.render(report).splitlines()[0]
    assert first == r"hotloop  sh -c 'python train.py; echo done' größe=3 '' 'a\n'"


def test_findings_that_together_cost_more_than_their_class_takes_share_seconds() -> None:
    first, second = (replace(findings()[0], id=f"input/{name}") for name in ("single-process", "slow-sample"))
    found = [replace(first, id="input/padding", data={"class": "device"}), first, second]
    report = model.build(recording(), [full_steps()], found, bottleneck="input", verdict=VERDICT)
    assert [one["same_seconds_as"] for one in report["findings"]] == [None, None, first.id]
    assert f"Some of the same seconds as {first.id}" in terminal.render(report)


def test_it_ends_with_the_commands_to_type_next() -> None:
    report = full()
    text = terminal.render(report)
    assert report["next"][0]["command"] in text and "hotloop tune -- torchrun" in text
    assert all("hotloop " in one["next"] for one in report["findings"])
    slow = Finding(
        id="cadence/evaluation", severity="high", message="", advice="", evidence=(), cost_s_per_step=1.0,
        share=0.5, remedies=("less-frequent-evaluation",),
    )  # fmt: skip
    tune = of_run(["python", "train.py"], ["hotloop brief run 1"], [slow])[1]["command"]
    assert tune == "hotloop tune --allow semantic -- python train.py"
    untried = replace(slow, remedies=())
    assert len(of_run(["python"], ["hotloop brief run 1"], [untried])) == 1, "nothing to try"
    noted = [replace(slow, severity="info", cost_s_per_step=0.0)]
    assert of_run(["python"], of_findings(noted, Path("run")), noted) == [], "it costs nothing"
    assumed = [replace(noted[0], data={"unpriced": True})]
    assert (
        of_run([], of_findings(assumed, Path("run")), assumed)[0]["command"]
        == "hotloop brief run cadence/evaluation"
    )
    assert not healthy()["next"] and "next: " not in terminal.render(healthy())
