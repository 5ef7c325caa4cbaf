"""The checklist file: what it takes, and what it refuses by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotloop.compare import expectation
from hotloop.errors import UsageError

READY = Path(__file__).resolve().parents[2] / "docs" / "guides" / "verify-checklist.toml"


def test_the_ready_file_of_the_guides_is_taken_whole() -> None:
    asked = expectation.read(READY)
    bands = expectation.read(READY.with_name("verify-bands.toml"))
    assert {*asked.items, *bands.items} == set(expectation.ITEMS) - {"steps_per_s"}
    assert (asked.items["data_wait"].sign, asked.items["data_wait"].edge) == ("<", pytest.approx(0.010))
    assert (asked.items["cpu"].sign, asked.items["cpu"].edge) == ("<", pytest.approx(0.85))
    assert set(asked.metrics) == {"psnr", "ssim"}


def test_yaml_means_the_same(tmp_path: Path) -> None:
    file = tmp_path / "list.yaml"
    file.write_text('data_wait: "< 10 ms"\nmetrics:\n  psnr: ">= 28.5"\n')
    asked = expectation.read(file)
    assert (asked.items["data_wait"].edge, asked.metrics["psnr"].edge) == (0.01, 28.5)


@pytest.mark.parametrize(
    ("value", "inside", "outside"),
    [("> 90%", 0.91, 0.90), (">= 90%", 0.90, 0.89), ("0.9", 0.95, 0.85), ("70-85%", 0.85, 0.86)],
)
def test_limits_hold(value: object, inside: float, outside: float) -> None:
    limit = expectation.parse({"gpu_utilization": value}).items["gpu_utilization"]
    assert limit.holds(inside)
    assert not limit.holds(outside)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"data_wiat": "< 10 ms"}, "did you mean data_wait?"),
        ({"psnr": 28}, "under [metrics]"),
        ({"data_wait": "< 10 GiB"}, "10 ms"),
        ({"data_wait": 10}, "10 ms"),
        ({"device_memory": "a lot"}, "GiB"),
        ({"loss_converges": "yes"}, "true"),
        ({"metrics": {"psnr": 28}}, ">= 28.5"),
        ({"effect": "harmless"}, "exact, numeric, semantic"),
        ({"cpu": {"max": 1}}, "90%"),
        ([1], "data_wait"),
    ],
)
def test_what_is_wrong_is_named_with_the_way_out(data: object, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        expectation.parse(data)
    assert said in (caught.value.hint or "")


def test_a_file_that_is_no_toml_is_a_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "list.toml"
    file.write_text("data_wait < 10")
    with pytest.raises(UsageError, match=r"list\.toml"):
        expectation.read(file)
