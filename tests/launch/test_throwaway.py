"""A run whose writes are thrown away: it sees them, nobody else ever does."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.running import SRC

from hotloop.errors import UsageError
from hotloop.launch import throwaway as room
from hotloop.launch import throwaway as scratches
from hotloop.launch.command import Outcome, run_command
from hotloop.launch.guard import Guard
from hotloop.launch.throwaway import Refused, Throwaway, prepare

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
    with closing(prepare(keep=[project / "run"])) as found:
        outcome = launch(found, project, sys.executable, "-S", "train.py")
    assert tree(project.parent) == before
    assert (project / "run" / "inside.txt").read_text() == "kept"
    assert outcome.exit_code == 7
    assert f'"{project}", {os.getuid()}, {outcome.pid}' in (project / "run" / "seen.json").read_text()
    assert not found.scratch.exists()


@pytest.mark.usefixtures("possible")
def test_a_command_that_is_not_there_is_told_as_ever(project: Path) -> None:
    with closing(prepare()) as found, pytest.raises(UsageError, match="command not found: no-such-program"):
        launch(found, project, "no-such-program")


@pytest.mark.usefixtures("possible")
def test_it_dies_with_a_launcher_that_is_killed(project: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from hotloop.launch.command import run_command
from contextlib import closing
from hotloop.launch.throwaway import prepare
with closing(prepare()) as found:
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


#: ends: whether the daemon ends by itself; the script waits until it is gone.
DAEMON = """
import os, signal, socket, sys, time
from pathlib import Path
ends = sys.argv[1] == "ends"
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        if os.fork() == 0:
            os.setsid()
        Path(f"run/{os.getpid()}").touch()
        time.sleep(0.1 if ends else 60)
    os._exit(0)
os.wait()
while len(daemons := [int(name) for name in os.listdir("run") if name.isdecimal()]) < 2:
    time.sleep(0.01)
while ends and any(Path(f"/proc/{pid}").exists() for pid in daemons):
    time.sleep(0.01)
"""


@pytest.mark.parametrize("ends", ["ends", "stays"])
@pytest.mark.usefixtures("possible")
def test_it_leaves_no_process(project: Path, ends: str) -> None:
    (project / "train.py").write_text(DAEMON)
    with closing(prepare(keep=[project / "run"])) as found:
        command = (sys.executable, "-S", "train.py", ends)
        raw, prefix = project / "run" / "raw", found.prefix
        outcome = run_command(command, raw_dir=raw, src_dir=SRC, prefix=prefix, leave_none=True)
    assert outcome.exit_code == 0
    daemons = [path.name for path in (project / "run").iterdir() if path.name.isdecimal()]
    assert len(daemons) == 2
    assert not any(Path("/proc", pid).exists() for pid in daemons)


@pytest.mark.usefixtures("possible")
def test_what_a_killed_run_left_is_swept_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = tmp_path / "hotloop-throwaway-x"
    (stale / "run" / "0" / "work" / "work").mkdir(parents=True)
    (stale / "run" / "0" / "work" / "work").chmod(0)
    used = tmp_path / "hotloop-throwaway-y"
    used.mkdir()
    lock = os.open(used, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    scratches.sweep(tmp_path)
    os.close(lock)
    assert list(tmp_path.glob("hotloop-throwaway-*")) == [used]


def test_a_sweep_touches_nothing_that_others_put_there(tmp_path: Path) -> None:
    precious, shared = tmp_path / "precious", tmp_path / "shared"
    for folder in (precious / "x", shared):
        folder.mkdir(parents=True)
    (shared / "hotloop-throwaway-folder").symlink_to(precious)
    os.mkfifo(shared / "hotloop-throwaway-fifo")
    scratches.sweep(shared)
    assert len(list(shared.iterdir())) == 2
    assert (precious / "x").is_dir()


def test_without_room_nothing_is_started(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "LEAST_DISK_BYTES", 1 << 60)
    with pytest.raises(Refused, match=r"no temporary folder with .* free: /.* has .*; TMPDIR can name"):
        prepare()


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


def test_what_would_be_really_written_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match=r"is really written, and .* lies in it"):
        prepare(keep=[project])
    with pytest.raises(Refused, match=r"lies in /dev.*, which is really written"):
        prepare(["python", "train.py", "--data=/dev/shm"])
    monkeypatch.chdir("/")
    with pytest.raises(Refused, match="the working folder is /"):
        prepare()
