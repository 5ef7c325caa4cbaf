"""Plans from a real run: predicted, spelled as its configuration is, and never without a gain."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests import running
from tests.footprint import test_account as account

from hotloop.cli.main import main
from hotloop.flow.examine import examine, read
from hotloop.model import Setup, predict
from hotloop.tune.calibrate import OTHERS, calibrate
from hotloop.tune.plans.batch import Planned, chosen
from hotloop.tune.plans.choose import Machine, make

pytestmark = pytest.mark.alone  # what it measures is time

SCRIPT = """
    import argparse, sys, time, torch, yaml
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self): return 400
        def __getitem__(self, i):
            time.sleep(0.004)
            return torch.rand(64)

    parser = argparse.ArgumentParser()
    parser.add_argument("--prefetch-factor", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=10)
    options = parser.parse_args()
    config = yaml.safe_load(open("config.yaml"))
    workers = config["data"]["num_workers"]
    loader = DataLoader(Slow(), batch_size=options.batch_size, shuffle=True, num_workers=workers,
                        **({"prefetch_factor": options.prefetch_factor} if workers else {}))
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        model(batch).mean().backward()
        time.sleep(0.010)
        optimizer.step()
        optimizer.zero_grad()
"""

NO_LOADER = """
    import torch
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(60):
        model(torch.rand(8, 8)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def record(folder: Path, script: str, *flags: str, num_workers: int = 1) -> Path:
    (folder / "train.py").write_text(dedent(script))
    (folder / "config.yaml").write_text(f"data:\n  num_workers: {num_workers}\n")
    words = ["-m", "hotloop", "run", "--out", "run", "--", sys.executable, "train.py", *flags]
    running.succeeded(running.python(*words, folder=folder))
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("slow"), SCRIPT)


