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


BODIES = {
    "what lies in the keywords": ("", 'kw["seen"].append(1); return x * len(kw["seen"])'),
    "what is taken out of the keywords": ("", 'seen = kw["seen"]; seen.append(1); return x * len(seen)'),
    "an older generator": ("self.draws = np.random.RandomState(0)", "return x * self.draws.randn()"),
    "a rarer distribution": ("self.draws = np.random.default_rng(0)", "return x * self.draws.laplace()"),
    "a ufunc's at": ("self.load = np.zeros(4)", "np.add.at(self.load, 0, 1); return x * self.load[0]"),
    "copyto": ("self.mean = np.zeros(8)", "np.copyto(self.mean, x.numpy()); return x"),
    "a heap": ("self.top = []", "heapq.heappush(self.top, 1); return x * len(self.top)"),
    "a queue": ("self.scales = queue.Queue()", "return x * self.scales.get()"),
    "a generator that is gone through": (
        "self.scales = (1 / n for n in range(1, 9))", "for scale in self.scales: return x * scale",
    ),
    "two gone through at once": (
        "self.counts = itertools.count(1)", "for n, y in zip(self.counts, x): return y * n",
    ),
    "one of two": ("", "seen = self.log or SEEN; seen.append(1); return x * len(seen)"),
    "what a method hands out": ("", "seen = self.mine(); seen.append(1); return x * len(seen)"),
    "a method by a name that is made": ("", 'return getattr(self, "_" + self.mode)(x)'),
    "a function out of a table": ("", "return TABLE[self.mode](x)"),
    "one out of a table by a variable": ("", "f = TABLE[self.mode]; return f(x)"),
    "what is done at a subscript": ("self.schedule = Schedule()", 'return x * self.schedule["scale"]'),
}  # fmt: skip
AROUND = """
import heapq, itertools, queue
import numpy as np

SEEN, TABLE = [], {{}}

class Schedule:
    def __getitem__(self, name):
        self.step += 1
        return 1 / self.step

class Block(nn.Module):
    def __init__(self, mode="mixed", log=None):
        super().__init__()
        self.mode = mode
        self.log = log
        {made}

    def mine(self):
        return self.log

    def body(self, x, **kw):
        {body}

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False)
"""


def patch(folder: Path, source: str, **module: Any) -> Patch:
    (folder / "train.py").write_text(HEAD + dedent(source))
    (folder / "state.py").write_text("SEEN = []\ncalls = 0\n")
    return patch_of(folder, FACTS | {"module": [FACTS["module"][0] | module]})


@pytest.mark.parametrize("case", BODIES)
def test_what_a_body_keeps_leaves_checkpointing_in(case: str, tmp_path: Path) -> None:
    made, body = BODIES[case]
    found = patch(tmp_path, AROUND.format(made=made or "pass", body=body))
    assert not found.files
    assert "forward" in found.left[0].why or "cannot be told" in found.left[0].why


def test_a_body_that_keeps_nothing_is_called_once(tmp_path: Path) -> None:
    made = "self.parts = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))"
    body = "kw['mask'] = None; return self.parts[0](x) + sum(part(x) for part in self.parts)"
    assert patch(tmp_path, AROUND.format(made=made, body=body)).files


@pytest.mark.parametrize(
    ("norm", "classes", "left"),
    [
        ('getattr(nn, "BatchNorm1d")(8)', None, True),
        ("nn.InstanceNorm1d(8, 1e-5, 0.1, True, True)", None, True),
        ("nn.InstanceNorm1d(8, 1e-5, 0.1, True, False)", None, False),
        ("made(8)", ["BatchNorm1d"], True),
        ("made(8)", ["Block"], False),
    ],
)
def test_running_statistics_leave_checkpointing_in(
    tmp_path: Path, norm: str, classes: list[str] | None, left: bool
) -> None:
    recorded = {} if classes is None else {"buffer_classes": classes}
    source = AROUND.format(made=f"self.part = {norm}", body="return self.part(x)")
    assert bool(patch(tmp_path, source, buffer_bytes=64, **recorded).files) is not left


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
