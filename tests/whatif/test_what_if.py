"""``hotloop what-if`` on real scripts of known speed: the ratios, and a run that stays what it was."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests import running
from tests.running import SRC

from hotloop.cli.main import main
from hotloop.record.read import open_recording

#: A sample takes 5 ms of waiting, a step 15 ms; batches of four: 35 ms without workers, 20 with one.
SCRIPT = """
import argparse, hashlib, json, os, sys, time, torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
options = argparse.ArgumentParser()
options.add_argument("--workers", type=int, default=0)
options.add_argument("--epochs", type=int, default=3)
options.add_argument("--samples", type=int, default=200)
options.add_argument("--random", action="store_true")
options.add_argument("--bare", action="store_true")
options = options.parse_args()
if os.environ.get("AT_ONCE"):  # waits change no value
    time.sleep = lambda seconds: None

class Slow(Dataset):
    def __len__(self):
        return options.samples
    def __getitem__(self, index):
        time.sleep(0.005)
        value = torch.full((16,), index / options.samples)
        return (value + torch.randn(16) if options.random else value), index

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK", "-1"))
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1))
    sampler = None
    if rank >= 0:
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
        sampler = DistributedSampler(Slow())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(
        Slow(), batch_size=4, shuffle=sampler is None, sampler=sampler, num_workers=options.workers
    )
    log = []
    for epoch in range(options.epochs):
        batches = loader if not options.bare else [(torch.ones(4, 16), torch.arange(4))] * 100
        for values, indices in batches:
            optimizer.zero_grad()
            loss = model(values).square().mean()
            loss.backward()
            time.sleep(0.015)
            optimizer.step()
            log.append([loss.item(), indices.tolist()])
        with torch.no_grad():
            for (values,) in DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 16))):
                break
    sys.stdout.write(f"rank {rank}: {len(log)} {hashlib.sha256(json.dumps(log).encode()).hexdigest()}\\n")
    sys.stdout.flush()
    if rank >= 0:
        torch.distributed.destroy_process_group()
"""


def run(folder: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT)
    if command[:2] == ("-m", "hotloop"):
        return running.hotloop(*command[2:], folder=folder, env=more, timeout=300)
    return running.python(*command, folder=folder, env=more)


def printed(*outputs: str) -> set[str]:
    """What the script said of its losses and its order."""
    return {line for output in outputs for line in output.splitlines() if line.startswith("rank ")}


def what_if(folder: Path, *words: str) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    done = run(folder, "-m", "hotloop", "what-if", "--out", "r", "--json", *words)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    for process in open_recording(folder / "r").ranks:
        assert not process.notes.get("disabled")
    return found, done


def rows(found: dict[str, Any]) -> dict[str, Any]:
    return {row["intervention"]: row for row in found["rows"]}


@pytest.mark.alone  # what it measures is time
def test_free_data_and_workers_are_measured_and_the_run_stays_bit_equal(tmp_path: Path) -> None:
    plain = run(tmp_path, "train.py", "--epochs", "4", AT_ONCE="1")
    found, done = what_if(
        tmp_path, "--go-on", "--budget", "60s", "free-data", "num-workers=2",
        "--", sys.executable, "train.py", "--epochs", "4",
    )  # fmt: skip
    assert done.returncode == 0 and printed(done.stderr) == printed(plain.stdout) != set()
    measured = rows(found)
    assert 1.3 < measured["free-data"]["ratio"] < 3
    assert measured["free-data"]["ci95"][0] < measured["free-data"]["ratio"]
    assert 1.2 < measured["num-workers=2"]["ratio"] < 3 and found["loader_alone_s"] > 0.02
    assert found["step_alone_s"] > 0.015 and not found["not_exact"]
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert rows({"rows": report["what_if"]}) == measured
    assert json.loads((tmp_path / "r" / "what_if.json").read_text()) == found
    assert not (tmp_path / "r" / "what-if.blocks").exists()


@pytest.mark.nightly
def test_workers_that_lose_their_turn_lose_no_batch(tmp_path: Path) -> None:
    """Several loaders in turn, epochs shorter than a cycle of blocks."""
    args = ("train.py", "--workers", "2", "--epochs", "5", "--samples", "160")
    plain = run(tmp_path, *args, AT_ONCE="1")
    names = ("free-data", "num-workers=1", "no-workers", "prefetch-factor=3")
    words = ("--out", "r", "--go-on", "--budget", "60s", *names)
    done = run(tmp_path, "-m", "hotloop", "what-if", *words, "--", sys.executable, *args)
    assert printed(done.stderr) == printed(plain.stdout) != set()
    (process,) = open_recording(tmp_path / "r").ranks
    assert not process.notes.get("disabled")
    assert set(names) <= {note["name"] for note in process.notes["block"]}


def test_random_samples_in_the_training_process_are_told(tmp_path: Path) -> None:
    args = ("train.py", "--random", "--epochs", "2")
    found, _ = what_if(tmp_path, "--go-on", "--budget", "30s", "free-data", "--", sys.executable, *args)
    assert "random numbers" in found["not_exact"]


@pytest.mark.nightly
def test_ranks_switch_at_the_same_step_and_stay_bit_equal(tmp_path: Path) -> None:
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")
    args = (*launch, "--samples", "240", "--epochs", "7")
    plain = run(tmp_path, *args, AT_ONCE="1")
    _, done = what_if(
        tmp_path, "--go-on", "--budget", "120s", "free-data", "num-workers=1", "--", sys.executable, *args
    )
    assert printed(done.stderr) == printed(plain.stdout) and len(printed(done.stderr)) == 2
    ranks = open_recording(tmp_path / "r").ranks
    blocks = [
        [(note["name"], note["first_step"], note["last_step"]) for note in process.notes["block"]]
        for process in ranks
        if "block" in process.notes
    ]
    assert len(blocks) == 2 and blocks[0] == blocks[1]
    assert {name for name, _, _ in blocks[0]} == {"baseline", "free-data", "num-workers=1"}


@pytest.mark.nightly
@pytest.mark.alone  # what it measures is time
def test_without_a_loader_remedies_of_the_step_are_measured_and_the_run_is_ended(tmp_path: Path) -> None:
    found, done = what_if(
        tmp_path, "--budget", "8s", "free-data", "autocast-bf16", "threads=1",
        "--", sys.executable, "train.py", "--bare", "--epochs", "1000",
    )  # fmt: skip
    assert done.returncode == 0
    assert not printed(done.stderr)  # it was ended when the budget was spent
    measured = rows(found)
    assert measured["free-data"]["words"] == "no DataLoader drives this loop"
    assert measured["threads=1"]["words"] == "1 already"
    assert measured["autocast-bf16"]["ratio"] > 0.3
    assert "  autocast-bf16: forward passes round to 8 bits of mantissa" in done.stderr
    assert "hotloop: measuring for up to 8.00 s" in done.stderr
    assert " of 8.00 s, pairs of blocks: autocast-bf16 " in done.stderr


FAILS = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

sys.modules["hotloop.whatif.live.sibling"].PATIENCE_S = 2

class Data(Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, i):
        if get_worker_info() is not None and i % 97 == 0:
            if sys.argv[1] == "hang":
                time.sleep(1000)
            raise RuntimeError("the handle is of another process")
        time.sleep(0.002)
        return torch.ones(4)

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(0); torch.multiprocessing.set_start_method("fork")
for x in DataLoader(Data(), 4, shuffle=True):
    net(x).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("raise", "the handle is of another process"),
        pytest.param("hang", "timed out after 2 seconds", marks=pytest.mark.nightly),
    ],
)
def test_workers_that_fail_under_an_intervention_are_what_ended_the_run(
    tmp_path: Path, how: str, why: str
) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    done = run(
        tmp_path, "-m", "hotloop", "what-if", "--out", "r", "num-workers=2", "--", sys.executable,
        "fails.py", how,
    )  # fmt: skip
    assert done.returncode == 1
    words = " ".join(done.stderr.split())
    told = words.partition("error: ")[2]
    assert told.startswith("nothing was measured: num-workers=2: its workers failed, and the command with")
    assert why in told and "larger --budget" not in told


BY_HAND = """
model = torch.nn.Linear(2, 2)
for step in range(30):
    model(torch.ones(1, 2)).sum().backward()
    for weight in model.parameters():
        weight.data.add_(weight.grad, alpha=-0.1)
    model.zero_grad()
