"""Trackers' histories, TensorBoard's own writer, and what nvidia-smi writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.logs.written import a_run, analyzed, csv, wandb

from hotloop.logs.analyze import analyze


def events(folder: Path) -> Path:
    """An event file as torch's SummaryWriter writes it: 200 quick steps, then 200 slow ones."""
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    writer = tensorboard.SummaryWriter(str(folder / "run"))
    now = 1.7e9
    for i in range(400):
        now += 0.5 if i < 200 else 1.5
        step = {"global_step": i * 10, "walltime": now}
        writer.add_scalar("train/loss", 1 / (i + 1), **step)
        writer.add_scalar("perf/step_time", 0.05 if i < 200 else 0.15, **step)
        writer.add_scalar("perf/data_time", 0.01 if i < 200 else 0.10, **step)
        writer.add_scalar("val/loss", float("nan"), **step)
    writer.add_histogram("weights", np.random.rand(1000), 5)
    writer.close()
    (path,) = (folder / "run").iterdir()
    return path


def test_tensorboards_own_files_are_read_without_it(tmp_path: Path) -> None:
    done = analyze([events(tmp_path)])
    part = done.parts[0]
    assert part.source.kind == "TensorBoard events"
    assert part.source.skipped == 0
    (change,) = part.changes
    assert (change.before, change.after) == (pytest.approx(20, rel=0.02), pytest.approx(20 / 3, rel=0.02))
    assert change.step == pytest.approx(2000, abs=20)
    assert {phase.name for phase in part.phases} == {"data_wait", "other"}
    assert {finding.id for finding in done.findings} == {"input/data-wait", "trend/throughput-decay"}


def test_an_event_file_cut_anywhere_gives_what_it_has(tmp_path: Path) -> None:
    whole = events(tmp_path).read_bytes()
    path = tmp_path / "events.out.tfevents.1"
    for cut in (40, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:cut])
        part = analyze([path]).parts[0]
        assert part.source.kind == "TensorBoard events"
        assert part.source.skipped <= 1
    assert part.source.notes == ("truncated",)
    damaged = bytearray(whole)
    damaged[len(whole) // 3 : len(whole) // 3 + 200] = b"\xff" * 200
    path.write_bytes(bytes(damaged))
    part = analyze([path]).parts[0]
    assert part.source.skipped >= 1
    assert part.throughput


def test_evaluation_records_are_no_steps(tmp_path: Path) -> None:
    rows = []
    for i in range(100):
        rows.append({"_step": i, "_timestamp": 1.7e9 + i, "train/loss": 1.0})
        rows.append({"_step": i, "_timestamp": 1.7e9 + i, "val/loss": float("nan")})
    done = analyzed(tmp_path, "\n".join(map(json.dumps, rows)), "history.jsonl")
    assert done.findings == ()
    assert done.parts[0].throughput[-1].rate == pytest.approx(1.0, rel=0.05)


def test_numbers_that_json_has_not(tmp_path: Path) -> None:
    rows = [json.dumps({"step": i, "loss": "NaN" if i == 30 else 1.0}) for i in range(60)]
    done = analyzed(tmp_path, "\n".join(rows), "history.jsonl")
    assert done.findings[0].data == {"count": 1, "first_step": 30.0, "first_line": 31}


def test_trainer_state(tmp_path: Path) -> None:
    history = [
        {"epoch": i / 10, "step": i * 500, "loss": float("inf") if i > 7 else 1.0} for i in range(1, 10)
    ]
    done = analyzed(
        tmp_path, json.dumps({"best_metric": None, "log_history": history}, indent=2), "trainer_state.json"
    )
    assert done.parts[0].source.kind == "JSON history"
    assert done.findings[0].id == "numerics/non-finite-loss"
    assert done.findings[0].data["first_step"] == 4000.0


def test_long_histories_are_thinned_and_say_the_same(tmp_path: Path) -> None:
    lines = list(a_run(epochs=2, slow_from=1000))
    for writer, name in ((wandb, "h.jsonl"), (csv, "h.csv")):
        rows = [writer(line) for line in lines]
        head = rows[0].splitlines()[:-1]
        body = [row.splitlines()[-1] for row in rows]
        text = "\n".join([*head, *(body[i * len(body) // 100_000] for i in range(100_000))])
        part = analyzed(tmp_path, text, name).parts[0]
        assert part.source.lines == 100_000 + len(head)
        phases = {phase.name: phase.s_per_step for phase in part.phases}
        assert phases["data_wait"] == pytest.approx(0.5, rel=0.05)


SMI = (
    "timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB], "
    "power.draw [W], power.limit [W]\n"
)


def test_nvidia_smi_with_units_by_gpu(tmp_path: Path) -> None:
    text = SMI + "".join(
        f"2024/01/02 12:34:{i:02d}.789, {gpu}, {90 if gpu else 30} %, "
        "3840 MiB, 24576 MiB, 100.00 W, 575.00 W\n"
        for i in range(60)
        for gpu in range(2)
    )
    done = analyzed(tmp_path, text, "gpu_usage.csv")
    part = done.parts[0]
    assert part.source.kind == "nvidia-smi csv"
    data = part.sections[-1].data
    assert data["GPU 0"]["gpu_util"] == pytest.approx(0.3)
    assert data["GPU 1"]["gpu_util"] == pytest.approx(0.9)
    assert done.verdict == "The 2 GPUs compute 30 % to 90 % of the time."
