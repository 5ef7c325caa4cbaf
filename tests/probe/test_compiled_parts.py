"""What was compiled tells the same places as the Python it stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.running import Observed, run_observed

from hotloop import fast

SCRIPT = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(24, 4)), batch_size=4)

    def step(x):
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward(); optimizer.step()
        return loss

    def through(function, *args):
        return function(*args)

    for epoch in range(3):
        for (x,) in loader:
            through(step, x).item()
    exec("step(x)", globals())
"""


def places(run: Observed) -> list[tuple[str, tuple[Any, ...]]]:
    """Every row's kind and where it says that it was called from, the whole stack."""
    sites = {note["id"]: tuple(tuple(frame[1:]) for frame in note["stack"]) for note in run.notes["site"]}
    wanted = ("fetch", "forward", "backward", "optimizer", "zero_grad")
    return [(row.kind, sites.get(row.site, ())) for row in run.rows if row.kind in wanted]


def test_both_forms_name_the_same_places(tmp_path: Path) -> None:
    if fast.Sites is None:
        pytest.skip("not compiled for this interpreter")
    compiled = run_observed(SCRIPT, folder=tmp_path / "compiled")
    python = run_observed(SCRIPT, folder=tmp_path / "python", env={"HOTLOOP_PURE": "1"})
    assert compiled.returncode == python.returncode == 0
    found = places(compiled)
    assert found == places(python)
    assert {kind for kind, stack in found if stack} >= {"fetch", "forward", "backward", "optimizer"}
