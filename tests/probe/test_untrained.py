"""Weights that get gradients and that nothing updates, frozen ones, and those updated by hand."""

from __future__ import annotations

from pathlib import Path

from tests.running import run_observed

SCRIPT = """
import time
import torch
from torch import nn

torch.manual_seed(0)
net, frozen, by_hand = nn.Linear(8, 8), nn.Linear(8, 4).requires_grad_(False), nn.Linear(8, 2)
forgotten = nn.Sequential(nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(120):
    optimizer.zero_grad()
    out = net(torch.randn(3, 8))
    sum(judge(out).square().sum() for judge in (frozen, by_hand, forgotten)).backward()
    optimizer.step()
    for parameter in by_hand.parameters():
        parameter.data.sub_(1e-3 * parameter.grad)
    time.sleep(0.05)
"""


def test_what_nothing_updates_is_named(tmp_path: Path) -> None:
    observed = run_observed(SCRIPT, folder=tmp_path)
    assert observed.returncode == 0 and "disabled" not in observed.notes, observed.stderr
    (note,) = observed.notes["untrained"]
    assert (note["class"], note["path"], note["num_params"]) == ("Linear", "1", 36)
