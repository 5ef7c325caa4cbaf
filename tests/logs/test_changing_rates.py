"""Changes of level against noise, and averages told apart from rates of now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.logs.written import analyzed

from hotloop.logs.averages import judged, reconstructed
from hotloop.logs.pauses import segments


def noisy(levels: list[tuple[int, float]], noise: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([level * np.exp(rng.normal(0, noise, count)) for count, level in levels])


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1, 0.25])
@pytest.mark.parametrize("count", [30, 300, 3000])
def test_the_guides_fall_is_found_where_it_is(noise: float, count: int) -> None:
    starts = segments(noisy([(2 * count, 2052.0), (count, 539.0)], noise))
    assert len(starts) == 2
    assert starts[1] == pytest.approx(2 * count, abs=3)


def test_noise_alone_is_no_change() -> None:
    for seed in range(60):
        noise = (0.01, 0.05, 0.2)[seed % 3]
        assert segments(noisy([(50 + 13 * seed, 100.0)], noise, seed)) == [0]


def test_a_wandering_rate_is_no_change() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        walk = np.zeros(600)
        for i in range(1, 600):
            walk[i] = 0.8 * walk[i - 1] + rng.normal(0, 0.1)
        assert segments(100 * np.exp(walk)) == [0]


def test_outliers_are_no_change_and_a_dip_is_two() -> None:
    values = noisy([(400, 100.0)], 0.05)
    values[::40] /= 20
    assert segments(values) == [0]
    assert len(segments(noisy([(200, 100.0), (80, 30.0), (200, 100.0)], 0.05))) == 3


def test_a_handful_of_epochs_is_enough() -> None:
    assert segments(np.array([2052.0, 2050, 2060, 540, 539, 541])) == [0, 3]
    assert segments(np.array([np.nan, 0, -1, 5])) == [0]


def run(seed: int, noise: float, slow: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Counts and clock of 100 reports; the second half ``slow`` times slower."""
    rng = np.random.default_rng(seed)
    count = np.arange(1, 101) * 50.0
    took = 5 * np.exp(rng.normal(0, noise, 100)) * np.where(count > 2500, slow, 1.0)
    return count, np.cumsum(took)


@pytest.mark.parametrize("noise", [0.02, 0.1])
@pytest.mark.parametrize("clock", [True, False])
def test_averages_and_rates_of_now_are_told_apart(noise: float, clock: bool) -> None:
    for seed in range(15):
        count, t = run(seed, noise, slow=3.0)
        known = t if clock else None
        took = np.diff(t, prepend=0.0)
        allowed = set() if clock else {"unknown"}  # without a clock silence is right too
        assert judged(32 * 50 / took, count, known) in {"instant"} | allowed
        assert judged(32 * count / t, count, known) in {"cumulative"} | allowed
        steady, even = run(seed, noise)
        assert judged(5000 * 32 / even, steady, even if clock else None) == "constant-numerator"


def test_a_real_decay_is_never_taken_for_an_average() -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        count = np.arange(1, 121) * 10.0
        took = np.linspace(1, 4, 120) * np.exp(rng.normal(0, 0.03, 120))
        assert judged(320 / took, count, None) in ("instant", "unknown")
        assert judged(320 / took, count, np.cumsum(took)) == "instant"


def test_one_epoch_over_all_time_is_told_in_whole_numbers_and_its_rate_comes_back(tmp_path: Path) -> None:
    """Twelve epochs of the tcn_state workload as found, on a busy machine: 12 x 108 samples in 22 s."""
    printed = (42, 24, 17, 14, 11, 10, 8, 7, 6, 6, 5, 5)
    lines = [f"Epoch {k}/12 loss 0.2 | Throughput: {r} samples/s\n" for k, r in enumerate(printed, 1)]
    done = analyzed(tmp_path, lines)
    (finding,) = done.findings
    assert finding.id == "trend/misleading-metric" and "one epoch over all the time" in finding.message
    assert finding.data["rate"] == pytest.approx(12 * 108 / 22, rel=0.2)
    assert done.parts[0].changes == ()


def test_one_epoch_over_all_time_on_a_machine_whose_load_changes_is_no_decay(tmp_path: Path) -> None:
    """The same workload while others came and went: epochs took up to five times as long as others."""
    printed = (663, 349, 230, 167, 100, 84, 76, 71, 67, 63, 60, 57, 55, 53, 51, 49, 46, 45)
    lines = [f"Epoch {k}/18 loss 0.2 | Throughput: {r} samples/s\n" for k, r in enumerate(printed, 1)]
    assert analyzed(tmp_path, lines).findings == ()  # a fall, or how the number is made: not to be told
    rng = np.random.default_rng(0)
    slower = 32 * 50 / np.sort(np.linspace(1, 8, 18) * np.exp(rng.normal(0, 0.05, 18)))
    real = [f"Epoch {k}/18 loss 0.2 | Throughput: {r:.0f} samples/s\n" for k, r in enumerate(slower, 1)]
    assert [finding.id for finding in analyzed(tmp_path, real).findings] == ["trend/throughput-decay"]


