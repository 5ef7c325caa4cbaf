"""From blocks to ratios: the interval is Student's, pairs share a cycle, the ceiling is the largest part."""

from __future__ import annotations

from dataclasses import replace
from math import log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.scenarios.builder import Script

from hotloop.findings import Finding
from hotloop.flow import what_if
from hotloop.measure.measure import measure
from hotloop.measure.steps import Steps
from hotloop.record import rows as row
from hotloop.record.recording import ROW_DTYPE, Process, Recording
from hotloop.remedy import catalogue
from hotloop.units import parse_duration
from hotloop.whatif import words
from hotloop.whatif.estimate import WhatIf, estimate


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-3s", "ten", "nan", "0"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


def block(name: str, cycle: int, mean_s: float, **more: Any) -> dict[str, Any]:
    usual = {"valid": True, "leads": True, "steps": 10, "wait_s": 0.0, "cpu_s": 0.001}
    return {"name": name, "cycle": cycle, "mean_s": mean_s, **usual, **more}


def recorded(
    blocks: list[dict[str, Any]],
    steps: Steps | None = None,
    members: tuple[str, ...] = (),
    findings: tuple[Finding, ...] = (),
    **status: str,
) -> WhatIf | None:
    names = dict.fromkeys(note["name"] for note in blocks if note["name"] != "baseline")
    asked = [{"name": name, "status": status.get(name, ""), "exact": "", "leads": True} for name in names]
    for note in asked:
        note["members"] = members if note["name"] == "together" else ()
    process = Process(
        pid=1, ppid=0, role="main", rank=0, start_ns=0, end_ns=1, rows=np.zeros(0, ROW_DTYPE),
        notes={"block": blocks, "intervention": asked},
    )  # fmt: skip
    recording = Recording(
        folder=Path(), command=("train",), exit_code=0, wall_s=1.0, start_ns=0, start_unix_s=0.0,
        ranks=(process,), machine={"cores": 4}, system={},
    )  # fmt: skip
    return estimate(recording, steps, findings)


def test_ratios_are_of_pairs_of_one_cycle() -> None:
    drift = [1.0, 2.0, 4.0]  # the machine becomes slower; pairs do not mind
    blocks = [block("baseline", i, 0.03 * f) for i, f in enumerate(drift)]
    blocks += [block("fast", i, 0.02 * f) for i, f in enumerate(drift)]
    blocks += [block("fast", 9, 5.0), block("fast", 1, 5.0, valid=False)]
    found = recorded(blocks)
    assert found is not None
    (row,) = found.rows
    assert row.ratio == pytest.approx(1.5)
    assert row.ci95 == pytest.approx((1.5, 1.5))
    assert (row.blocks, row.in_noise) == (3, False)


def test_a_gain_inside_the_noise_is_none() -> None:
    means = [0.9, 1.1, 1.0, 1.05]
    blocks = [block("baseline", i, 1.0) for i in range(4)]
    blocks += [block("maybe", i, mean) for i, mean in enumerate(means)]
    found = recorded(blocks)
    assert found is not None
    assert found.rows[0].ratio == pytest.approx(np.exp(-np.mean([log(m) for m in means])))
    assert found.rows[0].in_noise
    assert "none" in words.render(found)


@pytest.mark.parametrize(
    ("step_s", "alone_s", "cpu_s", "ceiling"),
    [(0.02, 0.05, 0.01, "input"), (0.05, 0.02, 0.01, "device"), (0.02, 0.02, 0.4, "cores")],
)
def test_the_ceiling_is_what_takes_longest(step_s: float, alone_s: float, cpu_s: float, ceiling: str) -> None:
    fill = [{"workers": 2, "alone_batches": 10, "alone_s": 10 * alone_s}]
    blocks = [block("baseline", i, 0.2, wait_s=0.1, cpu_s=cpu_s) for i in range(3)]
    blocks += [block("free-data", i, step_s, fill=fill) for i in range(3)]
    found = recorded(blocks)
    assert found is not None
    assert found.ceiling == ceiling
    assert found.ceiling_s == pytest.approx(max(step_s, alone_s, cpu_s / 4))
    assert found.contention_s == pytest.approx(0.1 - step_s)
    assert found.to_json()["ceiling"] == ceiling
    assert f"ceiling ({ceiling})" in words.render(found)


