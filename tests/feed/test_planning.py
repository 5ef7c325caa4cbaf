"""The planner: says what was measured, never proposes what would change samples, and adds up."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from pipelines import Compose, Halve, MarkedPhotos, Noise, Photos, RareFlip, to_float
from torch.utils.data import IterableDataset

from hotloop.feed import stage_costs
from hotloop.feed.determinism import Verdict
from hotloop.feed.planning import needed_fraction, plan_cache, refusals
from hotloop.feed.stage_costs import StageCost


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
    monkeypatch.setattr(stage_costs, "time", CLOCK)


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


def test_bytes_are_those_of_what_would_be_kept() -> None:
    plan = plan_cache(Photos(Compose([Halve(), to_float]), shape=(3, 64, 64)), max_bytes="1GB")
    source, halved, floats = (cut.num_bytes for cut in plan.cuts)
    # The image, rounded up to 64 bytes, and its label.
    assert (source, halved, floats) == (12288 + 64, 6144 + 64, 24576 + 64)


def test_the_fraction_that_fits() -> None:
    plan = plan_cache(Photos(Compose([Halve(), Noise()]), shape=(3, 64, 64), num=10), max_bytes=31_040)
    assert plan.cuts[1].fraction == pytest.approx(31_040 / 10 / 6208)
    assert plan.cuts[0].fraction == pytest.approx(31_040 / 10 / 12352)


def test_eight_bits_are_kept_rather_than_floats() -> None:
    plan = plan_cache(Photos(Compose([Noise(), to_float])), max_bytes="1MB")
    assert plan.best is None or plan.best.stage == "source"
    plan = plan_cache(SlowPhotos(Compose([Halve(), to_float]), shape=(3, 64, 64), num=40), max_bytes="200KB")
    assert plan.best is not None
    assert plan.best.stage == "Halve"
    assert "Cache and ship the uint8" in " ".join(str(plan).split())


def test_floats_that_come_from_eight_bits_are_found_in_a_dataset_without_stages() -> None:
    class Arrays(Photos):
        def __init__(self, scale: float) -> None:
            super().__init__(shape=(3, 32, 32))
            self.scale = scale

        def __getitem__(self, index: int) -> Any:
            return self.read(index).numpy().astype(np.float32) * self.scale, index

    words = "The floats of __getitem__ come from eight bits"
    assert words in " ".join(str(plan_cache(Arrays(1 / 255), max_bytes="1MB")).split())
    assert words in " ".join(str(plan_cache(Arrays(1.0), max_bytes="1MB")).split())
    assert words not in " ".join(str(plan_cache(Arrays(0.1), max_bytes="1MB")).split())


def test_a_resize_before_a_random_crop_is_mentioned_and_not_proposed() -> None:
    plan = plan_cache(SlowPhotos(Compose([crop]), shape=(3, 64, 64)), max_bytes="100KB")
    assert "yours to choose" in " ".join(str(plan).split())
    assert plan.best is not None
    assert plan.best.stage == "source"


def test_consumption_gives_the_size_worth_having() -> None:
    plan = plan_cache(SlowPhotos(Compose([Noise()])), max_bytes="1MB", num_workers=1, consumption_per_s=1e5)
    assert plan.needed_fraction == pytest.approx(1 - plan.miss_rate_per_s / 1e5)
    assert "c* = " in str(plan)
    easy = plan_cache(SlowPhotos(), max_bytes="1MB", num_workers=1, consumption_per_s=1)
    assert easy.needed_fraction == 0
    assert "keeps up without a cache" in " ".join(str(easy).split())


def test_processor_time_is_told_from_waiting() -> None:
    plan = plan_cache(SlowPhotos(), max_bytes="1MB")
    assert plan.stages[0].time_s == pytest.approx(0.002, abs=1e-4)
    assert plan.stages[0].cpu_s == 0
    assert plan.stages[0].low_s == pytest.approx(plan.stages[0].high_s)


def test_nothing_to_cache_is_said_with_the_reason() -> None:
    class Random(Photos):
        def __getitem__(self, index: int) -> Any:
            return torch.rand(3)

    plan = plan_cache(Random(), max_bytes="1MB")
    assert plan.best is None
    assert "No stage can be cached" in str(plan)
    assert "draws from torch" in str(plan)


def test_marked_stages_are_measured_one_by_one() -> None:
    plan = plan_cache(MarkedPhotos(), max_bytes="1MB")
    assert [stage.name for stage in plan.stages] == ["fetch", "decode", "augment", "__getitem__"]
    assert [cut.refused for cut in plan.cuts] == ["", "", "random", "after augment"]


def test_a_value_that_cannot_be_stored_is_no_place_to_cache() -> None:
    class Handles(Photos):
        @property
        def stages(self) -> Any:
            return [("open", lambda index: lambda: self.read(index)), ("decode", lambda handle: handle())]

        def __getitem__(self, index: int) -> Any:
            return self.read(index)

    plan = plan_cache(Handles(), max_bytes="1MB")
    assert plan.cuts[0].refused.startswith("cannot be stored")
    assert plan.cuts[1].refused == ""


def test_the_table_fits_80_columns_and_the_dictionary_is_plain() -> None:
    class WithAVeryLongNameThatNobodyWouldWrite(Halve):
        pass

    transforms = [WithAVeryLongNameThatNobodyWouldWrite(), Halve(), RareFlip(), to_float]
    plan = plan_cache(SlowPhotos(Compose(transforms)), max_bytes="50KB", consumption_per_s=1e6)
    lines = str(plan).splitlines()
    assert max(map(len, lines)) <= 80
    again = json.loads(json.dumps(plan.to_dict()))
    assert again["stages"][0]["name"] == "source"
    assert again["best"]["stage"] == plan.best.stage if plan.best else again["best"] is None


def test_planning_changes_no_random_state_and_no_thread_count() -> None:
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    plan_cache(Photos(Compose([Noise(), RareFlip()])), max_bytes="1MB")
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads


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


def test_the_needed_fraction() -> None:
    assert needed_fraction(1.0, 0.0, 0.25) == 0.75
    assert needed_fraction(1.0, 0.5, 0.75) == 0.5
    assert needed_fraction(1.0, 0.5, 0.25) is None
    assert needed_fraction(1.0, 0.5, 2.0) == 0


def test_if_the_random_stage_cannot_be_told_none_is_safe() -> None:
    stages = [
        StageCost(
            name=name, time_s=1, low_s=1, high_s=1, cpu_s=1, num_bytes=1, hit_s=0, dtypes=(),
            num_elements=1, num_samples=1,
        )
        for name in ("source", "a")
    ]  # fmt: skip
    verdict = Verdict(deterministic=False, indices=(0,), stage="__getitem__", random_stages=("__getitem__",))
    assert all(refusals(stages, verdict))


def test_measuring_really_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    plan = plan_cache(MarkedPhotos(shape=(3, 64, 64)), max_bytes="1MB")
    assert all(stage.time_s > 0 and stage.num_samples == 12 for stage in plan.stages)
    assert sum(stage.cpu_s for stage in plan.stages) > 0


def test_slow_samples_end_the_measurement_once_there_are_enough() -> None:
    class Crawling(Photos):
        def read(self, index: int) -> torch.Tensor:
            CLOCK.wait(60)
            return super().read(index)

    assert plan_cache(Crawling(), max_bytes="1MB").num_measured == stage_costs.ENOUGH_SAMPLES
