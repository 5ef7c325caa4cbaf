"""``hotloop memory`` on real processes: shapes, runs out of memory, copies by workers, leaks, batches."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests import running
from tests.running import SRC

from hotloop.cli.main import main

LOOP = """
    import os, sys, time, torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset, TensorDataset
    torch.set_num_threads(1)
"""


def hotloop(*arguments: str, folder: Path, wrap: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    if not wrap:
        return running.hotloop(*arguments, folder=folder)
    environment = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
    command = [*wrap, sys.executable, "-m", "hotloop", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def observed(script: str, folder: Path, *options: str, wrap: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run the script under ``hotloop memory`` and return what the recording alone says of it afterwards."""
    (folder / "train.py").write_text(dedent(LOOP) + dedent(script))
    run = folder / "run"
    done = hotloop(
        "memory", "--out", str(run), *options, "--", sys.executable, "train.py", folder=folder, wrap=wrap
    )
    assert run.is_dir(), done.stderr
    return {**again(str(run)), "exit_code": done.returncode, "said": done.stderr}


def again(*arguments: str) -> dict[str, Any]:
    """What ``hotloop memory`` says of recordings."""
    with redirect_stdout(io.StringIO()) as said:
        assert main(["memory", *arguments, "--json"]) == 0
    return dict(json.loads(said.getvalue()))


def out_of_memory(account: dict[str, Any]) -> dict[str, Any]:
    (finding,) = [one for one in account["findings"] if one["id"] == "memory/out-of-memory"]
    return dict(finding)


def test_the_guides_figures_come_out_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["memory", "--stage", "live=2*float32[720,1280,3]+float32[32,720,1280]", "--num-samples",
                 "2222", "--num-workers", "36", "--num-ranks", "3", "--memory", "256GB"]  # fmt: skip
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert all(figure in text for figure in ("133.59 MiB", "290 GiB", "108", "30.6 TiB", "74.5 GiB"))
    assert " GB" not in text and max(map(len, text.splitlines())) <= 80
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["dataset"]["stages"][0]["sample_bytes"] == 140083200


