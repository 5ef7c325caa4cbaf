"""Three machines, each a network namespace with a name and a monotonic clock of its own, run one torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from tests.running import SRC
from tests.scenarios.straggler import SCRIPT, machine

from hotloop.flow.load import load
from hotloop.flow.merge import merge
from hotloop.record.read import open_recording
from hotloop.record.rows import BACKWARD

HOSTS = ("node-a", "node-b", "node-c")


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True, capture_output=True)


@pytest.fixture
def network() -> Iterator[list[str]]:
    """Names of three network namespaces on one bridge; they have the addresses 10.77.0.1 to 3 on ``eth0``."""
    mine = f"hl{os.getpid()}"
    names = [f"{mine}-{number}" for number in range(3)]
    try:
        ip(f"netns add {mine}-hub")
        ip(f"-n {mine}-hub link add bridge type bridge")
        ip(f"-n {mine}-hub link set bridge up")
        for number, name in enumerate(names):
            ip(f"netns add {name}")
            ip(f"-n {name} link set lo up")
            ip(f"-n {name} link add eth0 type veth peer name port{number} netns {mine}-hub")
            ip(f"-n {mine}-hub link set port{number} master bridge up")
            ip(f"-n {name} addr add 10.77.0.{number + 1}/24 dev eth0")
            ip(f"-n {name} link set eth0 up")
        subprocess.run(["unshare", "--uts", "--time", "--monotonic", "9", "true"], check=True)
    except (OSError, subprocess.CalledProcessError):
        names = []
    try:
        yield names
    finally:
        for name in (*names, f"{mine}-hub"):
            end(name)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def end(host: str) -> None:
    """The machine loses its power: every process in its namespace is killed."""
    pids = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True).stdout.split()
    for pid in pids:
        subprocess.run(["kill", "-9", pid], capture_output=True)


@pytest.mark.nightly
def test_three_nodes_one_slow_one_killed_clocks_apart(network: list[str], tmp_path: Path) -> None:
    if not network:
        pytest.skip("no network or time namespaces here")
    (tmp_path / "train.py").write_text(dedent(SCRIPT))
    env = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    env |= {"PLACES": "RANK WORLD_SIZE", "SLOW": "1", "STEPS": "100000"}
    started = []
    for number, (space, name) in enumerate(zip(network, HOSTS, strict=True)):
        torchrun = [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "3", "--node-rank", str(number)),
            *("--nproc-per-node", "1", "--master-addr", "10.77.0.1", "--master-port", "29555", "train.py"),
        ]
        run = [sys.executable, "-m", "hotloop", "run", "--out", name, "--", *torchrun]
        words = ["ip", "netns", "exec", space, *machine(name, 3000 * number, *run)]
        with (tmp_path / f"{name}.log").open("w") as log:
            started.append(subprocess.Popen(words, cwd=tmp_path, env=env, stdout=log, stderr=log))
    for _ in range(1200):
        if (tmp_path / "enough").exists():
            break
        assert all(one.poll() is None for one in started), (tmp_path / "node-a.log").read_text()
        time.sleep(0.1)
    time.sleep(1.0)
    end(network[2])
    for one in started:
        one.wait(timeout=120)
    folders = [tmp_path / name for name in HOSTS]
    calendar = json.loads((folders[1] / "run.json").read_text())
    calendar["start_unix_s"] += 4
    (folders[1] / "run.json").write_text(json.dumps(calendar))

    each = [open_recording(folder) for folder in folders]
    assert each[1].start_ns - each[0].start_ns > 2000e9
    said = merge(folders, tmp_path / "whole")
    print(*said, sep="\n")
    assert "its calendar is 4 s ahead" in said[1]
    run = load(tmp_path / "whole")
    recording = run.examination.recording
    assert [rank.rank for rank in recording.ranks] == [0, 1, 2]
    backwards = [int((rank.rows["kind"] == BACKWARD).sum()) for rank in recording.ranks]
    assert backwards == [int((one.ranks[0].rows["kind"] == BACKWARD).sum()) for one in each]
    assert min(backwards) > 120
    found = next(one for one in run.findings if one.id == "distributed/straggler")
    assert found.rank == 1
    assert found.where is not None
    assert found.where.line == 9
    assert "rank 1 runs on node-b" in found.evidence
    assert not recording.complete
    parts = json.loads((tmp_path / "whole" / "run.json").read_text())["parts"]
    assert [part["name"] for part in parts] == list(HOSTS)
    assert all(part["within_s"] < 0.05 for part in parts)
