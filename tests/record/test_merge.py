"""Runs of one job's nodes become one run: on one clock, nothing of any lost, errors in words."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from textwrap import dedent
from typing import Any

import crafted
import pytest
from tests.running import SRC
from tests.scenarios.straggler import SCRIPT, machine

from hotloop.cli.main import main
from hotloop.flow.load import load
from hotloop.flow.merge import merge
from hotloop.record import rows as r
from hotloop.record.read import open_recording
from hotloop.record.recording import durations_ns
from hotloop.record.store import Store


def launcher(folder: Path, name: str, *, ahead_s: int, env: dict[str, Any]) -> subprocess.Popen[str]:
    """``hotloop run`` as a machine with this name, whose monotonic clock is ahead."""
    there = subprocess.run(machine(name, ahead_s, "true"), capture_output=True).returncode == 0
    words = [sys.executable, "-m", "hotloop", "run", "--out", name, "--", sys.executable, "train.py"]
    return subprocess.Popen(
        machine(name, ahead_s, *words) if there else words, cwd=folder,
        env={"PATH": "/usr/bin:/bin:/usr/sbin", "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", **env},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.alone  # what waits for a core is slow at any line
def test_two_launchers_of_a_slurm_job_become_one_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(dedent(SCRIPT))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "SLOW": "1", "HOME": str(tmp_path)}
    env |= {"PLACES": "SLURM_PROCID SLURM_NTASKS", "STEPS": "40"}
    env |= {"SLURM_JOB_ID": "7", "SLURM_NNODES": "2", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
    started = [
        launcher(tmp_path, f"node-{name}", ahead_s=5000 * int(at), env={**env, "SLURM_PROCID": at})
        for at, name in zip("01", "ab", strict=True)
    ]
    for one in started:
        said, _ = one.communicate(timeout=120)
        assert one.returncode == 0, said
    folders = [tmp_path / "node-a", tmp_path / "node-b"]
    raw = [open_recording(folder) for folder in folders]
    out = tmp_path / "whole"
    assert main(["merge", *map(str, folders), "--out", str(out)]) == 0
    run = load(out)
    recording = run.examination.recording
    assert [rank.rank for rank in recording.ranks] == [0, 1]
    assert [len(rank.rows) for rank in recording.ranks] == [len(one.ranks[0].rows) for one in raw]
    assert set(recording.process_system) >= {rank.pid for rank in recording.ranks}
    ends = []
    for rank in recording.ranks:
        rows = rank.rows[rank.rows["kind"] == r.BACKWARD]
        ends.append(rows["start"].astype(int) + durations_ns(rows))
    assert abs(ends[0] - ends[1]).max() < 1e9
    found = next(one for one in run.findings if one.id == "distributed/straggler")
    assert (found.rank, found.where.line if found.where else 0) == (1, 9)
    if len(recording.nodes) == 2:  # else there are no namespaces here, and it is one machine
        assert [node["name"] for node in run.report["nodes"]] == ["node-a", "node-b"]
        assert raw[1].start_ns - raw[0].start_ns > 4000e9
        assert "rank 1 runs on node-b" in found.evidence
        assert not [text for text in recording.warnings if "calendar" in text]


def node(
    folder: Path,
    ranks: tuple[int, ...],
    *,
    name: str = "",
    world: int = 4,
    script: str = "train.py",
    clock_ns: int = 1_000,
    calendar_s: float = 1.7e9,
    barriers: int = 0,
    ended: bool = True,
) -> Path:
    """A crafted run folder of one machine: its clock shows ``clock_ns`` when the job begins."""
    store = Store(folder)
    store.begin(["torchrun", script], {"hostname": name or folder.name, "cores": 2.0})
    pid = crafted.gone_pid()
    for at, rank in enumerate(ranks):
        notes = [{"kind": "exit", "reason": "exit"}] if ended else []
        about = {"rank": rank, "world_size": world, "argv": [script], "ppid": 1}
        writer = crafted.write(store.raw_dir, pid + at, clock_ns, notes=notes, close=False, **about)
        for k in range(barriers):
            writer.row(r.COLLECTIVE, clock_ns + 10**9 * (k + 1), 10**6, obj=r.COLLECTIVE_OPS.index("barrier"))
        writer.close()
    store.take_in(([{"t_ns": clock_ns}], [{"t_ns": clock_ns, "pid": float(pid), "rss_bytes": 1e9}]))
    if ended:
        store.finish(crafted.Ended(start_ns=clock_ns, end_ns=clock_ns + 10**10, start_unix_s=calendar_s))
    return folder


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"ranks": (1, 2)}, r"rank 1 is in both .*a \(a\) and .*b \(b\)"),
        ({"ranks": (2, 3), "world": 8}, "a has the world size 4, .* has 8"),
        ({"ranks": (2, 3), "script": "other.py"}, "the script train.py, .* has other.py"),
        ({"ranks": (2, 3), "calendar_s": 1.7e9 + 86400}, "24.0 hours lie between"),
    ],
)
def test_what_is_not_one_job_is_an_error(tmp_path: Path, other: dict[str, Any], words: str) -> None:
    first = node(tmp_path / "a", (0, 1))
    second = node(tmp_path / "b", **other)
    with pytest.raises(Exception, match=words.replace("a has", r"\(a\) has")):
        merge([first, second], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_one_run_alone_and_a_folder_of_runs_say_what_to_give(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, ranks in (("a", (0, 1)), ("b", (2, 3))):
        node(tmp_path / name, ranks)
    assert main(["merge", str(tmp_path / "a"), "--out", str(tmp_path / "out")]) == 2
    assert main(["report", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "one run is given" in said
    assert "hotloop merge" in said


def test_barriers_set_the_clock_where_calendars_differ(tmp_path: Path) -> None:
    first = node(tmp_path / "a", (0,), world=3, barriers=20)
    second = node(tmp_path / "b", (1,), world=3, barriers=20, clock_ns=7 * 10**12, calendar_s=1.7e9 - 3)
    words = merge([second, first], tmp_path / "out")
    assert "told by 20 ends of barrier, within 0 ms; its calendar is 3 s behind" in words[1]
    assert words[2] == "rank 2 of 3 is missing: no run holds what they did"
    recording = open_recording(tmp_path / "out")
    assert words[2] in recording.warnings
    starts = [rank.rows["start"].tolist() for rank in recording.ranks]
    assert starts[0] == starts[1]
    assert len(recording.process_system) == 2
    assert {columns["t_s"][0] for columns in recording.process_system.values()} == {0.0}
    assert [node.machine["hostname"] for node in recording.nodes] == ["a", "b"]
    assert json.loads((tmp_path / "out" / "run.json").read_text())["parts"][1]["path"] == str(second)


def test_of_a_node_that_was_killed_all_is_kept_that_it_left(tmp_path: Path) -> None:
    with get_context("fork").Pool(1) as pool:  # killed at its end
        killed = pool.apply(node, (tmp_path / "b", (2, 3)), {"ended": False})
    merge([node(tmp_path / "a", (0, 1), calendar_s=time.time()), killed], tmp_path / "out")
    recording = open_recording(tmp_path / "out")
    assert [(rank.rank, len(rank.rows)) for rank in recording.ranks] == [(rank, 12) for rank in range(4)]
    assert not recording.complete


def test_tasks_of_one_machine_are_one_machine(tmp_path: Path) -> None:
    tasks = [node(tmp_path / f"task-{rank}", (rank,), name="gpu01", world=2) for rank in range(2)]
    merge(tasks, tmp_path / "out")
    recording = open_recording(tmp_path / "out")
    assert [[rank.rank for rank in node.ranks] for node in recording.nodes] == [[0, 1]]
    assert not recording.warnings


def test_a_part_elsewhere_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": 1, "parts": [{"folder": "../secret"}]}')
    with pytest.raises(Exception, match=r"names a part '\.\./secret'"):
        open_recording(tmp_path)
    (tmp_path / "run.json").write_text('{"schema": 1, "parts": [{"folder": "node-0"}]}')
    (tmp_path / "node-0").symlink_to(tmp_path)
    with pytest.raises(Exception, match="is a merged run and no part"):
        open_recording(tmp_path)
