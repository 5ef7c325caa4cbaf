"""``no-checkpointing``: what a forward keeps or draws beside computing is found wherever it stands."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests.remedy.golden import patch_of

from hotloop.remedy.source.patch import Patch

FACTS: dict[str, Any] = {
    "apply": ["no-checkpointing"],
    "memory": [{"host_rss": 1000000}],
    "module": [{"id": 1, "buffer_bytes": 0}],
}

HEAD = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

"""

KEEPS = {
    "a method of a base class": """
        class Base(nn.Module):
            def body(self, x):
                self.calls += 1
                return x * self.calls

        class Block(Base):
            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "a method of another object": """
        class Meter:
            def see(self, x):
                self.total = self.total + x.sum()
                return self.total

        class Block(nn.Module):
            def __init__(self, meter):
                super().__init__()
                self.meter = meter

            def body(self, x):
                return x * self.meter.see(x)

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "an object that is called": """
        class Schedule:
            def __call__(self, x):
                self.step += 1
                return x * self.step

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = Schedule()

            def forward(self, x):
                return checkpoint(lambda y: self.scale(y), x, use_reentrant=False)
        """,
    "an object that was given and is called": """
        class Schedule:
            def __call__(self, x):
                self.step += 1
                return x * self.step

        class Block(nn.Module):
            def forward(self, x, scale):
                return checkpoint(lambda y: scale(y), x, use_reentrant=False)
        """,
    "a counter that goes on": """
        class Block(nn.Module):
            def body(self, x):
                return x * next(self.numbers)

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "a property": """
        class Base(nn.Module):
            @property
            def rate(self):
                self.reads += 1
                return 1 / self.reads

        class Block(Base):
            def forward(self, x):
                return checkpoint(lambda y: y * self.rate, x, use_reentrant=False)
        """,
    "an argument that is appended to": """
        class Block(nn.Module):
            def body(self, x, seen):
                seen.append(float(x.mean()))
                return x * len(seen)

            def forward(self, x, seen):
                return checkpoint(self.body, x, seen, use_reentrant=False)
        """,
    "a default that is appended to": """
        def body(x, seen=[]):
            seen.append(1)
            return x * len(seen)

        class Block(nn.Module):
            def forward(self, x):
                return checkpoint(body, x, use_reentrant=False)
        """,
    "its input, written over": """
        class Block(nn.Module):
            def body(self, x):
                x += 1
                return x * x

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "a view of its input": """
        class Block(nn.Module):
            def body(self, x):
                flat = x.view(-1)
                flat.mul_(2)
                return x * x

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "its input, by a module": """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Dropout(0.1, inplace=True), nn.Linear(4, 4))

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "a generator of its own": """
        class Block(nn.Module):
            def body(self, x):
                return x * (torch.rand(x.shape, generator=self.generator) > 0.1)

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "numpy's generator of its own": """
        class Block(nn.Module):
            def body(self, x):
                return x * self.rng.normal()

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "a variable of another file": """
        import state
        from state import SEEN

        class Block(nn.Module):
            def body(self, x):
                SEEN.append(1)
                return x * len(SEEN)

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "an attribute of another file": """
        import state

        class Block(nn.Module):
            def body(self, x):
                state.calls += 1
                return x * state.calls

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "an attribute set by its name": """
        class Block(nn.Module):
            def body(self, x):
                setattr(self, "calls", self.calls + 1)
                return x * self.calls

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "its class": """
        class Block(nn.Module):
            calls = 0

            def body(self, x):
                type(self).calls += 1
                return x * self.calls

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "a hook": """
        def count(module, given):
            module.calls += 1

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(4, 4)
                self.body.register_forward_pre_hook(count)

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "what decorates it": """
        def counted(function):
            calls = [0]

            def inner(*args):
                calls[0] += 1
                return function(*args) * calls[0]

            return inner

        class Block(nn.Module):
            @counted
            def body(self, x):
                return x

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "a function put in its place": """
        def counting(self, x):
            self.calls += 1
            return x * self.calls

        class Block(nn.Module):
            def body(self, x):
                return x

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)

        Block.body = counting
        """,
    "one of several": """
        class Block(nn.Module):
            def forward(self, x):
                for layer in self.layers:
                    layer.calls += 1
                    x = checkpoint(layer, x, use_reentrant=False)
                return x
        """,
    "a list by a second name": """
        class Block(nn.Module):
            def body(self, x):
                history = self.history
                seen = history
                seen.append(1)
                return x * len(seen)

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "what a library's class keeps": """
        import lightning

        class Block(lightning.LightningModule):
            def body(self, x):
                self.log("mean", x.mean())
                return x

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
    "a context": """
        class Counted:
            def __enter__(self):
                self.calls += 1
                return self.calls

            def __exit__(self, *args):
                pass

        class Block(nn.Module):
            def body(self, x):
                with self.counted as calls:
                    return x * calls

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
        """,
}

KEEPS_NOTHING = {
    "modules in a list": """
        class Attention(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.qkv = nn.Linear(width, 3 * width)
                self.cache = {}

            def forward(self, x, mask=None):
                b, t, c = x.size()
                q, k, v = self.qkv(x).split(c, dim=2)
                scores = q @ k.transpose(-2, -1)
                if mask is not None:
                    scores = scores.masked_fill(mask == 0, float("-inf"))
                y = scores.softmax(dim=-1) @ v
                y += x
                return y

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([Attention(8) for _ in range(4)])
                self.act = nn.ReLU(inplace=True)

            def forward(self, x, **kwargs):
                scale = kwargs.pop("scale", 1)
                outs = []
                for layer in self.layers:
                    x = checkpoint(layer, x, use_reentrant=False)
                    outs.append(x)
                with torch.autocast("cpu", enabled=False):
                    total = torch.stack(outs).sum(0)
                total *= scale
                return self.act(total)

        class Crop:
            def __call__(self, image):
                self.last = image
                return image

        def train(net, loader, history):
            for x in loader:
                out = net(x)
                history.append(out.sum().item())
        """,
}


def patch(folder: Path, source: str) -> Patch:
    (folder / "train.py").write_text(HEAD + dedent(source))
    (folder / "state.py").write_text("SEEN = []\ncalls = 0\n")
    return patch_of(folder, FACTS)


@pytest.mark.parametrize("case", KEEPS)
def test_what_is_kept_leaves_checkpointing_in(case: str, tmp_path: Path) -> None:
    found = patch(tmp_path, KEEPS[case])
    assert not found.files
    assert len(found.left) == 1 and found.left[0].why


@pytest.mark.parametrize("case", KEEPS_NOTHING)
def test_what_only_computes_is_called_once(case: str, tmp_path: Path) -> None:
    found = patch(tmp_path, KEEPS_NOTHING[case])
    assert [left.why for left in found.left] == []
    assert found.files
