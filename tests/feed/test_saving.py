"""Checkpoints written in the background: the file of ``torch.save``, of the state at the call, and whole."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.running import SRC, python

from hotloop.feed import async_save, saving, wait_for_saves


class Gate:
    """Opens torch's writer once it is let; tells what was opened."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.opened: list[str] = []

    def __call__(self, path: str) -> Any:
        self.go.wait(30)
        self.opened.append(path)
        return torch.serialization._open_zipfile_writer(path)

    def save(self, obj: Any, path: Path) -> None:
        with saving.Deferred(str(path), self) as zip_file:
            torch.serialization._save(obj, zip_file, torch.serialization.pickle, 2, False)


@pytest.fixture
def gate() -> Iterator[Gate]:
    found = Gate()
    yield found
    found.go.set()
    wait_for_saves()


def state() -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters())
    model[1](model[0](torch.arange(5))).sum().backward()
    optimizer.step()
    whole = torch.arange(10.0)
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "views": (whole[:3], whole[3:]),
        "sparse": torch.eye(3).to_sparse(),
        "empty": torch.empty(0),
        "bf16": torch.ones(3, dtype=torch.bfloat16),
        "epoch": 3,
    }


@pytest.mark.parametrize("name", ["last.pt", "größe.1.ckpt"])
def test_the_file_is_the_one_that_torch_writes(tmp_path: Path, name: str) -> None:
    saved = state()
    (tmp_path / "plain").mkdir()
    torch.save(saved, tmp_path / "plain" / name)
    async_save(saved, tmp_path / name)
    wait_for_saves()
    assert (tmp_path / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"plain", name}


def test_what_is_changed_after_the_call_is_not_in_the_file(tmp_path: Path, gate: Gate) -> None:
    weight = torch.zeros(1000)
    state = OrderedDict(weight=weight, view=weight[10:20], steps=[1])
    gate.save(state, tmp_path / "a.pt")
    weight.fill_(7)
    state["steps"].append(2)
    gate.go.set()
    found = torch.load(tmp_path / "a.pt")
    assert not found["weight"].any()
    assert found["steps"] == [1]
    found["weight"][10] = 5
    assert found["view"][0] == 5


@pytest.mark.parametrize("reads", ["open", "replace", "listdir", "program", "size"])
def test_who_comes_upon_the_file_waits_until_it_is_there(tmp_path: Path, gate: Gate, reads: str) -> None:
    path = tmp_path / "a.pt"
    gate.save(torch.ones(3), path)
    assert not gate.opened
    threading.Timer(0.2, gate.go.set).start()
    if reads == "open":
        assert path.read_bytes()[:2] == b"PK"
    elif reads == "replace":
        path.replace(tmp_path / "b.pt")
    elif reads == "listdir":
        assert list(tmp_path.iterdir()) == [path]
    elif reads == "program":
        subprocess.run(["test", "-s", str(path)], check=True)
    else:
        assert path.stat().st_size > 500


def test_a_newer_state_takes_the_place_of_one_that_waits_and_another_path_waits_its_turn(
    tmp_path: Path, gate: Gate
) -> None:
    a, b = tmp_path / "a.pt", tmp_path / "b.pt"
    for value in range(4):
        gate.save(torch.tensor(value), a)
    other = threading.Thread(target=gate.save, args=(torch.tensor(9), b))
    other.start()
    other.join(0.2)
    assert other.is_alive()
    gate.go.set()
    other.join(30)
    wait_for_saves()
    assert torch.load(a) == 3
    assert torch.load(b) == 9
    assert len(gate.opened) == 3


def test_a_file_that_could_not_be_written_is_told_and_the_next_call_raises(
    tmp_path: Path, gate: Gate
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    gate.save(torch.ones(1), folder / "a.pt")
    folder.rmdir()
    gate.go.set()
    with pytest.warns(RuntimeWarning, match=r"gone/a\.pt could not be written"):
        saving._WRITER.wait()
    saving._WRITER.wait()
    with pytest.raises(RuntimeError, match="gone"):
        async_save(torch.ones(1), tmp_path / "b.pt")
    async_save(torch.ones(1), tmp_path / "b.pt")
    assert torch.load(tmp_path / "b.pt") == 1


def test_of_several_ranks_the_file_is_there_on_return(tmp_path: Path, gate: Gate) -> None:
    gate.go.set()
    code = (
        f"import sys, os, torch; sys.path.insert(0, {str(SRC)!r})\n"
        "import torch.distributed as dist; from hotloop.feed import async_save\n"
        "dist.init_process_group('gloo')\n"
        "for step in range(5):\n"
        "    if dist.get_rank() == 0: async_save(torch.full((500_000,), float(step)), 'a.pt')\n"
        "    dist.barrier()\n"
        "    assert (torch.load('a.pt') == step).all()\n"
        "    dist.barrier()\n"
    )
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29541", "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env={**env, "RANK": str(rank)})
        for rank in range(2)
    ]
    assert [rank.wait(60) for rank in ranks] == [0, 0]


SCRIPT = """
import os, signal, sys, torch
sys.path.insert(0, {src!r})
from hotloop.feed import async_save
state = {{"weight": torch.full((2_000_000,), 1.0), "step": 0}}
for step in range(1, 6):
    state["step"] = step
    state["weight"].fill_(step)
    async_save(state, "last.pt")
    {then}
"""


def test_the_end_of_the_process_waits_for_the_last_state(tmp_path: Path) -> None:
    code = SCRIPT.format(src=str(SRC), then="pass")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
    found = torch.load(tmp_path / "last.pt")
    assert found["step"] == 5
    assert (found["weight"] == 5).all()
    assert [path.name for path in tmp_path.iterdir()] == ["last.pt"]


def test_killed_at_any_moment_a_whole_state_is_left(tmp_path: Path) -> None:
    torch.save({"step": 0, "weight": torch.zeros(1)}, tmp_path / "last.pt")
    for moment in (0, 0.002, 0.01, 0.03):
        then = f"import time; time.sleep({moment}); step == 3 and os.kill(os.getpid(), signal.SIGKILL)"
        code = SCRIPT.format(src=str(SRC), then=then)
        assert python("train.py", folder=tmp_path, script=code).returncode == -9
        found = torch.load(tmp_path / "last.pt")
        assert (found["weight"] == found["step"]).all()
