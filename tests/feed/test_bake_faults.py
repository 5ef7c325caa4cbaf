"""A bake is killed at any moment, disturbed, cut short, flipped: it goes on, or says what is wrong."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bake_datasets import Images, Killed, Telling
from cache_samples import in_child, status_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_bake import MEMORY, contents, described
from tests.running import SRC

from hotloop.feed import Baked, BakeError, DamagedBakeError, bake
from hotloop.feed.baking import crew as parts
from hotloop.feed.baking import folder as folders


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in memory: syncing costs nothing there."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


def kill_at_event(number: int, work: Callable[[], Any]) -> None:
    """Do ``work`` and die by SIGKILL right before its ``number``-th operation on a file."""
    left = number

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in (
            "open",
            "os.rename",
            "os.remove",
            "os.mkdir",
            "os.rmdir",
            "os.truncate",
            "shutil.rmtree",
        ):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    work()


def whole_parts(out: Path) -> int:
    notes = folders.partial(out) / folders.NOTES
    return len(list(notes.glob("?????.json"))) if notes.is_dir() else 0


def kill_everywhere(work: Callable[[], Any], after: Callable[[], None]) -> int:
    """Kill ``work`` before each of its file operations in turn; the number of kills."""
    number = 1
    while True:
        code = status_of(in_child(lambda number=number: kill_at_event(number, work)))  # type: ignore[misc]
        if code == 0:
            return number - 1
        assert code == -signal.SIGKILL
        after()
        number += 1


def test_killed_before_any_file_operation_it_goes_on_and_ends_the_same(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotloop.feed.baking.writer.LEAST_PARTS", 3)
    dataset = Images(6, 2, 3)
    bake(dataset, place / "whole", num_workers=0)
    expected = contents(place / "whole")
    out = place / "out"

    def resume() -> None:
        kept = whole_parts(out)
        reads: list[int] = []
        original = parts.encode
        monkeypatch.setattr(parts, "encode", lambda sample: [reads.append(1), original(sample)][1])
        bake(dataset, out, num_workers=0)
        monkeypatch.setattr(parts, "encode", original)
        assert len(reads) <= 6 - 2 * kept
        assert contents(out) == expected
        assert not folders.partial(out).exists()
        shutil.rmtree(out)

    assert kill_everywhere(lambda: bake(dataset, out, num_workers=0), resume) > 40


@pytest.mark.nightly
def test_killed_while_it_replaces_a_bake_there_is_always_a_good_one(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotloop.feed.baking.writer.LEAST_PARTS", 1)
    old, new = Images(2, 2), Images(3, 2)
    out = place / "out"
    bake(old, place / "old", num_workers=0)
    bake(new, place / "new", num_workers=0)
    shutil.copytree(place / "old", out)

    def aside() -> Path:
        (found,) = place.glob("out.replaced.*")
        return found

    def check() -> None:
        assert len(Baked(out if out.exists() else aside(), verify="full")) in (2, 3)
        bake(new, out, num_workers=0, overwrite=True)
        assert contents(out) == contents(place / "new")
        assert sorted(path.name for path in place.iterdir()) == ["new", "old", "out"]
        shutil.rmtree(out)
        shutil.copytree(place / "old", out)

    assert kill_everywhere(lambda: bake(new, out, num_workers=0, overwrite=True), check) > 20


@pytest.mark.parametrize("at", [0, 40, 95])
@pytest.mark.parametrize("group", [True, False], ids=["whole group", "parent only"])
def test_killed_with_its_workers_it_goes_on_where_it_was(place: Path, at: int, group: bool) -> None:
    out = place / "out"
    told, tell = os.pipe()
    wait, go_on = os.pipe()
    dataset = Telling(at, tell, wait)
    pid = in_child(lambda: (os.setsid(), bake(dataset, out, num_workers=2)))
    worker = os.pidfd_open(int.from_bytes(os.read(told, 4), "little"))
    kept = whole_parts(out)
    (os.killpg if group else os.kill)(pid, signal.SIGKILL)
    assert status_of(pid) == -signal.SIGKILL
    os.write(go_on, b"....")  # what was not killed goes on, and finds that its parent is gone
    baked = bake(dataset, out, num_workers=0)
    assert whole_parts(out) == 0
    assert kept <= 32
    assert [described(sample) for sample in baked] == [described(Images()[k]) for k in range(96)]
    assert select.select([worker], [], [], 60)[0], "a worker outlived its parent"
    for descriptor in (told, tell, wait, go_on, worker):
        os.close(descriptor)


def test_a_killed_worker_is_named_and_the_next_run_goes_on(place: Path) -> None:
    dataset = Killed(40, str(place / "once"))
    with pytest.raises(BakeError, match=r"a worker was lost: .* was killed by SIGKILL"):
        bake(dataset, place / "out", num_workers=2, source=[])
    assert not (place / "out").exists()
    baked = bake(dataset, place / "out", num_workers=2, source=[])
    assert [described(sample) for sample in baked] == [described(Images()[k]) for k in range(96)]


def test_of_two_jobs_one_works_and_the_other_says_that_it_waits(place: Path) -> None:
    out = place / "out"
    told, tell = os.pipe()
    wait, go_on = os.pipe()
    words, say = os.pipe()
    dataset = Telling(40, tell, wait)
    first = in_child(lambda: bake(dataset, out, num_workers=1))
    os.read(told, 4)

    def wait_and_open() -> None:
        os.dup2(say, 2)
        counting = dataset
        sys.stderr = os.fdopen(2, "w")
        parts.write_part = None  # type: ignore[assignment]
        bake(counting, out, num_workers=0)

    second = in_child(wait_and_open)
    assert b"another process bakes" in os.read(words, 4096)
    os.write(go_on, b".")
    assert (status_of(first), status_of(second)) == (0, 0)
    assert len(Baked(out, verify="full")) == 96
    for descriptor in (told, tell, wait, go_on, words, say):
        os.close(descriptor)


@pytest.fixture(scope="module")
def bake_once() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        bake(Images(40, 3, 7), Path(folder) / "out", num_workers=0)
        yield Path(folder) / "out"


def files_of(folder: Path) -> list[str]:
    return sorted(contents(folder))


def read_all(folder: Path, read: Callable[[Baked, int], Any] = Baked.__getitem__) -> None:
    baked = Baked(folder)
    for k in range(len(baked)):
        read(baked, k)


GATHER = partial(read_all, read=lambda baked, k: baked.gather([k]))
READERS = [lambda folder: Baked(folder, verify="full"), read_all, GATHER]


@contextlib.contextmanager
def damaged(folder: Path, name: str, content: bytes) -> Iterator[None]:
    """The file has other content; what reads it names the part where it has parts, else the file."""
    whole = (folder / name).read_bytes()
    try:
        (folder / name).write_bytes(content)
        with pytest.raises(DamagedBakeError) as caught:
            yield
        assert ("part" if "/" in name or name == "ends.bin" else name) in caught.value.message
    finally:
        (folder / name).write_bytes(whole)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_cut_at_any_byte_is_named(bake_once: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(files_of(bake_once)))
    whole = (bake_once / name).read_bytes()
    with damaged(bake_once, name, whole[: data.draw(st.integers(0, len(whole) - 1))]):
        Baked(bake_once, verify="none" if name.endswith(".bin") and "/" in name else "lazy")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_anywhere_is_found_before_it_is_read(bake_once: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(files_of(bake_once)))
    flipped = bytearray((bake_once / name).read_bytes())
    bit = data.draw(st.integers(0, 8 * len(flipped) - 1))
    flipped[bit // 8] ^= 1 << bit % 8
    with damaged(bake_once, name, bytes(flipped)):
        data.draw(st.sampled_from(READERS))(bake_once)


@pytest.mark.parametrize(
    "name", ["manifest.json", "checksums.bin", "ends.bin", "columns/000-image.bin", "records/00001.bin"]
)
def test_a_missing_file_is_named(place: Path, name: str) -> None:
    bake(Images(40, 3, 7), place / "out", num_workers=0)
    (place / "out" / name).unlink()
    with pytest.raises(BakeError, match=name.replace(".", r"\.")):
        Baked(place / "out")


def test_a_bake_that_was_replaced_is_not_mixed_with_the_new_one(place: Path) -> None:
    import pickle

    baked = bake(Images(40, 3, 7), place / "out", num_workers=0)
    packed = pickle.dumps(baked)
    bake(Images(60, 3, 7), place / "out", num_workers=0, overwrite=True)
    assert [described(sample) for sample in baked] == [described(Images(40, 3, 7)[k]) for k in range(40)]
    with pytest.raises(BakeError, match="replaced"):
        pickle.loads(packed)


FULL_DISK = """
    import shutil, subprocess, sys
    from pathlib import Path
    from hotloop.feed import BakeError, bake
    from hotloop.feed.baking.folder import partial

    class Growing:
        def __len__(self): return 64
        def __getitem__(self, index): return b"x" * (400_000 if index % 9 == 4 else 10)

    class Large(Growing):
        def __getitem__(self, index):
            import numpy
            return numpy.full(100_000, index, "u1")

    disk, out = Path(sys.argv[1]), Path(sys.argv[1]) / "out"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1500k", "none", str(disk)], check=True)
    for dataset, words in ((Large(), "needs"), (Growing(), "ran full while part")):
        if disk.joinpath("out.partial").exists(): shutil.rmtree(disk / "out.partial")
        try:
            bake(dataset, out, num_workers=0)
        except BakeError as error:
            assert words in error.message and "make room" in error.hint, error
        else:
            raise SystemExit("the disk was not full")
    kept = len(list((partial(out) / "done").iterdir()))
    subprocess.run(["mount", "-o", "remount,size=9m", str(disk)], check=True)
    assert kept > 0
    assert list(bake(Growing(), out, num_workers=0, verify="full")) == [Growing()[k] for k in range(64)]
    print("kept", kept)
"""


def test_a_full_disk_is_said_and_the_bake_goes_on_when_there_is_room(tmp_path: Path) -> None:
    script = tmp_path / "full_disk.py"
    script.write_text(textwrap.dedent(FULL_DISK))
    (tmp_path / "disk").mkdir()
    inside = ["unshare", "--mount", "--map-root-user"]
    allowed = shutil.which("unshare") and subprocess.run(
        [*inside, "mount", "-t", "tmpfs", "none", str(tmp_path / "disk")], capture_output=True, check=False
    )
    if not allowed or allowed.returncode:
        pytest.skip("no mounts of one's own here")
    done = subprocess.run(
        [*inside, sys.executable, str(script), str(tmp_path / "disk")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("kept ")
