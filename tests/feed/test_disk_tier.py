"""The disk tier: bounded, shared by processes, whole after any kill, and never out of date unnoticed."""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from disk_records import IDENTITY, Records
from pipelines import Compose, Halve, Noise, Photos
from torch.utils.data import DataLoader

from hotloop.feed import cached
from hotloop.feed.cache import disk_folder
from hotloop.feed.cache.disk import DiskTier
from hotloop.feed.cache.lmdb_file import LmdbFile
from hotloop.feed.comparing import differences, snapshot
from hotloop.feed.errors import CacheError

pytest.importorskip("lmdb")
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


def test_a_sample_is_made_once_and_comes_back_whole(tmp_path: Path) -> None:
    dataset = Records()
    tier = tier_of(dataset, tmp_path)
    for _ in range(2):
        assert_right(tier, range(60), Records())
    assert dataset.reads == list(range(60))
    assert tier.num_items == 60
    assert 5 in tier
    assert 61 not in tier


def test_many_at_once_read_only_what_is_missing(tmp_path: Path) -> None:
    class Batched(Records):
        batches: list[list[int]] = []  # noqa: RUF012

        def __getitems__(self, indices: list[int]) -> list[Any]:
            self.batches.append(indices)
            return [self[index] for index in indices]

    dataset = Batched()
    tier = tier_of(dataset, tmp_path)
    tier[4]
    samples = tier.__getitems__([3, 4, 3, 9])
    assert [sample["target"] for sample in samples] == [3, 4, 3, 9]
    assert dataset.batches == [[3, 9]]


def test_one_sample_that_cannot_be_kept_costs_only_itself(tmp_path: Path) -> None:
    class Odd(Records):
        def __getitem__(self, index: int) -> Any:
            return {"f": lambda: index} if index % 10 == 3 else super().__getitem__(index)

    tier = tier_of(Odd(), tmp_path)
    with pytest.warns(RuntimeWarning, match="sample 3 cannot be kept on disk") as warned:
        for index in range(60):
            tier[index]
    assert len(warned) == 1
    assert tier.num_items == 54


def test_indices_of_another_kind_go_to_the_dataset(tmp_path: Path) -> None:
    class Named(Records):
        def __getitem__(self, index: Any) -> Any:
            return index if isinstance(index, str) else super().__getitem__(index % self.num)

    tier = tier_of(Named(), tmp_path)
    assert tier["a name"] == "a name"
    assert tier[-1]["target"] == 59
    assert [sample["target"] for sample in tier.__getitems__([-1, 3])] == [59, 3]
    assert tier.num_items == 1


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


def test_as_overflow_it_takes_what_memory_has_no_room_for(tmp_path: Path) -> None:
    # 600 samples of two pages are more than 1 MiB, so the disk cannot hold all of them.
    memory = Memory(is_full=False)
    tier = tier_of(Records(num=600), tmp_path, max_bytes=MIB, memory=memory)
    tier[0]
    assert tier.num_items == 0
    memory.is_full = True
    tier[1]
    assert (0 in tier, 1 in tier) == (False, True)
    roomy = DiskTier(Records(), tmp_path, b"\x22" * 32, max_bytes=8 * MIB, memory=Memory(is_full=False))
    roomy[0]
    assert 0 in roomy


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


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_after_a_stage_and_with_workers(tmp_path: Path, method: str) -> None:
    photos = Photos(Compose([Halve(), Noise()]), num=12)
    data = cached(
        photos, MIB, stage="Halve", fingerprint=method, disk=tmp_path, max_disk_bytes=8 * MIB, shared=False
    )
    loader = DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context=method)
    assert [images.shape for images, _ in loader] == [(4, 3, 8, 8)] * 3
    assert data.disk is not None
    assert data.disk.num_items == 12
    data.close()


def test_two_processes_share_one_file(tmp_path: Path) -> None:
    tier = tier_of(Records(), tmp_path)
    tier[0]
    context = multiprocessing.get_context("fork")
    child = context.Process(target=assert_right, args=(tier, range(60), Records()))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert tier.num_items == 60
    dataset: Records = tier.dataset
    dataset.reads.clear()
    assert_right(tier, range(60), Records())
    assert dataset.reads == []


def test_forking_while_other_threads_read(tmp_path: Path) -> None:
    tier = tier_of(Records(), tmp_path)
    assert_right(tier, range(60), Records())
    stop, wrong = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            for index in range(60):
                if tier[index]["target"] != index:
                    wrong.append(index)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    context = multiprocessing.get_context("fork")
    try:
        for _ in range(5):
            child = context.Process(target=assert_right, args=(tier, range(0, 60, 7), Records()))
            child.start()
            child.join()
            assert child.exitcode == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert tier.dataset.reads == list(range(60))


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
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
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


def test_what_was_not_forced_to_the_disk_is_dropped_after_the_machine_went_down(tmp_path: Path) -> None:
    tier = tier_of(Records(), tmp_path)
    assert_right(tier, range(30), Records())
    tier.sync()
    boot = tier.folder / "boot"
    boot.write_text("another boot")
    del tier
    tier = tier_of(Records(), tmp_path)
    assert tier.num_items == 30
    assert_right(tier, range(60), Records())
    boot.write_text("yet another boot")
    del tier
    assert tier_of(Records(), tmp_path).num_items == 0


def test_it_survives_pickling_for_spawned_workers(tmp_path: Path) -> None:
    tier = tier_of(Records(), tmp_path)
    tier[3]
    again = pickle.loads(pickle.dumps(tier))
    assert 3 in again
    assert again[3]["target"] == 3


def test_a_damaged_value_is_a_miss(tmp_path: Path) -> None:
    tier = tier_of(Records(), tmp_path)
    tier[3]
    with LmdbFile.at(tier.folder, 8 * MIB).transaction(write=True) as transaction:
        key = b"i" + (3).to_bytes(8, "big")
        transaction.put(key, bytes(transaction.get(key))[:-100])
    assert_right(tier, [3], Records())
    assert tier.dataset.reads == [3, 3]


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_folder, "file_system", lambda folder: "nfs4")
    with pytest.raises(CacheError, match="lies on nfs4"):
        tier_of(Records(), tmp_path)


def test_the_file_system_of_a_folder() -> None:
    assert disk_folder.file_system(Path("/proc")) == "proc"


def test_without_lmdb_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(CacheError) as caught:
        tier_of(Records(), tmp_path)
    assert "hotloop[lmdb]" in str(caught.value)
