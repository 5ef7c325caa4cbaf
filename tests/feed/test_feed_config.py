"""Training configurations as people write them: read under their own names, or refused by name and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hotloop.feed.config import BY_NAME, LOADER, SETTINGS, ConfigError, FeedConfig
from hotloop.feed.loader import Loader

#: The loader's part of the configuration one guide recommends, as written there.
GUIDE = """
MODEL:
  VRT_DEPTHS: [8, 7, 8, 8, 4, 4, 4, 6]

DATA:
  USE_RAM_CACHE: true           # keeps samples in memory
  CACHE_SIZE_GB: 50.0

DATALOADER:
  TOTAL_WORKERS: 12
  TRAIN_PREFETCH_FACTOR: 4
  VAL_PREFETCH_FACTOR: 2
  PIN_MEMORY: true
  PERSISTENT_WORKERS: true
  DROP_LAST: true

TRAIN:
  BATCH_SIZE: 1
  GRADIENT_ACCUMULATION_STEPS: 4
"""


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "vrt.yaml"
    path.write_text(GUIDE)
    return path


def refused(mapping: dict[str, Any], **how: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        FeedConfig.from_mapping(mapping, **how)
    return str(caught.value)


def test_a_runners_accumulation_is_read() -> None:
    """As mmcv's configurations have it, beside what is the runner's own."""
    mapping = {"data": {"samples_per_gpu": 4}, "runner": {"max_iters": 9, "accumulative_counts": 2}}
    config = FeedConfig.from_mapping(mapping, ignore=["runner.max_iters"])
    assert (config.train["batch_size"], config.accumulation_steps) == (4, 2)
    assert "runner.max_iters" in refused(mapping)


def test_a_guides_configuration_is_read_whole(written: Path) -> None:
    config = FeedConfig.from_mapping(yaml.safe_load(GUIDE), path=written, ignore=["MODEL"])
    assert config.train == {
        "batch_size": 1, "num_workers": 12, "prefetch_factor": 4, "pin_memory": True,
        "persistent_workers": True, "drop_last": True,
    }  # fmt: skip
    assert config.val == {
        "num_workers": 12,
        "prefetch_factor": 2,
        "pin_memory": True,
        "persistent_workers": True,
    }
    assert config.cache == {"max_bytes": 50 * 2**30}
    assert config.accumulation_steps == 4
    lines = str(config).splitlines()
    assert len(lines) == 10
    assert lines[1].startswith(f"DATA.CACHE_SIZE_GB: 50.0 ({written}:7) -> max_bytes=53687091200: the most")
    assert f"DATALOADER.TRAIN_PREFETCH_FACTOR: 4 ({written}:11) -> train prefetch_factor=4" in str(config)


@pytest.mark.parametrize(
    ("mapping", "train", "val"),
    [
        ({"dataloader_workers": 16, "prefetch_factor": 3}, (16, 3), (16, 3)),
        ({"data": {"samples_per_gpu": 6, "workers_per_gpu": 12, "prefetch_factor": 4}}, (12, 4), (12, 4)),
        ({"num-workers": 8, "prefetch-factor": 8}, (8, 8), (8, 8)),
        (
            {"train_dataloader": {"num_workers": 5}, "val_dataloader": {"num_workers": 1}},
            (5, None),
            (1, None),
        ),
        ({"DATALOADER": {"TOTAL_WORKERS": 9, "TRAIN_WORKERS": 6, "VAL_WORKERS": 2}}, (6, None), (2, None)),
        (
            {"DATALOADER": {"TRAIN": {"NUM_WORKERS": 6}, "VALIDATION": {"NUM_WORKERS": 2}}},
            (6, None),
            (2, None),
        ),
        ({"DATALOADER": {"TOTAL_WORKERS": "auto", "TRAIN_PREFETCH_FACTOR": 6}}, ("auto", 6), ("auto", None)),
        ({"data_loader": {"num_workers": 4}, "train": {"prefetch": 5}}, (4, 5), (4, None)),
    ],
)
def test_the_names_people_use(mapping: dict[str, Any], train: tuple[Any, Any], val: tuple[Any, Any]) -> None:
    config = FeedConfig.from_mapping(mapping)
    for arguments, (workers, prefetch) in ((config.train, train), (config.val, val)):
        assert (arguments.get("num_workers"), arguments.get("prefetch_factor")) == (workers, prefetch)


def test_total_workers_are_shared_by_the_processes_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    mapping = {"TOTAL_WORKERS": 14, "VAL_WORKERS": 2}
    config = FeedConfig.from_mapping(mapping)
    assert (config.train["num_workers"], config.val["num_workers"]) == (3, 2)
    assert FeedConfig.from_mapping({"TOTAL_WORKERS": 2}).train["num_workers"] == 1
    assert FeedConfig.from_mapping({"TOTAL_WORKERS": 0}).train["num_workers"] == 0
    assert FeedConfig.from_mapping({"NUM_WORKERS": 14}).train["num_workers"] == 14


@pytest.mark.parametrize(
    ("mapping", "cache"),
    [
        ({}, None),
        ({"USE_RAM_CACHE": False, "CACHE_SIZE_GB": 50}, None),
        ({"USE_RAM_CACHE": True}, {"max_bytes": "auto"}),
        ({"CACHE_SIZE_GB": 0.5}, {"max_bytes": 2**29}),
        ({"DATA": {"CACHE_SIZE_GB": "auto"}}, {"max_bytes": "auto"}),
        ({"cache": {"max_bytes": "40%"}}, {"max_bytes": "40%"}),
    ],
)
def test_the_cache(mapping: dict[str, Any], cache: Any) -> None:
    assert FeedConfig.from_mapping(mapping).cache == cache


def test_an_unknown_key_is_named_with_the_nearest_known_one_file_and_line(written: Path) -> None:
    written.write_text(GUIDE.replace("USE_RAM_CACHE", "USE_RAM_CAHCE"))
    text = refused(yaml.safe_load(written.read_text()), path=written)
    assert f"{written}:2: MODEL is no setting of feeding\n" in text
    assert f"{written}:6: DATA.USE_RAM_CAHCE is no setting of feeding; did you mean USE_RAM_CACHE?" in text
    assert "ignore=['MODEL', 'DATA.USE_RAM_CAHCE']" in text


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("num_worker", "num_workers"),
        ("TRAIN_PREFECH_FACTOR", "TRAIN_PREFETCH_FACTOR"),
        ("persistant_workers", "persistent_workers"),
        ("learning_rate", None),
    ],
)
def test_the_nearest_name(key: str, near: str | None) -> None:
    text = refused({key: 1}).splitlines()[0]
    assert text == f"{key} is no setting of feeding" + (f"; did you mean {near}?" if near else "")


def test_what_is_not_the_loaders_is_ignored_only_by_name() -> None:
    data = {"ROOT": "/d", "IMAGE_DIR": "i", "MASK_DIR": "m", "BATCH_SIZE": 2}
    mapping = {"MODEL": {"DEPTH": 3}, "DATA": data}
    config = FeedConfig.from_mapping(mapping, ignore=["model", "DATA.ROOT", "data.*_dir"])
    assert config.train == {"batch_size": 2}
    assert "DATA.ROOT" in refused(mapping, ignore=["MODEL", "DATA.*_DIR"])


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("PIN_MEMORY", "yes", "true or false"),
        ("num_workers", "12", "a whole number, 0 or more, 'auto', or a share of the cores"),
        ("num_workers", 2.0, "a whole number, 0 or more, 'auto'"),
        ("TOTAL_WORKERS", -1, "a whole number, 0 or more"),
        ("prefetch_factor", 0, "a whole number, 1 or more"),
        ("batch_size", [4], "a whole number, 1 or more"),
        ("CACHE_SIZE_GB", 0, "a number of GiB above 0"),
        ("CACHE_SIZE_GB", float("nan"), "a number of GiB above 0"),
        ("max_bytes", "fifty", "a size such as '50GB'"),
        ("timeout", "1m", "a number of seconds"),
        ("seed_by", "batch", "'worker' or 'sample'"),
        ("num_workers", {"train": 3}, "a whole number"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(key: str, value: Any, expected: str) -> None:
    text = refused({"DATALOADER": {key: value}})
    assert text.startswith(f"DATALOADER.{key} must be {expected}")
    assert f"not {value!r} ({type(value).__name__})" in text


def test_contradictions_are_named_and_repetitions_are_not() -> None:
    text = refused({"num_workers": 4, "DATALOADER": {"WORKERS": 8}})
    assert text == "DATALOADER.WORKERS: 8 contradicts num_workers: 4"
    assert "contradicts" in refused({"CACHE_SIZE_GB": 1, "max_bytes": "3GB"})
    assert FeedConfig.from_mapping({"num_workers": 4, "workers_per_gpu": 4}).train["num_workers"] == 4


def test_what_needs_workers_is_left_out_without_them_and_said() -> None:
    mapping = {"VAL_WORKERS": 0, "TRAIN_WORKERS": 1, "PREFETCH_FACTOR": 4, "PIN_MEMORY": False}
    config = FeedConfig.from_mapping(mapping)
    assert config.val == {"num_workers": 0, "pin_memory": False}
    assert config.train["prefetch_factor"] == 4
    assert config.notes == ("val: prefetch_factor means nothing without workers: left out",)
    assert str(config).endswith(config.notes[0])


def test_every_name_means_one_thing_and_loader_arguments_exist() -> None:
    names = [name for setting in SETTINGS for name in setting.names]
    assert len(names) == len(set(names)) == len(BY_NAME)
    variables = Loader.__init__.__code__.co_varnames
    assert set(LOADER) <= set(variables), json.dumps(LOADER)
