"""A run whose writes are thrown away: it sees them, nobody else ever does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hotloop.errors import UsageError
from hotloop.launch import scratch as scratches
from hotloop.launch import throwaway as room
from hotloop.launch.command import Outcome, run_command
from hotloop.launch.guard import Guard
from hotloop.launch.mounts import Mount, mounts
from hotloop.launch.throwaway import Refused, Throwaway, prepare, throwaway

SRC = Path(__file__).resolve().parents[2] / "src"

TRAINING = """
import json, os, shutil, sys
from pathlib import Path

assert Path("config.json").read_text() == '{"lr": 0.1}'
Path("checkpoints").mkdir(exist_ok=True)
for step in range(3):
    Path(f"checkpoints/{step}.pt").write_bytes(b"w" * 1000)
    with open("train.log", "a") as log:
        log.write(f"step {step}\\n")
os.replace("checkpoints/2.pt", "best.pt")
os.remove("old.pt")
os.chmod("config.json", 0o600)
shutil.rmtree("previous")
Path("previous").mkdir()
os.symlink("best.pt", "latest.pt")
Path("run/inside.txt").write_text("kept")
Path(os.environ["ELSEWHERE"], "new.txt").write_text("x")
assert Path("train.log").read_text() == "before\\nstep 0\\nstep 1\\nstep 2\\n"
json.dump([os.getcwd(), os.getuid(), os.getpid(), sorted(os.listdir("."))], open("run/seen.json", "w"))
sys.exit(7)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "previous").mkdir(parents=True)
    (folder / "run" / "raw").mkdir(parents=True)
    (folder / "train.py").write_text(TRAINING)
    (folder / "config.json").write_text('{"lr": 0.1}')
    (folder / "train.log").write_text("before\n")
    for name in ("old.pt", "previous/model.pt"):
        (folder / name).write_text("precious")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("ELSEWHERE", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def possible(project: Path) -> None:
    try:
        prepare(keep=[project / "run"]).close()
    except Refused as refused:
        pytest.skip(f"not possible here: {refused.message}")


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything of a folder but the run folder: mode, time of change, content."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
        if "run" not in path.relative_to(folder).parts
    }


def launch(found: Throwaway, project: Path, *command: str) -> Outcome:
    return run_command(command, raw_dir=project / "run" / "raw", src_dir=SRC, prefix=found.prefix)


@pytest.mark.usefixtures("possible")
def test_nothing_of_what_a_training_writes_stays_but_the_run_folder(project: Path) -> None:
    before = tree(project.parent)
    with throwaway(keep=[project / "run"]) as found:
        outcome = launch(found, project, sys.executable, "-S", "train.py")
        written = {(kind, str(path.relative_to(project.parent))) for kind, path in found.written()}
    assert tree(project.parent) == before
    assert (project / "run" / "inside.txt").read_text() == "kept"
    assert outcome.exit_code == 7
    assert f'"{project}", {os.getuid()}, {outcome.pid}' in (project / "run" / "seen.json").read_text()
    assert {
        ("written", "project/best.pt"),
        ("written", "project/checkpoints/0.pt"),
        ("written", "project/config.json"),
        ("written", "project/latest.pt"),
        ("written", "project/train.log"),
        ("written", "elsewhere/new.txt"),
        ("deleted", "project/old.pt"),
    } <= written
    assert not found.scratch.exists()


@pytest.mark.usefixtures("possible")
def test_each_run_starts_from_the_same_files(project: Path) -> None:
    for _ in range(2):  # the script itself asserts what it reads
        with throwaway(keep=[project / "run"]) as found:
            assert launch(found, project, sys.executable, "-S", "train.py").exit_code == 7


@pytest.mark.usefixtures("possible")
def test_a_command_that_is_not_there_is_told_as_ever(project: Path) -> None:
    with throwaway() as found, pytest.raises(UsageError, match="command not found: no-such-program"):
        launch(found, project, "no-such-program")