def test_without_anything_it_says_what_fits_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory"]) == 0
    assert "5/16 of the memory" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-run"], "no run folder no-such-run"),
        (["--stage", "a=float32[3", "--num-samples", "3"], "DTYPE[SHAPE]"),
        (["--memory", "much"], "--memory"),
        (["--stage", "a=float32[3]", "run"], "without a run"),
        (["--num-samples", "3", "--", sys.executable, "train.py"], "num_samples given with a command"),
    ],
)
def test_mistakes_are_named(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_an_address_space_limit_is_told_from_a_full_machine(tmp_path: Path) -> None:
    account = observed(
        """
        import resource
        limit = int(open("/proc/self/statm").read().split()[0]) * 4096 + (600 << 20)
        model = nn.Linear(64, 64); optimizer = torch.optim.Adam(model.parameters()); kept = []
        for step in range(1000):
            optimizer.zero_grad(); model(torch.randn(8, 64)).sum().backward(); optimizer.step()
            if step == 10:
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            if step > 10:
                kept.append(bytearray(64 << 20))
        """,
        tmp_path,
    )
    finding = out_of_memory(account)
    assert account["exit_code"] == 1
    assert "address space (ulimit -v)" in finding["message"]
    assert any("RLIMIT_AS" in line for line in finding["evidence"])
    assert finding["where"]["line"] == 15  # the bytearray
    parts = {part["name"]: part["bytes"] for part in account["host"]["parts"]}
    assert parts["parameters"] == parts["gradients"] == 4 * (64 * 64 + 64)
    assert parts["optimizer state"] == 2 * parts["parameters"] + 2 * 4  # two moments, and a step for each
    assert sum(parts.values()) == pytest.approx(account["host"]["peak_bytes"])


def test_one_absurd_allocation_is_said_to_be_one(tmp_path: Path) -> None:
    account = observed(
        """
        model = nn.Linear(4, 4); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad(); model(torch.randn(8, 4)).sum().backward(); optimizer.step()
        torch.empty(1 << 50)
        """,
        tmp_path,
    )
    assert "One allocation of 4096 TiB was asked for" in out_of_memory(account)["message"]


CGROUP = Path("/sys/fs/cgroup")


@pytest.fixture
def limited() -> Any:
    """A cgroup of 700 MB of this process's own below its own, where the machine allows that."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    v1 = next((line.split(":", 2)[2] for line in lines if ":memory:" in line), None)
    v2 = next((line.split(":", 2)[2] for line in lines if line.startswith("0::")), "/")
    folder = CGROUP / "memory" / v1.lstrip("/") if v1 else CGROUP / v2.lstrip("/")
    folder = folder / f"hotloop-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text("700000000")
    except OSError as error:
        if folder.is_dir():
            folder.rmdir()
        pytest.skip(f"no cgroup can be made here: {error}")
    yield ("/bin/sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh")
    folder.rmdir()


def test_a_kill_by_the_kernel_is_proven_by_its_own_count(tmp_path: Path, limited: tuple[str, ...]) -> None:
    account = observed(
        """
        model = nn.Linear(64, 64); optimizer = torch.optim.SGD(model.parameters(), lr=0.1); kept = []
        while True:
            optimizer.zero_grad(); model(torch.randn(8, 64)).sum().backward(); optimizer.step()
            kept.append(torch.ones(1 << 20))
        """,
        tmp_path,
        wrap=limited,
    )
    finding = out_of_memory(account)
    assert account["exit_code"] == 137
    assert "killed the training process" in finding["message"]
    assert "668 MiB of its cgroup" in finding["message"]
    assert "count of kills for want of memory rose by 1" in finding["evidence"][0]


@pytest.mark.nightly
def test_a_full_dev_shm_is_named_with_what_wanted_it(tmp_path: Path) -> None:
    small = ("unshare", "-m", "/bin/sh", "-c", 'mount -t tmpfs -o size=40m tmpfs /dev/shm && exec "$@"', "sh")
    if not shutil.which("unshare") or subprocess.run([*small, "true"], capture_output=True).returncode:
        pytest.skip("no /dev/shm of one's own can be mounted here")
    account = observed(
        """
        class Large(Dataset):
            def __len__(self): return 64
            def __getitem__(self, i): return torch.zeros(1 << 20)
        model = nn.Linear(1 << 20, 1); optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
        for x in DataLoader(Large(), batch_size=4, num_workers=2):
            optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
        """,
        tmp_path,
        wrap=small,
    )
    finding = out_of_memory(account)
    assert finding["message"].startswith("/dev/shm (40.0 MiB) ran full")
    assert any("5 batches of 16.0 MiB may wait there" in line for line in finding["evidence"])


@pytest.mark.nightly
def test_copies_by_reading_are_measured_and_told_from_own_memory(tmp_path: Path) -> None:
    account = observed(
        """
        class Names(Dataset):
            def __init__(self): self.names = [f"img_{i:08d}.jpg" for i in range(1_500_000)]
            def __len__(self): return 1500
            def __getitem__(self, i):
                return torch.tensor(float(sum(len(n) for n in self.names[i * 1000 : i * 1000 + 1000])))
        model = nn.Linear(1, 1); optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
        loader = DataLoader(Names(), batch_size=25, num_workers=2, shuffle=True, persistent_workers=True,
                            multiprocessing_context="fork")
        until = time.monotonic() + 6
        while time.monotonic() < until:
            for x in loader:
                optimizer.zero_grad(); model(x[:, None]).sum().backward(); optimizer.step()
        """,
        tmp_path,
    )
    workers = account["workers"]["each"]
    assert len(workers) == 2
    for worker in workers:
        # A million and a half strings of 61 bytes and their list, every page of them copied.
        assert 60 << 20 < worker["copied_bytes"] < 250 << 20
        assert worker["own_bytes"] < 40 << 20


@pytest.mark.nightly
def test_what_grows_is_named_by_line_type_and_holder(tmp_path: Path) -> None:
    account = observed(
        """
        class Meter:
            def __init__(self): self.seen = []
        def looks():  # ends when enough was seen, however slow the machine
            folder = os.environ["HOTLOOP_RAW"]
            return sum(open(os.path.join(folder, name)).read().count('"growth"')
                       for name in os.listdir(folder) if name.endswith(".notes"))
        def main():
            model = nn.Linear(64, 64); optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            losses, meter, step = [], Meter(), 0
            while step % 50 or looks() < 3:
                loss = model(torch.randn(8, 64)).pow(2).mean()
                optimizer.zero_grad(); loss.backward(); optimizer.step()
                losses.append(loss)
                meter.seen.append([float(step)] * 200)
                step += 1
        main()
        """,
        tmp_path,
        "--every",
        "50",
    )
    grown = account["growing"]
    held = {(one["holder"], one["name"]): one["items_per_step"] for one in grown["containers"]}
    assert held[("main", "losses")] == pytest.approx(1, abs=0.1)
    assert held[("Meter", "seen")] == pytest.approx(1, abs=0.1)
    lines = {one["line"]: one["bytes_per_step"] for one in grown["lines"]}
    assert max(lines, key=lambda line: lines[line]) == 20  # the list of 200
    assert {"torch.Tensor", "list"} <= {one["name"] for one in grown["types"]}
    assert re.search(
        r"^\[step \d+\] process [\d,.]+ MiB \([\d.]+ %\), \w+ .* GiB \([\d.]+ %\)$", account["said"], re.M
    )


@pytest.mark.nightly
def test_a_worker_that_keeps_samples_and_what_a_batch_of_it_takes(tmp_path: Path) -> None:
    account = observed(
        """
        import numpy as np
        class Compose:
            def __init__(self, transforms): self.transforms = transforms
            def __call__(self, x):
                for t in self.transforms: x = t(x)
                return x
        class Scale:
            def __call__(self, x): return torch.from_numpy(x).float() / 255
        class Half(nn.Module):
            def forward(self, x): return x[::2].contiguous()
        class Frames(Dataset):
            def __init__(self): self.transform, self.seen = Compose([Scale(), Half()]), []
            def __len__(self): return 400
            def load(self, i): return np.full(4096, i % 255, np.uint8)
            def __getitem__(self, i):
                pair = [self.load(j) for j in (i, i + 1)]
                self.seen.append(bytes(1000) + b"x")
                return torch.stack([self.transform(x) for x in pair])
        def looks():  # of the worker; ends when enough was seen, however slow the machine
            folder, own = os.environ["HOTLOOP_RAW"], str(os.getpid())
            return sum(open(os.path.join(folder, name)).read().count('"growth"')
                       for name in os.listdir(folder) if name.endswith(".notes") and not name.startswith(own))
        loader = DataLoader(Frames(), batch_size=8, num_workers=1, shuffle=True, persistent_workers=True,
                            multiprocessing_context="fork")
        model = nn.Linear(2048, 1); optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
        while looks() < 4:
            for x in loader:
                optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
        """,
        tmp_path,
    )
    sizes = {stage["name"]: stage["sample_bytes"] for stage in account["dataset"]["stages"]}
    assert sizes == {"in the batch": 16384}
    run = str(tmp_path / "run")
    elsewhere = again(run, "--num-samples", "2222", "--num-workers", "36", "--num-ranks", "3")["dataset"]
    assert (elsewhere["num_samples"], elsewhere["num_processes"]) == (2222, 108)
    assert {one["name"]: one["total_bytes"] for one in elsewhere["stages"]} == {"in the batch": 2222 * 16384}
    grown = account["growing_worker"]
    (line,) = [one for one in grown["lines"] if one["line"] == 23]
    assert line["bytes_per_step"] == pytest.approx(8 * 1034, rel=0.1)
    assert not grown["types"] and not grown["containers"]
    assert "train.py:23: what it makes in a worker stays there" in " ".join(account["said"].split())
    page = (tmp_path / "run" / "report.html").read_text()
    assert "What grows" in page
