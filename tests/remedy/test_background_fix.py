"""Patches that make batches in a thread: trained to the same bits, and the generator left where it was."""

from __future__ import annotations

import random
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.parent for path in GOLDEN.glob("background_batches*/after"))


def trained(
    folder: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The parameters that a script ends with, and torch's generator."""
    for name in ("data", "settings"):
        sys.modules.pop(name, None)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(text)
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(0)
    kept: list[Any] = []
    step = torch.optim.SGD.step

    def watched(self: torch.optim.SGD, *args: Any, **kwargs: Any) -> Any:
        kept[:] = [parameter for group in self.param_groups for parameter in group["params"]]
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.SGD, "step", watched)
    runpy.run_path(str(folder / "train.py"), run_name="__main__")
    monkeypatch.undo()
    assert kept
    return [one.detach().clone() for one in kept], torch.get_rng_state()


@pytest.mark.parametrize("dropout", [False, True], ids=["", "dropout"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.removeprefix("background_batches"))
def test_it_trains_to_the_same_bits(
    case: Path, dropout: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout both draw from torch's generator in every step: the batches come as without a thread."""
    ends = []
    for side in ("before", "after"):
        folder = tmp_path / side
        folder.mkdir()
        for file in (case / side).iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        text = (folder / "train.py").read_text()
        if dropout:
            text = text.replace("nn.Linear(8, 1)", "nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 1))")
        ends.append(trained(folder, text, monkeypatch))
    (one, state), (other, again) = ends
    assert all(map(torch.equal, one, other)), "or it diverged"
    assert torch.equal(state, again)


def test_there_are_cases() -> None:
    assert len(CASES) >= 8
