"""The trend family: growth, outliers, warm-up and metrics that mislead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from synthetic import TRAIN, found, input_run, line, loader, steps

from hotloop.findings import Place
from hotloop.measure.steps import Steps

GENERATOR = np.random.default_rng(3)
N = 400
NOISE = 0.003 * GENERATOR.standard_normal(N)


def test_steps_that_get_slower_name_the_phase_and_the_line() -> None:
    growing = 0.02 + 0.0002 * np.arange(N) + NOISE
    hot = line(
        77,
        8.0,
        file=TRAIN,
        function="main",
        phase="other",
        role="metrics",
        source="history_mean = sum(history)",
    )
    decay = found(steps({"forward": 0.05, "other": growing}, num_steps=N, lines=(hot,)))[
        "trend/throughput-decay"
    ]
    assert decay.data["phase"] == "other"
    assert decay.where.line == 77
    assert decay.data["growth"] == pytest.approx(0.76, rel=0.1)
    assert decay.cost_s_per_step == pytest.approx(0.03, rel=0.15)


@pytest.mark.parametrize(
    "forward",
    [
        0.05 + NOISE,
        0.05 + NOISE + 0.02 * (np.arange(N) // 50 % 2),  # another job comes and goes
        0.05 + NOISE + 0.00001 * np.arange(N),  # 8 %: the machine's mood
        0.09 - 0.0001 * np.arange(N) + NOISE,
    ],
)  # fmt: skip
def test_noise_and_improvement_are_no_decay(forward: Any) -> None:
    assert "trend/throughput-decay" not in found(steps({"forward": forward}, num_steps=N))


@pytest.mark.parametrize("levels", [(0.01, 0.04), (0.01, 0.02, 0.04), (0.01, 0.01, 0.02)])
def test_steps_that_do_more_from_one_moment_on_do_not_decay(levels: tuple[float, ...]) -> None:
    """Layers that are no longer frozen: backward is longer from that epoch on."""
    noise = np.random.default_rng(0).normal(1.0, 0.02, N) * np.linspace(1.0, 1.05, N)
    backward = np.repeat(levels, -(-N // len(levels)))[:N] * noise
    assert "trend/throughput-decay" not in found(steps({"forward": 0.01, "backward": backward}, num_steps=N))
    growing = np.linspace(levels[0], levels[-1], N) * noise
    assert "trend/throughput-decay" in found(steps({"forward": 0.01, "backward": growing}, num_steps=N))


def test_a_machine_that_others_fill_up_is_no_decay() -> None:
    slower = 1 + 0.002 * np.arange(N)
    run = steps({"forward": 0.02 * slower, "backward": 0.04 * slower}, num_steps=N)
    assert "trend/throughput-decay" not in found(run), "all phases alike"
    only = steps({"backward": 0.05 * slower}, num_steps=N)
    assert "trend/throughput-decay" in found(only)
    seconds = np.linspace(0.0, only.wall_s, 100)
    wait = 0.4 * seconds**2 / seconds[-1]
    columns = {100: {"t_s": seconds, "main_cpu_s": seconds - wait, "core_wait_s": wait}}
    assert "trend/throughput-decay" not in found(only, process_system=columns)


def test_rare_long_steps_are_told_with_their_period() -> None:
    other = np.full(N, 0.001)
    other[50::50] = 0.6
    outliers = found(steps({"forward": 0.03, "other": other}, num_steps=N))["trend/step-outliers"]
    assert outliers.cost_s_per_step == pytest.approx(7 * 0.599 / N, rel=0.05)
    assert "every 50 steps" in outliers.advice


def test_work_that_comes_every_n_steps_is_told_by_its_function() -> None:
    """Negatives drawn before each epoch, by a loop that makes its own batches."""
    wait = np.full(N, 0.001)
    wait[50::50] = 0.6
    hot = line(84, 4.0, file=TRAIN, function="draw_negatives", nature="python")

    def told() -> str:
        run = steps({"forward": 0.03, "data_wait": wait}, num_steps=N, lines=(hot,))
        item = found(run)["trend/step-outliers"]
        assert ("on whole arrays" in item.advice) is ("every 50 steps" in item.message)
        return item.message

    assert told().startswith("draw_negatives() at train.py:84 takes 599 ms every 50 steps: 7 of 400 steps")
    wait[73] = 0.6  # one more stands out by chance
    assert "takes 599 ms every 50 steps: 8 of 400 steps" in told()
    wait[[90, 120, 215]] = 0.6
    assert told().startswith("11 of 400 steps")


def test_compute_held_up_by_the_machine_is_information() -> None:
    forward = np.full(N, 0.03)
    forward[[40, 90, 230, 300]] = 1.5
    outliers = found(steps({"forward": forward}, num_steps=N))["trend/step-outliers"]
    assert outliers.severity == "info"


def test_a_loop_that_makes_its_own_batches_has_outliers_of_its_own() -> None:
    wait = np.full(N, 0.001)
    wait[50::50] = 0.6
    outliers = found(steps({"forward": 0.03, "data_wait": wait}, num_steps=N))["trend/step-outliers"]
    assert outliers.data["phase"] == "data_wait"


def test_rare_waits_for_data_are_left_to_the_input_rules() -> None:
    wait = np.full(N, 0.001)
    wait[50::50] = 0.6
    use = loader(workers=2, make_s=0.02, wait_s=wait, num_batches=N)
    run = steps({"forward": 0.03, "data_wait": wait}, num_steps=N, loaders=(use,))
    assert "trend/step-outliers" not in found(run)


def warmup(num_steps: int) -> Steps:
    forward = np.full(num_steps, 0.05)
    forward[:4] = 8.0
    steady = np.arange(num_steps) >= 4
    return steps({"forward": forward}, num_steps=num_steps, steady=steady)


def test_a_slow_warm_up_is_information_in_a_short_run() -> None:
    short = found(warmup(100))["trend/slow-warmup"]
    assert short.severity == "info"
    assert found(warmup(2000))["trend/slow-warmup"].severity == "medium"
    assert "trend/slow-warmup" not in found(warmup(20000))


LATE = """import time
def main():
    end = time.time()
    for step, (x, y) in enumerate(loader):
        start = time.time()
        x = x.to(device)
        data_time = time.time() - start
        loss = train(x, y)
        print(step, data_time, loss)
"""
RIGHT = (
    LATE.replace("data_time = time.time() - start", "data_time = time.time() - end")
    + "        end = time.time()\n"
)
DRIVER = Place(file=TRAIN, line=8, function="main")


@pytest.mark.parametrize(
    ("text", "make_s", "speaks"),
    [
        (LATE, 0.08, True),
        (LATE, 0.0001, False),  # it hides no wait
        (RIGHT, 0.08, False),
        ("", 0.08, False),
        ("for x in (", 0.08, False),
    ],
)
def test_a_data_time_that_starts_too_late(text: str, make_s: float, speaks: bool) -> None:
    run = input_run(make_s=make_s, busy_s=0.02, run={"source_loop": DRIVER})
    finding = found(run, sources={TRAIN: text}).get("trend/misleading-metric")
    assert (finding is not None) is speaks
    if finding is not None:
        assert finding.where.line == 7
        assert finding.severity == "info"