@pytest.mark.parametrize("last", [3.0, 5.0, 6.0])
def test_epochs_that_do_get_slower_are_no_average(last: float) -> None:
    count = np.arange(1.0, 13)
    for seed in range(30):
        took = np.linspace(1, last, 12) * np.exp(np.random.default_rng(seed).normal(0, 0.02, 12))
        assert judged(np.round(1654 / took), count, None) != "constant-numerator"


def test_the_rate_behind_an_average_comes_back() -> None:
    count, t = run(0, 0.02, slow=4.0)
    now = reconstructed(32 * count / t, count, "cumulative")
    assert np.nanmedian(now[:45]) == pytest.approx(320, rel=0.03)
    assert np.nanmedian(now[55:]) == pytest.approx(80, rel=0.03)


def test_a_dataset_over_elapsed_time_is_no_decay(tmp_path: Path) -> None:
    """What the guide's script prints: the size of the epoch over the time since its start."""
    rng = np.random.default_rng(0)
    lines = []
    for epoch in range(3):
        elapsed = 0.0
        for i in range(1, 21):
            elapsed += 2 * float(np.exp(rng.normal(0, 0.03)))
            lines.append(
                f"Epoch {epoch} [{i * 10}/200] loss 0.5 throughput: {20_000 / elapsed:.1f} samples/s\n"
            )
    done = analyzed(tmp_path, lines)
    assert [finding.id for finding in done.findings] == ["trend/misleading-metric"]
    assert done.findings[0].data["kind"] == "constant-numerator"
    assert done.findings[0].data["rate"] == pytest.approx(500, rel=0.05)
    assert done.parts[0].changes == ()


def test_a_cumulative_average_over_a_real_fall_shows_the_fall(tmp_path: Path) -> None:
    lines, now, count = [], 0.0, 0
    for i in range(1, 201):
        now += 10.0 if i <= 100 else 40.0
        count += 10
        minutes, seconds = divmod(int(now), 60)
        clock = f"2024-01-01 {minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"
        lines.append(f"{clock} step {count} throughput: {count * 32 / now:.2f} samples/s\n")
    done = analyzed(tmp_path, lines)
    assert {finding.id for finding in done.findings} == {"trend/misleading-metric", "trend/throughput-decay"}
    (change,) = done.parts[0].changes
    assert (change.before, change.after) == (pytest.approx(32, rel=0.02), pytest.approx(8, rel=0.02))
    assert change.step == pytest.approx(1010, abs=10)


def test_time_since_the_start_is_no_step_time(tmp_path: Path) -> None:
    for stamped in (False, True):
        for per_epoch in (200, 50):
            lines = [
                (f"2024-01-01 00:{i * 5 // 4 // 60:02d}:{i * 5 // 4 % 60:02d} " if stamped else "")
                + f"epoch {i // per_epoch} step {i * 10} loss 2.1 time {1.25 * (i % per_epoch + 1):.2f}s\n"
                for i in range(200)
            ]
            done = analyzed(tmp_path, lines)
            assert done.findings == ()
            assert done.parts[0].throughput[-1].rate == pytest.approx(8.0, rel=0.05)


def test_epochs_that_print_the_time_since_the_start(tmp_path: Path) -> None:
    done = analyzed(tmp_path, [f"Epoch {i}/40 - train_loss: 2.1 - time: {60.0 * i}s\n" for i in range(1, 41)])
    assert (done.findings, done.parts[0].throughput) == ((), ())


def test_steps_that_take_longer_and_longer_are_a_fall(tmp_path: Path) -> None:
    now, lines = 0.0, []
    for i in range(1, 100):
        now += 10 * 0.1 * i
        lines.append(f"2024-01-01 {now // 3600:02.0f}:{now % 3600 // 60:02.0f}:{int(now % 60):02d} "
                     f"step {i * 10} loss 2.1 time {0.1 * i:.2f}s\n")  # fmt: skip
    assert "trend/throughput-decay" in [finding.id for finding in analyzed(tmp_path, lines).findings]


@pytest.mark.parametrize(
    ("every_s", "steps", "printed", "rate"),
    [
        (
            12.0,
            100,
            lambda i: f"time 12.{i % 5}s",
            100 / 12,
        ),  # seconds between two prints, of all their steps
        (2.5, 10, lambda i: f"time {250 + i % 5}.1 data {20 + i % 3}.5", 4.0),  # milliseconds, without a unit
    ],
)
def test_what_a_printed_time_is_of_is_told_by_the_clock(
    tmp_path: Path, every_s: float, steps: int, printed: Any, rate: float
) -> None:
    clock = [divmod(int(i * every_s), 60) for i in range(200)]
    lines = [
        f"2024-01-01 00:{clock[i][0]:02d}:{clock[i][1]:02d} step {i * steps} loss 2.1 {printed(i)}\n"
        for i in range(1, 200)
    ]
    done = analyzed(tmp_path, lines)
    assert done.findings == ()
    assert done.parts[0].throughput[0].rate == pytest.approx(rate, rel=0.05)


def test_a_resumed_run_has_the_steps_it_says(tmp_path: Path) -> None:
    counts = [*range(0, 1000, 10), *range(800, 2000, 10)]
    points = analyzed(tmp_path, [f"step {n} loss 2.1 time 0.25s\n" for n in counts]).parts[0].throughput
    assert [point.step for point in points] == counts
