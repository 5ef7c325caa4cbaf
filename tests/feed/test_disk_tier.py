"""The disk tier: bounded, shared by processes, whole after any kill, and never out of date unnoticed."""

from __future__ import annotations

import itertools
import multiprocessing
import resource
import signal
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from disk_records import IDENTITY, Records

from hotloop.feed import cached
from hotloop.feed.cache.disk import DiskTier, _packed
from hotloop.feed.comparing import differences, snapshot
from hotloop.feed.errors import CacheError
from hotloop.feed.layout import encode

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
MIB = 1 << 20


class Memory:
    """As much of the cache before the tier as the tier asks for."""

    def __init__(self, *, is_full: bool) -> None:
        self.is_full = is_full


def assert_right(tier: Any, indices: Sequence[int], of: Records) -> None:
    for index in indices:
        assert differences(snapshot(tier[index]), snapshot(of[index])) == []


def tier_of(dataset: Any, folder: Path, **settings: Any) -> DiskTier:
    return DiskTier(dataset, folder, IDENTITY, **{"max_bytes": 8 * MIB, **settings})


def test_a_later_run_begins_warm(tmp_path: Path) -> None:
    assert_right(tier_of(Records(), tmp_path), range(60), Records())
    later = Records()
    tier = tier_of(later, tmp_path)
    later.reads.clear()
    assert_right(tier, range(60), Records())
    assert later.reads == []


def test_what_is_out_of_date_is_noticed_and_thrown_away(tmp_path: Path) -> None:
    class Changed(Records):
        def __getitem__(self, index: int) -> Any:
            return {**super().__getitem__(index), "target": -index - 1}

    assert_right(tier_of(Records(), tmp_path), range(60), Records())
    with pytest.warns(RuntimeWarning, match=r"out of date.*sample 0 differs \(target"):
        tier = tier_of(Changed(), tmp_path)
    assert tier.num_items == 0
    assert_right(tier, range(60), Changed())


def test_the_bound_holds_and_full_is_no_error(tmp_path: Path) -> None:
    dataset = Records(num=600)
    tier = tier_of(dataset, tmp_path, max_bytes=MIB)
    assert_right(tier, range(600), Records())
    assert 0 < tier.num_items < 600
    assert tier.num_bytes <= MIB
    kept = tier.num_items
    dataset.reads.clear()
    assert_right(tier, range(600), Records())
    assert len(dataset.reads) == 600 - kept


def test_behind_a_cache_in_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made"

    class Telling(Records):
        def __getitem__(self, index: int) -> Any:
            with made.open("a") as file:
                file.write(f"{index}\n")
            return super().__getitem__(index)

    # Memory for some of the samples; the disk for all.
    data = cached(
        Telling(num=200, num_bytes=8000),
        600_000,
        fingerprint="test",
        disk=tmp_path / "disk",
        max_disk_bytes=8 * MIB,
    )
    made.write_text("")
    for _ in range(2):
        assert_right(data, range(200), Records(num_bytes=8000))
    assert sorted(map(int, made.read_text().split())) == list(range(200))
    assert 0 < data.stats().num_items < 200
    data.epoch_end()
    assert data.disk is not None
    assert data.disk.num_items == 200
    data.print_cache_stats()
    assert "Disk 200 items" in capsys.readouterr().out
    data.close()


def write_for_ever(folder: Path, told: Connection) -> None:
    """Fill a tier, telling of every sample once it is in; ends by being killed."""
    tier = DiskTier(
        Records(num=1_000_000, num_bytes=200_000), folder, IDENTITY, max_bytes=1 << 30, check=False
    )
    for index in itertools.count():
        tier[index]
        told.send(index)


def test_a_writer_killed_at_any_moment(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for number in (2, 6, 7, 20):
        receiving, sending = context.Pipe(duplex=False)
        job = context.Process(target=write_for_ever, args=(tmp_path, sending))
        job.start()
        sending.close()
        told = -1
        # What an earlier life wrote is told at once; it dies while it writes more.
        while told < number:
            told = receiving.recv()
        job.kill()
        job.join()
        assert job.exitcode == -signal.SIGKILL
        receiving.close()
        survivor = DiskTier(
            Records(num=1_000_000, num_bytes=200_000), tmp_path, IDENTITY, max_bytes=1 << 30, check=False
        )
        assert_right(survivor, range(told + 1), Records(num_bytes=200_000))
        assert survivor.dataset.reads == []
        # The lock of the dead writer does not hold up the next one.
        survivor[500_000 + number]
        assert 500_000 + number in survivor


def fill_under_a_limit(folder: Path) -> None:
    most = _packed(encode(Records(num_bytes=20_000)[20])).nbytes
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    tier = tier_of(Records(num_bytes=20_000), folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert_right(tier, range(60), Records(num_bytes=20_000))
    assert any("takes no more" in str(warning.message) for warning in caught)
    kept = tier.num_items
    assert 0 < kept < 60
    tier.dataset.reads.clear()
    assert_right(tier, range(60), Records(num_bytes=20_000))
    assert len(tier.dataset.reads) == 60 - kept


def test_a_disk_without_room_is_a_word_and_no_error(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: writing fails in the same place."""
    child = multiprocessing.get_context("fork").Process(target=fill_under_a_limit, args=(tmp_path,))
    child.start()
    child.join()
    assert child.exitcode == 0


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-100], lambda data: data[:5], lambda data: data[:-1] + b"?"]
)
def test_a_damaged_value_is_a_miss(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    tier = tier_of(Records(), tmp_path)
    tier[3]
    path = tier._path(3)
    path.write_bytes(damage(path.read_bytes()))
    assert_right(tier, [3, 3], Records())
    assert tier.dataset.reads == [3, 3]


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="no folder for the disk tier"):
        tier_of(Records(), tmp_path / "file")
