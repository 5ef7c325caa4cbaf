"""The module window names where forward and backward go, changes no bit, and stays shut where it could."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.running import Observed, run_observed, succeeded

from hotloop.record.rows import MODULE_BACKWARD

MODEL = """
import hashlib, sys, time
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Slow(nn.Module):
    def forward(self, x):
        return SlowFunction.apply(x)

class SlowFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        time.sleep(0.004)
        return x * 2
    @staticmethod
    def backward(ctx, g):
        time.sleep(0.008)
        return g * 2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.act = nn.ReLU(inplace=True)
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.2))
        self.slow = Slow()
        self.same = nn.Identity()
        self.lstm = nn.LSTM(16, 8, batch_first=True)
        self.head = nn.Linear(8, 3)
        self.unused = nn.Linear(2, 2)
    def forward(self, x):
        x = self.act(self.conv(x))
        x = x + checkpoint(self.body, x, use_reentrant=False)
        x = self.same(self.slow(x)).mean(1)
        x, _ = self.lstm(x)
        return {"logits": self.head(x[:, -1])}

torch.manual_seed(0)
torch.set_num_threads(1)
net = Net()
model = torch.jit.script(nn.Sequential(nn.Linear(16, 3))) if sys.argv[1] == "script" else net
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
side = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
side_optimizer = torch.optim.SGD(side.parameters(), lr=0.1)
for step in range(16):
    x, y = torch.randn(4, 1, 12, 16), torch.randint(0, 3, (4,))
    out = model(x[:, 0, 0]) if sys.argv[1] == "script" else model(x)["logits"]
    loss = criterion(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    z = torch.randn(4, 3, requires_grad=True)
    slope = torch.autograd.grad(checkpoint(side, z, use_reentrant=False).sum(), z, create_graph=True)[0]
    each = torch.func.vmap(torch.func.grad(lambda one: side(one).sum()))(z.detach())
    (slope.square().mean() + checkpoint(side, z, use_reentrant=True).mean() + each.mean()).backward()
    side_optimizer.step()
    side_optimizer.zero_grad()
    with torch.no_grad():
        model.eval(); model(x[:, 0, 0] if sys.argv[1] == "script" else x); model.train()
digest = hashlib.sha256()
for tensor in [*model.state_dict().values(), *side.state_dict().values(), torch.get_rng_state()]:
    digest.update(tensor.detach().numpy().tobytes())
print(digest.hexdigest())
"""


def shares(observed: Observed, flags: int) -> dict[str, float]:
    names = {note["id"]: note["name"] for note in observed.notes.get("name", [])}
    found: dict[str, float] = {}
    for row in observed.of("module"):
        if row.flags == flags:
            found[names[row.obj]] = found.get(names[row.obj], 0.0) + row.dur
    return found


@pytest.fixture(scope="module")
def plain_model(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    return run_observed(MODEL, "plain", folder=tmp_path_factory.mktemp("window"))


def test_the_slow_module_is_named_and_every_bit_stays(plain_model: Observed, tmp_path: Path) -> None:
    observed = succeeded(plain_model)
    plain = run_observed(MODEL, "plain", folder=tmp_path / "plain", observed=False)
    assert observed.stdout == plain.stdout
    assert "disabled" not in observed.notes

    notes = {note["name"]: note for note in observed.notes["name"]}
    assert notes["slow"]["class"] == "Slow"
    assert notes[""]["depth"] == 0
    assert notes["body.0"]["depth"] == 2
    assert notes["CrossEntropyLoss"]["depth"] == 0
    assert "unused" not in notes

    forward, backward = shares(observed, 0), shares(observed, MODULE_BACKWARD)
    children = {name: seconds for name, seconds in forward.items() if name and "." not in name}
    assert max(children, key=lambda name: children[name]) == "slow"
    assert max(backward, key=lambda name: backward[name]) == "slow"
    assert "same" not in backward  # hands its input on: no node of its own
    assert {row.value for row in observed.of("module")} == {0, 1, 2}
    assert sum(1 for row in observed.of("module") if row.flags == 0 and row.obj == notes["head"]["id"]) == 3


def test_rows_of_the_window_nest_in_the_phases_they_are_part_of(plain_model: Observed) -> None:
    observed = plain_model
    phases = [row for kind in ("forward", "backward") for row in observed.of(kind)]
    for row in observed.of("module"):
        assert any(p.start <= row.start and row.start + row.dur <= p.start + p.dur for p in phases)


def test_scripted_models_are_left_alone(tmp_path: Path) -> None:
    observed = succeeded(run_observed(MODEL, "script", folder=tmp_path))
    assert len(observed.of("forward")) > 16
    assert observed.of("module") == []


def test_where_the_script_updates_by_hand_the_window_opens_as_well(tmp_path: Path) -> None:
    script = """
        import torch
        from torch import nn
        net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
        for step in range(115):
            net(torch.ones(8, 4)).square().mean().backward()
            with torch.no_grad():
                for weight in net.parameters():
                    weight -= 0.1 * weight.grad
            net.zero_grad()
    """
    observed = succeeded(run_observed(script, folder=tmp_path))
    assert {row.value for row in observed.of("module")} == {0, 1, 2}
    accumulating = script.replace(
        "for step", "optimizer = torch.optim.SGD(net.parameters())\n        for step"
    )
    observed = run_observed(accumulating, folder=tmp_path / "optimizer")
    assert observed.of("module") == []
