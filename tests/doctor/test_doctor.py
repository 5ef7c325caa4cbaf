"""`hotloop doctor`: real runs on this machine, and made-up machines with something off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from hotloop.cli.doctor import render
from hotloop.doctor.checks import (
    READ_BYTES,
    Line,
    Patient,
    files_in,
    gpus,
    host,
    random_reads,
    software,
    storage,
)

GPU = {
    "index": 0, "name": "NVIDIA H200", "memory_bytes": 150 << 30, "driver": "570.1", "visible": True,
    "pcie_gen_max": 5, "pcie_width": 16, "pcie_width_max": 16,
    "power_limit_w": 700.0, "power_limit_max_w": 700.0,
}  # fmt: skip
TORCH = {"torch": "2.13.0+cu130", "cuda": "13.0", "cuda_available": True, "threads": 4, "triton": True}


def doctor(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hotloop", "doctor", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        timeout=120,
    )


def patient(tmp_path: Path, *, torch: Any = None, env: Any = None, **machine: Any) -> Patient:
    machine = {"cores": 8.0, "cpu_count": 8, "gpus": [], **machine}
    return Patient(machine=machine, torch=torch or TORCH, environment=env or {}, data=tmp_path, quick=True)


def named(lines: Any, name: str) -> Line:
    return next(line for line in lines if line.name == name)


def test_this_machine_is_examined(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(os.urandom(8 * READ_BYTES))
    done = doctor("--data", str(tmp_path), "--json")
    document = json.loads(done.stdout)
    lines = {(line["topic"], line["name"]): line for line in document["lines"]}
    assert document["schema"] == 1
    assert done.returncode == int(any(line["state"] == "bad" for line in document["lines"]))
    assert lines["processor", "cores"]["data"]["cores"] <= os.cpu_count()
    assert lines["storage", "random reads of 128 KiB"]["data"]["num_reads"] > 0
    import torch

    assert torch.__version__ in lines["torch", "build"]["value"]


def test_a_variable_that_hurts_is_named_in_plain_lines_and_the_exit_code_says_so(tmp_path: Path) -> None:
    env = {"OMP_NUM_THREADS": "64", "COLUMNS": "80", "CUDA_LAUNCH_BLOCKING": "1"}
    done = doctor("--quick", "--data", str(tmp_path), env=env)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout
    assert "OMP_NUM_THREADS" in done.stdout
    assert done.returncode == 1
    assert "CUDA_LAUNCH_BLOCKING: 1" in done.stdout


def test_a_python_without_torch_is_said(tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=False)
    done = doctor("--quick", "--data", str(tmp_path), "--python", str(tmp_path / "empty/bin/python"))
    assert done.returncode == 1
    assert "No module named 'torch'" in done.stdout


@pytest.mark.parametrize("arguments", [("--data", "/nowhere"), ("--python", "/nowhere/python")])
def test_bad_input_is_an_error_with_a_way_out(arguments: tuple[str, str]) -> None:
    done = doctor("--quick", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: /nowhere")
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_fewer_cores_than_the_machine_has(tmp_path: Path) -> None:
    line = named(host(patient(tmp_path, cores=1.5, cpu_count=64)), "cores")
    assert line.state == "warn"
    assert "OMP_NUM_THREADS=1 " in line.advice


def test_small_shared_memory_is_told_with_the_way_out(tmp_path: Path) -> None:
    found = host(patient(tmp_path, shm_bytes=64 << 20, shm_free_bytes=64 << 20))
    assert "--shm-size" in named(found, "/dev/shm").advice


@pytest.mark.parametrize(("kind", "state"), [("network", "warn"), ("nvme", "ok"), ("unknown", "unknown")])
def test_kind_of_storage(tmp_path: Path, kind: str, state: str) -> None:
    lines = storage(patient(tmp_path, storage={"kind": kind, "filesystem": "x", "free_bytes": 1 << 40}))
    assert named(lines, "data").state == state


def test_reads_are_counted_and_small_or_missing_files_left_out(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x")
    assert files_in(tmp_path) == []
    assert random_reads([])[0] == 0
    (tmp_path / "large").write_bytes(bytes(4 * READ_BYTES))
    num_reads, seconds = random_reads([*files_in(tmp_path), tmp_path / "gone"], seconds=0.05)
    assert num_reads > 0
    assert seconds > 0


@pytest.mark.parametrize(
    ("torch", "machine", "env", "words"),
    [
        ({**TORCH, "cuda": None}, {"gpus": [GPU]}, {}, "CUDA build"),
        ({**TORCH, "cuda_available": False}, {"gpus": [GPU]}, {}, "driver 570.1"),
        (TORCH, {"gpus": [{**GPU, "visible": False}]}, {"CUDA_VISIBLE_DEVICES": ""}, "hides every GPU"),
        ({"error": "ImportError: libc10.so"}, {}, {}, "--python"),
    ],
)
def test_a_torch_that_cannot_use_the_gpu(
    tmp_path: Path, torch: Any, machine: Any, env: Any, words: str
) -> None:
    line = named(software(patient(tmp_path, torch=torch, env=env, **machine)), "build")
    assert line.state == "bad"
    assert words in line.advice


@pytest.mark.parametrize(
    ("change", "name", "state"),
    [
        ({}, "PCIe", "ok"),
        ({"pcie_width": 4}, "PCIe", "warn"),
        ({"power_limit_w": 300.0}, "power limit", "warn"),
        ({"throttle_reasons": 0x40}, "clocks", "bad"),
        ({"memory_used_bytes": 100 << 30}, "memory in use", "warn"),
    ],
)
def test_a_gpu_that_is_held_back(tmp_path: Path, change: Any, name: str, state: str) -> None:
    assert named(gpus(patient(tmp_path, gpus=[{**GPU, **change}])), name).state == state


def test_measured_rates_of_a_gpu(tmp_path: Path) -> None:
    device = {
        "name": "NVIDIA H200", "pinned_gb_per_s": 12.0, "pageable_gb_per_s": 5.0,
        "tflop_per_s": {"bfloat16": 790.0},
    }  # fmt: skip
    lines = list(gpus(patient(tmp_path, torch={**TORCH, "devices": [device]}, gpus=[GPU])))
    assert named(lines, "matrix product bfloat16").value == "790 TFLOP/s"
    assert named(lines, "host to device").state == "warn"  # 12 of 63 GB/s


def test_color_only_where_asked() -> None:
    lines = [Line(topic="a", name="b", value="c", state="bad", advice="d")]
    assert "\x1b[31m" in render(lines, width=80, color=True)
    assert (
        render(lines, width=80, color=False)
        == "a\n  !! b: c\n       d\n\n1 of 1 could be better, 1 of them wrong.\n"
    )
