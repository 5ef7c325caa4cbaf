"""SIGKILL at any moment leaves a recording that opens and holds every step done so far."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import whole
from tests.running import hotloop, succeeded

from hotloop.record.read import open_recording
from hotloop.record.rows import BACKWARD

#: Forks trainers that count their steps in shared memory, and kills them one by one at different moments.
KILLED_TRAINERS = """
    import mmap, signal, time
    num = 12
    counts = mmap.mmap(-1, 8 * num)
    gates = [os.pipe() for _ in range(num)]
    for n in range(num):
        pid = os.fork()
        if pid == 0:
            done = 0
            while True:
                for x, y in DataLoader(data, batch_size=8, num_workers=0):
                    step(x, y)
                    done += 1
                    counts[8 * n:8 * n + 8] = done.to_bytes(8, "little")
                    if done == 1:
                        os.write(gates[n][1], b"1")
        os.read(gates[n][0], 1)
        time.sleep(0.013 * n)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        print(pid, int.from_bytes(counts[8 * n:8 * n + 8], "little"), flush=True)
"""


def backwards_by_pid(folder: Path) -> dict[int, int]:
    return {rank.pid: int((rank.rows["kind"] == BACKWARD).sum()) for rank in open_recording(folder).ranks}


def test_trainers_killed_at_many_moments_keep_every_step_they_did(tmp_path: Path) -> None:
    path = whole.script(tmp_path, KILLED_TRAINERS)
    done = succeeded(whole.run([sys.executable, str(path)], folder=tmp_path, warm=True))
    counted = {int(pid): int(steps) for pid, steps in (line.split() for line in done.stdout.splitlines())}
    seen = backwards_by_pid(done.folder)
    assert len(counted) == 12
    for pid, steps in counted.items():
        assert steps <= seen[pid] <= steps + 1


#: Trains until told to stop by a file, says how far it is, and ends on its own.
ENDLESS = """
    stop = sys.argv[1]
    done = 0
    while not os.path.exists(stop) and done < 200_000:
        epoch()
        done += 8
        if done == 80:
            print("ready", flush=True)
    with open(stop + ".done", "w") as file:
        file.write(str(done))
"""


def start(tmp_path: Path) -> subprocess.Popen[str]:
    path = whole.script(tmp_path, ENDLESS)
    command = whole.hotloop_command([sys.executable, str(path), str(tmp_path / "stop")], tmp_path / "run")
    process = subprocess.Popen(
        command, env=whole.surroundings(), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_killed_launcher_neither_stops_the_training_nor_loses_a_step(tmp_path: Path) -> None:
    process = start(tmp_path)
    process.kill()
    process.wait()
    before = sum(backwards_by_pid(tmp_path / "run").values())  # while the training goes on
    assert before >= 80
    (tmp_path / "stop").touch()
    assert process.stdout is not None
    process.stdout.read()  # the training has its end of the pipe until it ends
    process.stdout.close()
    steps = int((tmp_path / "stop.done").read_text())
    recording = open_recording(tmp_path / "run")
    assert sum(backwards_by_pid(tmp_path / "run").values()) == steps
    assert (recording.complete, recording.exit_code) == (False, None)
    assert recording.wall_s > 0
    succeeded(hotloop("report", tmp_path / "run"))


@pytest.mark.parametrize("ticks", [0.0, 0.4])
def test_everything_killed_at_once_opens(tmp_path: Path, ticks: float) -> None:
    process = start(tmp_path)
    if ticks:  # let the launcher store some of it
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=ticks)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert sum(backwards_by_pid(tmp_path / "run").values()) >= 80
