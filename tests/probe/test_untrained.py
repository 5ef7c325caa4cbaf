"""Weights that get gradients and that nothing updates, frozen ones, and those updated by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.running import run_observed

SCRIPT = """
import time
import torch
from torch import nn

torch.manual_seed(0)
net, judge = nn.Linear(8, 8), nn.ModuleDict({"a": nn.Linear(8, 4), "b": nn.Sequential(nn.Linear(4, 4))})
judge.forward = lambda x: judge["b"](judge["a"](x)).square().sum()
CHANGED
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(70):
    optimizer.zero_grad()
    judge(net(torch.randn(3, 8))).backward()
    optimizer.step()
    AFTER
    time.sleep(0.05)
"""
BY_HAND = "[p.data.sub_(1e-3 * p.grad) for p in judge.parameters()]"


@pytest.mark.parametrize(
    ("changed", "after", "named"),
    [
        ("", "", [("", 56)]),
        ("judge['a'].requires_grad_(False)", "", [("b.0", 20)]),
        ("judge.requires_grad_(False)", "", []),
        ("", BY_HAND, []),
    ],
)
def test_what_nothing_updates_is_named(tmp_path: Path, changed: str, after: str, named: list[object]) -> None:
    script = SCRIPT.replace("CHANGED", changed).replace("AFTER", after)
    observed = run_observed(script, folder=tmp_path)
    assert observed.returncode == 0, observed.stderr
    assert "disabled" not in observed.notes
    assert [(note["path"], note["num_params"]) for note in observed.notes.get("untrained", [])] == named
