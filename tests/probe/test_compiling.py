"""torch.compile: compilations are timed and counted, and stay what they are without hotloop."""

from __future__ import annotations

from pathlib import Path

from tests.running import run_observed, succeeded

SCRIPT = """
import torch
from torch import nn
from torch._dynamo.utils import counters

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    def forward(self, x):
        x = self.body(x)
        print(end="")
        return x.square().sum()

torch.manual_seed(0)
net = Net()
compiled = torch.compile(net, backend="eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(12):
    optimizer.zero_grad()
    compiled(torch.randn(3 + step % 3, 8)).backward()
    optimizer.step()
counts = {name: dict(counters[name]) for name in ("frames", "stats")}
print(counts, sum(counters["graph_break"].values()), sum(p.sum().item() for p in net.parameters()))
"""


def test_compilations_are_seen_and_unchanged(tmp_path: Path) -> None:
    # A sample often enough that some fall into compiled regions.
    observed = succeeded(run_observed(SCRIPT, folder=tmp_path, env={"HOTLOOP_HZ": "1000"}))
    plain = run_observed(SCRIPT, folder=tmp_path / "plain", observed=False)
    assert observed.stdout == plain.stdout
    assert "disabled" not in observed.notes

    (note,) = observed.notes["compile"]
    assert note["graphs"] >= 2
    assert sum(note["graph_breaks"].values()) >= 1
    assert note["recompiles"] >= 1  # the batch size changed
    assert len(observed.of("compile")) > note["recompiles"]
    assert observed.of("module") == []  # the window stays shut over compiled modules
    forwards = observed.of("forward")
    for row in observed.of("compile"):
        assert any(f.start <= row.start and row.start + row.dur <= f.start + f.dur for f in forwards)
