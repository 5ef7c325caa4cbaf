"""Every expert's cure still fits its planted case."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path[:0] = [str(ROOT / "recovery")]

import ideal  # noqa: E402
from cures import CURES, cured  # noqa: E402


@pytest.mark.parametrize("name", CURES)
def test_a_cure_changes_its_case_into_a_script(name: str, tmp_path: Path) -> None:
    folders = (ROOT / "recovery" / "cases", ROOT / "accuracy" / "cases")
    case = next(path for folder in folders if (path := folder / f"{name}.py").exists())
    made = cured(case, tmp_path)
    assert made.read_text() != case.read_text()
    ast.parse(made.read_text())


def test_a_cure_for_another_script_is_refused() -> None:
    with pytest.raises(ValueError, match="is there 0 times"):
        CURES["slow_loader"].applied("print()")


HELD = """
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    reads = 0
    def __len__(self):
        return 12
    def __getitem__(self, i):
        Numbers.reads += 1
        return torch.tensor([float(i)]), i

for epoch in range(4):
    seen = [int(i) for x, y in DataLoader(Numbers(), batch_size=5, shuffle=True) for i in y if i in x]
    assert sorted(seen) == list(range(12)), seen
assert Numbers.reads == 12
"""


@pytest.mark.nightly
def test_the_ideal_loader_reads_once_and_gives_every_sample_in_each_epoch(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HELD)
    ideal = ROOT / "recovery" / "ideal.py"
    done = subprocess.run(
        [sys.executable, str(ideal), str(script)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr.splitlines()[-1])["ideal_s_per_step"] > 0


@pytest.mark.parametrize(("told", "epochs"), [((65 - 32) / 3, 4), (2 / 2, 2)])
def test_the_ideal_step_is_of_the_time_that_the_others_count(
    told: float, epochs: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ideal, "KEPT", {"one": ideal.Kept()})
    seen = ((1, [0, 9, 18]), (1, [30, 31, 32]), (1, [40, 45, 50]), (0, [60, 65]))
    for over, asked in seen[:epochs]:
        epoch = ideal.Epoch()
        epoch.asked, epoch.over = asked, over
        ideal.KEPT["one"].epochs.append(epoch)
    ideal.tell()
    assert json.loads(capsys.readouterr().err)["ideal_s_per_step"] == told