@pytest.mark.usefixtures("possible")
def test_it_dies_with_a_launcher_that_is_killed(project: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from hotloop.launch.command import run_command
from hotloop.launch.throwaway import throwaway
with throwaway() as found:
    command = ["sh", "-c", "echo ready; exec sleep 600"]
    run_command(command, raw_dir=Path("run/raw"), src_dir=Path({str(SRC)!r}), prefix=found.prefix)
"""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    launcher = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    with launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "ready\n"
        launcher.kill()
        assert launcher.stdout.read() == ""  # ends when the sleeper's end of the pipe does


@pytest.mark.usefixtures("possible")
def test_what_a_killed_run_left_is_swept_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = tmp_path / "hotloop-throwaway-x"
    (stale / "run" / "0" / "work" / "work").mkdir(parents=True)
    (stale / "run" / "0" / "work" / "work").chmod(0)
    (stale / "lock").touch()
    used = tmp_path / "hotloop-throwaway-y"
    used.mkdir()
    with (used / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        scratches.sweep(tmp_path)
        assert list(tmp_path.glob("hotloop-throwaway-*")) == [used]


def test_a_sweep_touches_nothing_that_others_put_there(tmp_path: Path) -> None:
    precious, shared = tmp_path / "precious", tmp_path / "shared"
    for folder in (precious / "x", shared / "hotloop-throwaway-fifo", shared / "hotloop-throwaway-link"):
        folder.mkdir(parents=True)
    (precious / "lock").touch()
    (shared / "hotloop-throwaway-folder").symlink_to(precious)
    os.mkfifo(shared / "hotloop-throwaway-fifo" / "lock")
    (shared / "hotloop-throwaway-link" / "lock").symlink_to(precious / "lock")
    scratches.sweep(shared)
    assert len(list(shared.iterdir())) == 3
    assert (precious / "x").is_dir()


def test_without_room_nothing_is_started(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "LEAST_DISK_BYTES", 1 << 60)
    with pytest.raises(Refused, match=r"no temporary folder with .* free: /.* has .*; TMPDIR can name"):
        prepare()


@pytest.mark.usefixtures("possible")
def test_what_was_in_a_folder_that_was_replaced_is_told_and_temporary_files_are_not(project: Path) -> None:
    code = "rm -r previous; mkdir previous; touch previous/new; mktemp -d -p /tmp; mkdir shut; chmod 0 shut"
    with throwaway() as found:
        subprocess.run([*found.prefix, "sh", "-c", code], check=True, capture_output=True)
        written = found.written()
    assert written == [
        ("deleted", project / "previous" / "model.pt"),
        ("written", project / "previous" / "new"),
        ("written", project / "shut"),
    ]
    assert not found.scratch.exists()


@pytest.mark.usefixtures("possible")
def test_a_folder_that_goes_before_the_start_is_no_reason_to_fail() -> None:
    with TemporaryDirectory(dir="/var/tmp") as gone:
        found = prepare()
    with contextlib.closing(found):
        if found.scratch.parent == Path("/var/tmp"):
            assert gone in [layer[0] for layer in found.plan["layers"]]
        subprocess.run([*found.prefix, "true"], check=True)


def test_a_run_that_fills_the_scratch_disk_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotloop.launch.guard.LEAST_DISK_BYTES", 1 << 60)
    watch = Guard(disk=tmp_path, only_disk=True)
    run = subprocess.Popen(["sleep", "600"])
    watch.look(run.pid)
    assert run.wait(60) == -9
    assert "where hotloop keeps what it throws away" in watch.why


def test_where_it_is_not_possible_the_reason_is_told(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = project / "refuses.py"
    child.write_text("import sys; sys.exit('unshare: Operation not permitted')")
    monkeypatch.setattr(room, "_CHILD", child)
    with pytest.raises(Refused, match="Operation not permitted"):
        prepare()


@pytest.mark.usefixtures("possible")
@pytest.mark.parametrize("value", [".", "..", "HOME"])
def test_a_cache_folder_that_holds_the_project_is_covered(
    project: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("HOME", str(project.parent))
    monkeypatch.setenv("HF_HOME", str(project.parent) if value == "HOME" else value)
    before = tree(project.parent)
    with throwaway(keep=[project / "run"]) as found:
        assert launch(found, project, sys.executable, "-S", "train.py").exit_code == 7
        assert project / "best.pt" in [path for _, path in found.written()]
    assert tree(project.parent) == before


@pytest.mark.usefixtures("possible")
def test_what_torch_compiled_stays(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.runtime.runtime_utils import default_cache_dir

    monkeypatch.setenv("TMPDIR", str(project.parent))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    compiled = Path(default_cache_dir())
    assert compiled.is_relative_to(project.parent)
    compiled.mkdir()
    with throwaway() as found:
        written = [compiled / "kernel", project / "best.pt"]
        command = [*found.prefix, "touch", *map(str, written)]
        subprocess.run(command, check=True, cwd=project)
    assert [path.exists() for path in written] == [True, False]


def test_what_would_be_really_written_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match=r"is really written, and .* lies in it"):
        prepare(keep=[project])
    with pytest.raises(Refused, match=r"lies in /dev.*, which is really written"):
        prepare(["python", "train.py", "--data=/dev/shm"])
    monkeypatch.chdir("/")
    with pytest.raises(Refused, match="the working folder is /"):
        prepare()


@pytest.mark.usefixtures("possible")
def test_words_that_are_no_paths_do_no_harm(project: Path) -> None:
    prepare(["python", "-c", "/" + "x" * 5000, "a\0b", "/dev/null"]).close()


def test_disks_below_run_hold_files() -> None:
    kinds = {"/run": "tmpfs", "/run/user/7": "tmpfs", "/run/media/me/disk": "exfat", "/mnt/ram": "ramfs"}
    found = {path: Mount(path=Path(path), kind=kind, flags=0, writable=True) for path, kind in kinds.items()}
    assert [path for path in kinds if found[path].holds_files] == ["/run/media/me/disk", "/mnt/ram"]


def test_mounts_are_read_as_the_kernel_writes_them(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    escaped = str(tmp_path / "a b").replace(" ", "\\040")
    text = (
        "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
        f"2 1 8:2 / {escaped} rw,nosuid - xfs /dev/b rw\n"
        "3 1 0:5 / /proc rw - proc proc rw\n"
        "4 1 0:6 / /not/there rw - ext4 /dev/c rw\n"
        "5 1 0:7 / /dev rw - devtmpfs dev ro\n"
        "6 1 0:8 / /run rw - tmpfs run rw\n"
    )
    found = {str(mount.path): mount for mount in mounts(text)}
    assert set(found) == {"/", str(tmp_path / "a b"), "/proc", "/dev", "/run"}
    assert [found[name].holds_files for name in ("/", str(tmp_path / "a b"), "/proc", "/dev", "/run")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert found[str(tmp_path / "a b")].flags == 2
