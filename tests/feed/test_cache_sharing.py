"""Ranks and jobs that cache the same samples find one memory, and those that do not, do not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cache_samples import Squares, is_right

from hotloop.feed import budget
from hotloop.feed.cache import rendezvous
from hotloop.feed.cache.dataset import cached
from hotloop.feed.identity.fingerprint import Unknowable, digest_of
from hotloop.launch import throwaway

MIB = 1 << 20
HERE = Path(__file__).parent
JOB = HERE / "cache_job.py"

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture(autouse=True)
def enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is short of memory for other reasons has nothing to do with these tests."""
    monkeypatch.setattr(budget, "memory_is_short", lambda: False)


class Job:
    """A process that caches on its own, asked line by line."""

    def __init__(self, environment: dict[str, str], **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, JOB, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def meeting_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of our own instead of the user's, for this process and its children."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(rendezvous.tempfile, "tempdir", None)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return tmp_path / f"hotloop-{os.getuid()}"


@pytest.fixture
def jobs(meeting_place: Path) -> Iterator[Any]:
    started: list[Job] = []

    def start(**options: Any) -> Job:
        started.append(Job(dict(os.environ), **options))
        return started[-1]

    yield start
    for job in started:
        job.kill()


def test_jobs_share_one_memory_and_it_outlives_whoever_made_it(jobs: Any, meeting_place: Path) -> None:
    first, second = jobs(), jobs()
    answers = [first.answer(), second.answer()]
    assert answers[0]["inode"] == answers[1]["inode"]
    assert first.ask("read 0 20")["misses"] == 20
    reads = second.ask("read 0 30")
    assert (reads["hits"], reads["misses"], reads["right"]) == (20, 30, True)
    first.kill()
    third = jobs()
    assert third.answer()["inode"] == answers[0]["inode"]
    assert third.ask("read 0 30")["hits"] == 50
    second.ask("close")
    third.ask("close")
    assert list(meeting_place.iterdir()) == []


def test_what_the_dead_left_behind_does_no_harm(jobs: Any, meeting_place: Path) -> None:
    first = jobs()
    first.answer()
    first.ask("read 0 40")
    first.kill()
    (stale,) = meeting_place.iterdir()
    killed = stale.read_bytes()
    assert stale.stat().st_size < 4096
    for rubbish in (killed, b"not json", b'[["x"]]', b'{"a": 1}', b'[["1", [], {}]]', b"[" * 100_000):
        stale.write_bytes(rubbish)
        kept = cached(Squares(), MIB)
        assert (kept.stats().num_items, kept.stats().notes) == (0, ())
        assert is_right(kept[3], 3)
        kept.close()


def test_other_data_is_another_cache(meeting_place: Path) -> None:
    caches = [
        cached(Squares(40), MIB),
        cached(Squares(41), MIB),
        cached(Squares(40, 500), MIB),
        cached(Squares(40), MIB, fingerprint="mine"),
        cached(Squares(40), MIB, shared=False),
    ]
    assert len({os.fstat(each.cache._file.descriptor).st_ino for each in caches}) == 5
    again = cached(Squares(40), MIB)
    assert os.path.sameopenfile(again.cache._file.descriptor, caches[0].cache._file.descriptor)
    again.close()
    caches[0][3]
    assert caches[0].stats().num_items == 1
    for each in caches:
        each.close()


def test_a_folder_that_others_may_write_to_is_not_trusted(meeting_place: Path) -> None:
    meeting_place.mkdir(mode=0o777)
    meeting_place.chmod(0o777)
    kept = cached(Squares(), MIB)
    assert "not shared between ranks" in kept.stats().notes[0]
    assert is_right(kept[3], 3)
    kept.close()


def test_ranks_bring_their_share_as_they_meet(
    jobs: Any, meeting_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    first = cached(Squares(), 2 * MIB)
    assert first.cache.limit_bytes == MIB
    assert "not all 2 ranks of this machine have met here" in first.stats().notes[0]
    apart = cached(Squares(), 2 * MIB, shared=False)
    assert apart.cache.limit_bytes == MIB
    assert jobs(max_bytes=2 * MIB).answer()["limit"] == 2 * MIB
    assert first.cache.limit_bytes == 2 * MIB
    assert first.stats().notes == ()
    first.close()
    apart.close()


@pytest.mark.nightly
def test_two_ranks_with_two_workers_each_stay_within_one_budget(meeting_place: Path) -> None:
    limit, options = 10 * MIB, ["--standalone", "--nproc-per-node=2"]
    run = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *options, str(JOB), "epochs", str(limit)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    figures = json.loads(run.stdout.splitlines()[-1])
    assert figures["right"]
    assert figures["limit"] == limit
    assert 0.9 * limit < figures["resident"] <= 1.02 * limit
    share = figures["items"] / 400
    assert share > 0.9 * limit / (400 * 50_000)
    assert figures["hit_rates"] == [0, share, share]


def test_a_killed_group_leaves_no_memory_and_no_process(meeting_place: Path) -> None:
    before = shared_memory()
    code = (
        "import sys, os; from cache_samples import Squares; from torch.utils.data import DataLoader;"
        "from hotloop.feed.cache.dataset import cached; k = cached(Squares(4000), '8MB');"
        "i = iter(DataLoader(k, num_workers=2, persistent_workers=True)); next(i);"
        "print(os.fstat(k.cache._file.descriptor).st_ino, flush=True); sys.stdin.read()"
    )
    job = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert job.stdout is not None and job.stdin is not None
    inode = int(job.stdout.readline())
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    assert job.stdout.read() == b""  # every process that held the pipe is gone
    job.stdin.close()
    job.stdout.close()
    assert shared_memory() <= before
    assert inode not in open_inodes()
    kept = cached(Squares(4000), "8MB")
    assert kept.stats().num_items == 0
    kept.close()


def shared_memory() -> set[str]:
    """What has a name there, but for folders that runs elsewhere on the machine throw away."""
    names = {entry.name for entry in Path("/dev/shm").iterdir()}
    return {name for name in names if "hotloop" in name and not throwaway.is_ours(name)}


def open_inodes() -> set[int]:
    """Of the caches' memories that any process has open."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link).startswith("/memfd:hotloop-cache"):  # noqa: PTH115 - a memfd's link is no path
                found.add(link.stat().st_ino)
        except OSError:
            continue
    return found


def test_short_memory_stops_growth_until_it_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    short = True
    monkeypatch.setattr(budget, "memory_is_short", lambda: short)
    monkeypatch.setattr("hotloop.feed.cache.shared._PAUSE_NS", 0)
    kept = cached(Squares(), 8 * MIB, shared=False)
    assert is_right(kept[3], 3)
    assert kept.stats().num_items == 0
    assert "stopped growing: memory is short" in kept.stats().notes
    short = False
    kept[3]
    assert kept.stats().num_items == 1
    assert kept.stats().notes == ()
    kept.close()


def one(value: int) -> int:
    return value + 1


class Piped:
    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


def test_what_cannot_be_looked_into_is_said_and_not_shared(tmp_path: Path, meeting_place: Path) -> None:
    with (tmp_path / "open.bin").open("wb") as file:
        with pytest.raises(Unknowable, match=r"dataset\.file is a BufferedWriter"):
            digest_of(Piped(file=file))

        class Opened(Squares):
            def __init__(self) -> None:
                super().__init__()
                self.file = file

            __getstate__ = object.__getstate__  # type: ignore[assignment]

        with pytest.warns(RuntimeWarning, match=r"not shared between ranks: dataset\.file"):
            kept = cached(Opened(), MIB)
        assert is_right(kept[3], 3)
        kept.close()
        named = cached(Opened(), MIB, fingerprint="opened")
        assert named.stats().notes == ()
        named.close()