def plan(run: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["plan", str(run), "--json", *arguments]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_run_is_explained_by_its_own_model(run: Path) -> None:
    evidence = examine(read(run)).evidence
    assert evidence is not None
    pipeline = calibrate(evidence)
    assert float(pipeline.make_s.mean()) >= 0.040  # ten samples that sleep 4 ms
    assert float(pipeline.step_s.mean()) >= 0.010
    assert pipeline.make_cores < 0.5
    assert pipeline.recorded.num_workers == 1
    assert not any("the model gives" in doubt for doubt in pipeline.doubts)
    steady = predict(pipeline)
    assert steady.s_per_step == pytest.approx(pipeline.measured_s, rel=0.15)
    inline, four = (predict(pipeline, Setup(num_workers=workers)).s_per_step for workers in (0, 4))
    assert four < steady.s_per_step < inline


def test_a_waiting_run_is_told_to_add_workers(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = plan(run, capsys=capsys)
    plans = {one["name"]: one for one in document["plans"]}
    assert list(plans) == ["conservative", "balanced", "aggressive", "low-memory"]
    balanced = plans["balanced"]
    crowded = any(doubt.startswith(OTHERS) for doubt in balanced["doubts"])
    assert balanced["recommended"] or (crowded and "measure it first" in balanced["why"])
    assert balanced["num_workers"] >= 3
    assert balanced["gain"]["ci95"][0] > 1.5
    assert balanced["host_bytes"] > document["now"]["host_bytes"]
    assert f"--apply num-workers={balanced['num_workers']}" in balanced["command"]
    for one in plans.values():
        assert one["s_per_step_ci95"][0] <= one["s_per_step"] <= one["s_per_step_ci95"][1]
        assert one["gain"]["ci95"][0] > 1 or not one["recommended"] or one["name"] == "low-memory"


def test_another_machine_is_planned_for(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = ("--cores", "64", "--gpus", "4", "--memory", "512GiB", "--step-time", "2ms")
    document = plan(run, *there, capsys=capsys)
    assert document["machine"] == {
        "cores": 64.0, "memory_bytes": 512 * 2**30, "ranks": 4, "step_s": 0.002, "other": True,
    }  # fmt: skip
    here = plan(run, capsys=capsys)
    assert document["plans"][1]["num_workers"] > here["plans"][1]["num_workers"]
    assert document["plans"][1]["samples_per_s"] > 4 * here["plans"][1]["samples_per_s"]
    assert any("taken to be as fast" in text for text in document["doubts"])


def test_a_plan_stays_within_memory(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = plan(run, capsys=capsys)["now"]["host_bytes"]
    tight = f"{int(now * 1.3)}"
    document = plan(run, "--memory", tight, capsys=capsys)
    assert all(one["host_bytes"] <= int(tight) or not one["settings"] for one in document["plans"])
    assert max(one["num_workers"] for one in document["plans"]) < 64


@pytest.mark.nightly
def test_another_batch_size_is_planned_beside_it(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = ("--beside", str(record(tmp_path, SCRIPT, "--batch-size", "20")))
    document = plan(run, *other, capsys=capsys)
    first, second = document["choices"]
    assert (first["words"], first["batch_samples"]) == ([], 10)
    assert (second["words"], second["batch_samples"]) == (["--batch-size", "20"], 20)
    assert second["device_bytes"] is None and second["host_bytes"] > 0
    now, balanced, fast, small = document["batch"]["rows"]
    assert (now["batch_samples"], now["precision"], now["updates"]) == (10, "float32", 1)
    assert fast["updates"] == 10 / fast["batch_samples"] and small["memory_bytes"] <= fast["memory_bytes"]
    assert 10 <= balanced["batch_samples"] <= fast["batch_samples"] <= 40
    assert fast["samples_per_s"] >= balanced["samples_per_s"] >= 0.95 * fast["samples_per_s"]
    (only,) = plan(run, *other, "--memory", "64MiB", capsys=capsys)["batch"]["rows"]
    assert only["name"] == "now"  # nothing fits
    assert main(["plan", str(run), *other]) == 0
    assert "\nchoice           plan" in (text := capsys.readouterr().out) and "\n--batch-size 20" in text


def test_a_batch_fits_into_the_devices_memory(run: Path) -> None:
    """10 GiB and 0.25 GiB a sample at the peak, of 80 GiB; speed as the run's on this machine."""
    examination = examine(read(run))
    evidence = examination.evidence
    assert evidence is not None
    pipeline = calibrate(evidence)
    pipeline = replace(pipeline, make_s=pipeline.make_s / 100)
    runs = []
    for batch in (10, 20):
        machine = Machine(cores=2, memory_bytes=64 * 2**30, ranks=1)
        plans = make(replace(pipeline, batch_samples=batch), machine, (), lambda share, words: None)
        there = account.recording(account.process(notes=account.on_device(batch)), machine=account.GPU)
        runs.append(Planned(document={}, plans=plans, steps=evidence.steps, recording=there, room_bytes=None))
    alone, both = chosen(runs[:1]), chosen(runs)
    assert alone is not None and both is not None
    assert alone["most_samples"] == int((0.85 * 80 - 9) / 0.35)  # what is not kept counts as the samples'
    assert max(row["batch_samples"] for row in both["rows"]) == 40
    tight = chosen([replace(one, room_bytes=21 * 2**30) for one in runs])
    assert tight is not None and max(row["batch_samples"] for row in tight["rows"]) == 30  # 17.85 GiB


def test_the_terminal_shows_all_four_in_eighty_columns(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["plan", str(run)]) == 0
    text = capsys.readouterr().out
    for name in ("now", "conservative", "balanced", "aggressive", "low-memory"):
        assert f"\n{name}" in text
    assert "num_workers:" in text
    assert "may alter: random augmentation" in text
    long = [
        line for line in text.splitlines() if len(line) > 80 and "/" not in line and "DataLoader" not in line
    ]
    assert not long


def test_a_run_that_waits_for_nothing_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = record(
        tmp_path, SCRIPT.replace("time.sleep(0.004)", "pass").replace("0.010", "0.020"), num_workers=0
    )
    document = plan(run, capsys=capsys)
    assert not any(one["recommended"] or one["settings"] for one in document["plans"])
    assert all("run's own settings" in one["why"] or "nothing" in one["why"] for one in document["plans"])


def test_a_run_without_a_loader_says_what_it_cannot_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = record(tmp_path, NO_LOADER)
    assert main(["plan", str(run)]) == 2
    said = capsys.readouterr()
    assert "without a DataLoader" in said.err
    assert "hint: hotloop report" in said.err
    assert not said.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--memory", "much"), "hint: write 64GiB, 64GB or 50%"),
        (("--device-memory", "much"), "--device-memory: "),
        (("--step-time", "soon"), "'soon' is no duration: write 90s, 10m or 12ms"),
        (("--gpus", "0"), "'0' is not a whole number from 1 on"),
        (("--cores", "-3"), "'-3' is not a number of cores"),
    ],
)
def test_a_machine_that_cannot_be_is_refused(
    run: Path, arguments: tuple[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["plan", str(run), "=".join(arguments)])
    except SystemExit as left:
        code = int(left.code or 0)
    assert code == 2
    assert words in capsys.readouterr().err


def test_the_guides_python_runs(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guide = (running.SRC.parent / "docs" / "guides" / "plan.md").read_text()
    monkeypatch.chdir(run.parent)
    exec(guide.partition("```python\n")[2].partition("```")[0], {})
    assert "Prediction(s_per_step=" in capsys.readouterr().out
