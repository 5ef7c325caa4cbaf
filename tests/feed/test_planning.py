"""The planner: says what was measured, never proposes what would change samples, and adds up."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pipelines import Compose, Halve, Noise, Photos, to_float
from torch.utils.data import IterableDataset

from hotloop.feed import planning
from hotloop.feed.planning import plan_cache


class Clock:
    """Stands in for the module ``time``: goes on by what stages say they take, and a tick for every look."""

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.cpu_s = 0.0

    def perf_counter(self) -> float:
        self.wall_s += 1e-6
        return self.wall_s

    def thread_time(self) -> float:
        return self.cpu_s

    def wait(self, seconds: float) -> None:
        self.wall_s += seconds


CLOCK = Clock()


@pytest.fixture(autouse=True)
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "time", CLOCK)


class SlowPhotos(Photos):
    """Waits while it reads: time that is not processor time."""

    def read(self, index: int) -> torch.Tensor:
        CLOCK.wait(0.002)
        return super().read(index)


def crop(image: torch.Tensor) -> torch.Tensor:
    left = int(torch.randint(0, image.shape[-1] // 4, ()))
    return image[..., left : left + image.shape[-1] // 4]


def test_it_caches_after_the_last_stage_before_a_random_one() -> None:
    plan = plan_cache(SlowPhotos(Compose([Halve(), crop, to_float])), max_bytes="100MB", num_workers=2)
    assert [cut.refused for cut in plan.cuts] == ["", "", "random", "after crop"]
    assert plan.best is not None
    assert plan.best.stage == "Halve"
    assert plan.best.fraction == 1
    assert plan.best.time_s < plan.time_s / 100
    assert plan.verdict.stage == "crop"


def test_the_fraction_that_fits() -> None:
    plan = plan_cache(Photos(Compose([Halve(), Noise()]), shape=(3, 64, 64), num=10), max_bytes=31_040)
    assert plan.cuts[1].fraction == pytest.approx(31_040 / 10 / 6144)
    assert plan.cuts[0].fraction == pytest.approx(31_040 / 10 / 12288)


def test_consumption_gives_the_size_worth_having() -> None:
    plan = plan_cache(SlowPhotos(Compose([Noise()])), max_bytes="1MB", num_workers=1, consumption_per_s=1e5)
    assert plan.needed_fraction == pytest.approx(1 - plan.miss_rate_per_s / 1e5)
    assert "c* = " in str(plan)
    easy = plan_cache(SlowPhotos(), max_bytes="1MB", num_workers=1, consumption_per_s=1)
    assert easy.needed_fraction == 0
    assert "keeps up without a cache" in " ".join(str(easy).split())


def test_nothing_to_cache_is_said_with_the_reason() -> None:
    class Random(Photos):
        def __getitem__(self, index: int) -> Any:
            return torch.rand(3)

    plan = plan_cache(Random(), max_bytes="1MB")
    assert plan.best is None
    assert "No stage can be cached" in str(plan)
    assert "draws from torch" in str(plan)


def test_what_cannot_be_planned_is_refused() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(())

    with pytest.raises(TypeError, match="map-style"):
        plan_cache(Stream())
    with pytest.raises(ValueError, match="is empty"):
        plan_cache(Photos(num=0))
    with pytest.raises(ValueError, match="consumption_per_s"):
        plan_cache(Photos(), consumption_per_s=0)
    with pytest.raises(ValueError, match="num_workers"):
        plan_cache(Photos(), num_workers=-1)
    with pytest.raises(ValueError, match="size"):
        plan_cache(Photos(), max_bytes="much")
