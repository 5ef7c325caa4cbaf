"""Full disks and folders that cannot be written: training goes on, and hotloop says what it could not do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import whole

needs_mount = pytest.mark.skipif(not whole.can_mount(), reason="mounts need privileges")

#: Writes more rows than a small disk holds, and proves at the end that all of it was trained.
LONG = """
    import warnings
    for _ in range(int(sys.argv[1])):
        epoch()
    print("trained", digest())
"""


@needs_mount
def test_a_full_disk_stops_the_recording_and_not_the_training(tmp_path: Path) -> None:
    path = whole.script(tmp_path, LONG)
    command = [sys.executable, str(path), "300"]
    (tmp_path / "small").mkdir()
    full = f"mount -t tmpfs -o size=150k tmpfs '{tmp_path}/small'"
    done = whole.run(command, folder=tmp_path, before=full, out=tmp_path / "small" / "run")
    assert done.returncode == 0
    assert done.stdout.startswith("trained ")
    assert "hotloop" in done.stderr
    assert "No space left" in done.stderr
    assert "steps are missing" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    roomy = whole.run(command, folder=tmp_path, warm=True)
    assert roomy.stdout == done.stdout
    assert roomy.num_backwards == 2400


@pytest.mark.nightly
@needs_mount
def test_a_disk_that_fills_up_later_keeps_what_was_stored(tmp_path: Path) -> None:
    path = whole.script(
        tmp_path,
        """
        for _ in range(100): epoch()
        with open(os.environ["FILL"], "wb", buffering=0) as file:
            try:
                while True: file.write(bytes(4096))
            except OSError: pass
        for _ in range(900): epoch()
        os.remove(os.environ["FILL"])
        print("trained")
        """,
    )
    (tmp_path / "small").mkdir()
    small = f"mount -t tmpfs -o size=2m tmpfs '{tmp_path}/small'"
    out = tmp_path / "small" / "run"
    # the recording is copied out of the namespace before it goes
    command = ["sh", "-c", f"{sys.executable} {path} && cp -r {out} {tmp_path}/copy"]
    env = {"FILL": str(tmp_path / "small" / "fill")}
    done = whole.run(command, folder=tmp_path, before=small, out=out, env=env)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    kept = whole.Done(returncode=0, stdout="", stderr="", folder=tmp_path / "copy")
    assert kept.num_backwards >= 800


@needs_mount
def test_a_read_only_working_folder_and_no_shared_memory(tmp_path: Path) -> None:
    work = tmp_path / "work"
    path = whole.script(work, "epoch(); print('trained')\n")
    before = f"""
        mount --bind '{work}' '{work}' && mount -o remount,bind,ro '{work}'
        mount -t tmpfs -o ro tmpfs /dev/shm
        cd '{work}'
    """
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = whole.run(
        [sys.executable, str(path)], folder=work, before=before, out=None, env={"TMPDIR": str(scratch)}
    )
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    (folder,) = [found.parent for found in scratch.rglob("run.json")]
    assert str(folder) in done.stderr.replace("\n", "")  # the report may break the line
    kept = whole.Done(returncode=0, stdout="", stderr="", folder=folder)
    assert kept.num_backwards == 8


@needs_mount
def test_a_folder_named_by_the_user_that_cannot_be_written_is_an_error_before_anything_runs(
    tmp_path: Path,
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    before = f"mount --bind '{work}' '{work}' && mount -o remount,bind,ro '{work}'"
    done = whole.run(["sh", "-c", "echo ran"], folder=tmp_path, before=before, out=work / "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "hint: " in done.stderr
    assert str(work / "run") in done.stderr
