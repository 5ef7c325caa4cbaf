"""What a dataset takes, from shapes: the guides' own figures come out."""

from __future__ import annotations

import pytest

from hotloop.errors import UsageError
from hotloop.footprint.budgets import Dataset, budgets, chosen, document, fits, parse_stage

GB = 10**9
LIVE = "live=2*float32[720,1280,3]+float32[32,720,1280]"
STORED = "stored=2*uint8[720,1280,3]+uint8[10,396,640]"


def video(**fields: int) -> Dataset:
    stages = (parse_stage(LIVE), parse_stage(STORED))
    return Dataset(stages=stages, num_samples=2222, num_workers=36, num_ranks=3, **fields)


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("a=uint8[4]", 4),
        ("float32[2,3]", 24),
        ("a=torch.bfloat16[2,3]", 12),
        ("a=uint1[10,396,640]", 10 * 396 * 640 // 8),
        ("a=uint1[9]", 2),
        ("a=3*int64[]", 24),
        ("a=bool[7] + float8_e4m3fn[5]", 12),
        ("a=complex64[2]", 16),
    ],
)
def test_a_stage_is_as_large_as_its_fields(text: str, num_bytes: int) -> None:
    assert parse_stage(text.replace("torch.", "")).sample_bytes == num_bytes


@pytest.mark.parametrize(
    "text", ["", "a=", "=uint8[3]", "a=uint8[3", "a=uint8[-3]", "a=uint8[3,,4]", "a=object[3]", "a=uint8[0]"]
)
def test_what_is_no_stage_is_named_with_the_way_out(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_stage(text)
    assert error.value.hint


@pytest.mark.parametrize(("memory", "most"), [(256, 80), (128, 40), (64, 20)])
def test_the_guides_table_of_caches_is_a_formula(memory: int, most: int) -> None:
    sizes = {one["name"]: one["num_bytes"] for one in budgets(memory * GB)}
    assert (sizes["guide"], sizes["half"]) == (most * GB, memory * GB // 2)


def test_what_a_run_takes_is_not_left_for_a_cache() -> None:
    sizes = {one["name"]: one["num_bytes"] for one in budgets(100 * GB, taken_bytes=30 * GB)}
    assert sizes["left"] == 60 * GB
    assert chosen(100 * GB, taken_bytes=30 * GB) == 50 * GB
    assert chosen(100 * GB, taken_bytes=95 * GB) == 0


def test_a_cache_of_a_sixth_does_not_hit_82_percent() -> None:
    """X11: the guide's 50 GB of 290 GiB."""
    live, stored = fits(video().stages, 2222, [{"name": "the guide's", "num_bytes": 50 * GB}])
    assert live["keep_hit_rate"] == pytest.approx(0.16, abs=0.01)
    assert live["lru_hit_rate"] < 0.02
    assert stored["fraction"] == 1.0


def test_advice_names_the_stage_that_fits() -> None:
    said = " ".join(document(video(), 256 * GB)["advice"])
    assert "108 processes" in said
    assert "«stored» the whole dataset fits" in said
    tight = " ".join(document(video(), 16 * GB)["advice"])
    assert "No stage fits whole" in tight


def test_batches_ahead_are_those_of_every_rank() -> None:
    dataset = Dataset(
        stages=(parse_stage("a=uint8[1000]"),),
        num_samples=10,
        num_workers=4,
        num_ranks=2,
        batch_size=8,
        prefetch_factor=3,
    )
    assert dataset.batches_ahead == 2 * (4 * 3 + 1)
    assert dataset.ahead_bytes == 26 * 8 * 1000
