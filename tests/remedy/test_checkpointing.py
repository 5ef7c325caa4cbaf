"""No checkpointing: the same losses bit for bit, as a live form and as a patch, or the script as it is."""

from __future__ import annotations

import itertools
import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.remedy.test_live_forms import Context
from tests.running import Observed, run_observed, succeeded
from torch import nn
from torch.utils.checkpoint import checkpoint

from hotloop.remedy import catalogue
from hotloop.remedy.live.checkpointing import NoCheckpointing

SCRIPT = """
import argparse, itertools, json
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

options = argparse.ArgumentParser()
options.add_argument("--reentrant", action="store_true")
options.add_argument("--frozen-input", action="store_true")
options.add_argument("--norm", action="store_true")
options.add_argument("--draw-again", action="store_true")
options.add_argument("--nested", action="store_true")
options.add_argument("--wrapped", action="store_true")
options = options.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
calls = itertools.count()

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width) if options.norm else nn.LayerNorm(width)
        self.linear, self.drop = nn.Linear(width, width), nn.Dropout(0.2)
    def forward(self, x):
        return x + self.drop(torch.relu(self.linear(self.norm(x))))

def calling(module):
    def run(inner):
        return module(inner)
    return run

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.blocks = nn.ModuleList(Block(16) for _ in range(3))
        self.tail = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.1), nn.Linear(16, 4))
    def forward(self, x):
        reentrant = options.reentrant
        if options.frozen_input:
            x = checkpoint(self.first, x, use_reentrant=reentrant)
        else:
            x = self.first(x)
        for block in self.blocks:
            if options.wrapped:
                x = checkpoint(calling(block), x, use_reentrant=reentrant)
                continue
            x = checkpoint(block, x, use_reentrant=reentrant, preserve_rng_state=not options.draw_again)
        if options.nested:
            inner = lambda y: checkpoint(self.blocks[1], y, use_reentrant=False)
            x = checkpoint(inner, x, use_reentrant=False)
        return checkpoint_sequential(self.tail, 2, x, use_reentrant=reentrant)

model = Net()
for block in model.blocks:
    block.register_forward_pre_hook(lambda *_: next(calls) < 0 or None)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for step in range(8):
    x = torch.randn(6, 8)
    loss = nn.functional.cross_entropy(model(x), torch.arange(6) % 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    losses.append(model(torch.ones(6, 8)).sum().item())
print(json.dumps({"losses": losses, "calls": next(calls)}))
"""


def run(folder: Path, *args: str, live: bool) -> tuple[dict[str, Any], Observed]:
    env = catalogue.environment([catalogue.parse("no-checkpointing")] if live else [])
    done = succeeded(run_observed(SCRIPT, *args, folder=folder / f"live-{live}", env=env))
    assert not done.notes.get("disabled")
    return json.loads(done.stdout), done


def status(done: Observed) -> str:
    return str(done.notes["remedy"][-1]["status"])


@pytest.mark.parametrize(
    "args", [(), ("--reentrant",), ("--wrapped",), ("--reentrant", "--wrapped"), ("--nested",)]
)
def test_losses_stay_and_nothing_is_computed_twice(tmp_path: Path, args: tuple[str, ...]) -> None:
    before, _ = run(tmp_path, *args, live=False)
    after, done = run(tmp_path, *args, live=True)
    assert after["losses"] == before["losses"]
    assert after["calls"] < before["calls"]
    assert status(done) == "in effect"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--norm",), "its forward changes what the model keeps (running statistics), twice"),
        (("--draw-again",), "it draws random numbers in backward again, which would not be drawn"),
    ],
)
def test_what_would_train_otherwise_is_left(tmp_path: Path, args: tuple[str, ...], why: str) -> None:
    before, _ = run(tmp_path, *args, live=False)
    after, done = run(tmp_path, *args, live=True)
    assert after["losses"] == before["losses"]
    words = [note["status"] for note in done.notes["remedy"]]
    assert why in words or words[-1] == "in effect"  # the parts that draw nothing go without
    assert after["calls"] == before["calls"]


def test_a_part_that_is_not_trained_stays_untrained(tmp_path: Path) -> None:
    """With use_reentrant=True the first layer, given what needs no gradient, gets none, nor do others."""
    args = ("--reentrant", "--frozen-input")
    before, _ = run(tmp_path, *args, live=False)
    after, done = run(tmp_path, *args, live=True)
    assert after == before
    assert status(done) == "with use_reentrant=True a part whose inputs need no gradient is not trained"


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer, context: Context) -> float:
    """The loss of a step of training, with the model checkpointed."""
    x = torch.randn(3, 4, requires_grad=True)
    loss = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    context.update()
    return loss.item()


def test_it_is_switched_between_steps() -> None:
    """Blocks of a what-if: on and off within one run, the same gradients as without."""

    def losses(switch: bool) -> tuple[list[float], int]:
        context = Context()
        torch.manual_seed(0)
        seen = itertools.count()
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))
        model.register_forward_pre_hook(lambda *_: next(seen) < 0 or None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        form = NoCheckpointing(context, None)  # type: ignore[arg-type]
        form.active = False
        form.install()
        found = []
        for step in range(9):
            if switch and step in (3, 6):
                (form.on if step == 3 else form.off)()
            found.append(step_of(model, optimizer, context))
        assert not switch or form.status() == "in effect"
        context.hooks.undo()
        assert not context.errors
        return found, next(seen)

    assert torch.utils.checkpoint.checkpoint is checkpoint
    whole, calls = losses(False)
    switched, fewer = losses(True)
    assert switched == whole
    assert calls == 18
    assert fewer == 16
    assert torch.utils.checkpoint.checkpoint is checkpoint


COUNTED = {"calls": 0}


class Keeping(nn.Module):
    """A block whose forward keeps something, by which the next one computes."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.linear = kind, nn.Linear(4, 4)
        self.listed: list[torch.Tensor] = []
        self.named: dict[str, list[int]] = {"calls": [0]}
        self.different: set[int] = set()
        self.queue: deque[float] = deque([0.0] * 3, maxlen=3)
        self.scale = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.linear(x) * self.scale
        if self.kind == "list":
            self.listed.append(h.detach().abs().mean())
        elif self.kind == "dict":
            self.named["calls"][0] += 1
        elif self.kind == "set":
            self.different.add(len(self.different))
        elif self.kind == "deque":
            self.queue.append(h.detach().abs().mean().item())
        elif self.kind == "tensor":
            self.scale.mul_(0.9)
        kept = sum(self.listed[-3:]) + self.named["calls"][0] + len(self.different) + sum(self.queue)
        return h / (1 + kept)


class Counting(nn.Module):
    """A block that counts its calls beside itself."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        COUNTED["calls"] += 1
        return self.linear(x) / COUNTED["calls"]


@pytest.mark.parametrize("kind", ["list", "dict", "set", "deque", "tensor", "global", "nothing"])
def test_a_forward_that_keeps_something_is_left(kind: str) -> None:
    found = []
    for live in (False, True):
        context = Context()
        torch.manual_seed(0)
        COUNTED["calls"] = 0
        model = Counting() if kind == "global" else Keeping(kind)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        form = NoCheckpointing(context, None)  # type: ignore[arg-type]
        if live:
            form.install()
        losses = [step_of(model, optimizer, context) for _ in range(5)]
        status = form.status()
        context.hooks.undo()
        assert not context.errors
        found.append(losses)
    assert found[0] == found[1]
    assert (status == "in effect") == (kind == "nothing")