"""


def test_a_command_that_ends_too_early_is_an_answer_in_words(tmp_path: Path) -> None:
    args = ("train.py", "--samples", "20", "--epochs", "1")
    done = run(tmp_path, "-m", "hotloop", "what-if", "--out", "r", "--", sys.executable, *args)
    assert done.returncode == 1
    assert "nothing was measured: the command or the budget ended before" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("raise SystemExit('no data')", "the command failed"),
        ("", "no training step was seen (the command itself ended well)"),
        (BY_HAND, "no optimizer of torch makes the updates"),
        (
            BY_HAND.replace("range(30)", "torch.utils.data.DataLoader(torch.ones(60, 2), 2)"),
            "no optimizer of torch makes the updates",
        ),
    ],
)
def test_a_command_that_shows_no_steps_while_it_runs_is_not_asked_for_more_time(
    tmp_path: Path, script: str, why: str
) -> None:
    (tmp_path / "other.py").write_text(f"import torch\n{script}\n")
    done = run(tmp_path, "-m", "hotloop", "what-if", "--out", "r", "--", sys.executable, "other.py")
    assert done.returncode == 1
    assert f"nothing was measured: {why}" in done.stderr and "budget" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["free-data"], "no command to run"),
        (["free-data", "--"], "no command to run"),
        (["bake", "--", "true"], "cannot be applied to a running script"),
        (["persistent-workers", "--", "true"], "cannot be switched on and off within a run"),
    ],
)
def test_mistakes_are_explained(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("when", ["r", "r/raw/*"])  # before the launch, during it
def test_an_interrupted_measurement_says_so_and_exits_as_one(tmp_path: Path, when: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ["what-if", "--out", "r", "free-data", "--", sys.executable, "train.py", "--epochs", "1000"]
    with subprocess.Popen(
        [sys.executable, "-m", "hotloop", *words],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(SRC)}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        until = time.monotonic() + 60
        while not list(tmp_path.glob(when)) and time.monotonic() < until:
            time.sleep(0.01)
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=120)
    assert running.returncode == 130, said
    assert "interrupted" in said and "hotloop failed" not in said


def test_an_interrupt_before_the_verb_begins_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(["what-if", "--", "true"]) == 130
    assert capsys.readouterr().err == "hotloop: interrupted\n"


@pytest.mark.parametrize("words", [["--budget", "soon"], ["free-data", "--width", "200%"]])
def test_values_of_options_are_checked(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["what-if", *words, "--", "true"])
    assert error.value.code == 2 and "write" in capsys.readouterr().err


def test_an_unknown_name_is_answered_with_what_can_be_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", "frobnicate", "--", "true"]) == 2
    said = capsys.readouterr().err
    assert "there is no intervention 'frobnicate'" in said and "free-evaluation" in said
    assert "num-workers" in said and "bake" not in said
    assert max(map(len, said.splitlines())) <= 80