@pytest.mark.parametrize(("idle_s", "ceiling"), [(0.9, "transfer"), (0.2, "device"), (None, "device")])
def test_copies_that_the_device_waits_for_are_the_ceiling(idle_s: float | None, ceiling: str) -> None:
    """Ten steps of 0.1 s on the host, all in copies; the device idles in some of that, or has no clock."""
    run = Script("for batch in loader:  # fetch\n    train(batch)  # copy\n")
    run.iterate(1)
    for _ in range(10):
        run.fetch(1, 0.1)
        run.call(row.TRANSFER, 100.0, value=1000)
        run.train(0.1, 0.1, 0.1)
    device: Any = SimpleNamespace(idle_s_by_phase={"transfer": idle_s}) if idle_s is not None else None
    steps = replace(measure(run.process()), facts={"accelerator": "cuda"}, device=device)
    blocks = [block("baseline", i, 0.2) for i in range(3)] + [block("free-data", i, 0.1) for i in range(3)]
    found = recorded(blocks, steps)
    assert found is not None
    assert found.ceiling == ceiling


@pytest.mark.parametrize(
    ("together_s", "said"),
    [
        (0.64, "1.56x: they add up"),
        (0.78, "in part give the same"),
        (0.4, "one masks what another gives"),
        (1.1, "the best of them alone gives more"),
    ],
)
def test_gains_that_add_overlap_or_mask_each_other(together_s: float, said: str) -> None:
    means = {"baseline": 1.0, "a": 0.8, "b": 0.8, "together": together_s}
    wobble = [0.99, 1.0, 1.01, 1.0]
    blocks = [block(name, i, mean * (w if name != "baseline" else 1.0)) for name, mean in means.items()
              for i, w in enumerate(wobble)]  # fmt: skip
    found = recorded(blocks, members=("a", "b"))
    assert found is not None
    assert "together: a and b; the gains of each alone multiply to 1.56x" in " ".join(
        words.render(found).split()
    )
    assert found.rows[-1].words.endswith(said)
    assert "This is not sure: others ran.\n" in words.render(replace(found, doubt="others ran"))


def test_what_was_not_in_force_has_no_ratio() -> None:
    blocks = [block("baseline", i, 1.0) for i in range(3)] + [block("threads=2", 0, 1.0)]
    found = recorded(blocks, **{"threads=2": "2 already"})
    assert found is not None
    assert (found.rows[0].ratio, found.rows[0].words) == (None, "2 already")
    assert "not measured: threads=2: 2 already" in words.render(found)


def test_the_starts_of_epochs_are_a_row_of_their_own_and_part_of_what_is_lost_now() -> None:
    """Four starts of 0.3 s each, of which 0.1 s is what any batch is waited for; an epoch is ten steps."""
    more = {"wait_s": 0.1, "starts": [0.3, 0.3], "epoch": 10, "startup_s": 7.0}
    blocks = [block("baseline", i, 0.2, **more) for i in range(2)]
    blocks += [block("free-data", i, 0.1) for i in range(2)]
    found = recorded(blocks)
    assert found is not None
    assert found.epoch_start_s == pytest.approx(0.02)
    row = found.rows[-1]
    assert (row.intervention, row.method) == ("free-epoch-start", "accounted")
    assert row.ratio == pytest.approx(1.1)
    text = words.render(found)
    assert "at best 2.20x of now" in text
    assert "7.00 s to the first block" in text


def test_targets_that_every_step_makes_anew_are_a_row_of_their_own() -> None:
    """Two lines that take 0.3 and 0.1 s of a step of 0.8 s, the second told from too few samples."""
    blocks = [block("baseline", i, 0.8) for i in range(2)]
    known = Finding(
        id="host/recomputed-targets", message="", advice="", evidence=(), cost_s_per_step=0.3,
        cost_ci95=(0.2, 0.4),
    )  # fmt: skip
    few = replace(known, cost_s_per_step=0.1, cost_ci95=None)
    for findings, ratio, ci95 in (((known,), 1.6, (4 / 3, 2.0)), ((known, few), 2.0, None)):
        found = recorded(blocks, findings=findings)
        assert found is not None
        (row,) = found.rows
        assert (row.intervention, row.method) == ("free-targets", "accounted")
        assert row.ratio == pytest.approx(ratio)
        assert row.ci95 == (None if ci95 is None else pytest.approx(ci95))
    other = replace(known, id="host/python-in-step")
    found = recorded(blocks, findings=(other,))
    assert found is not None and not found.rows


def test_nothing_is_said_without_a_baseline() -> None:
    assert recorded([block("free-data", 0, 1.0)]) is None


def test_what_may_change_is_said_of_each_intervention(capsys: pytest.CaptureFixture[str]) -> None:
    """One that leaves out log lines changes no values."""
    words = ("foreach", "throttled-logging", "fused-optimizer")
    what_if._announce([catalogue.parse(word) for word in words])
    said = capsys.readouterr().err
    assert "  throttled-logging=10: curves have fewer points" in said
    assert "  fused-optimizer: fused updates round differently" in said
    assert "foreach" not in said
    assert "values" not in said
