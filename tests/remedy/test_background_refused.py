"""``background-batches``: what the loop may change by any way is found, and no batch is made ahead of it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent
from typing import NamedTuple

import pytest
from tests.remedy.golden import patch_of

SCRIPT = """\
import os, random, sys
import numpy as np
import torch
from torch import nn

data = torch.rand(1000, 8)
{before}
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(40):
    x = {make}
    loss = model(x).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{after}
"""


class Case(NamedTuple):
    before: str
    after: str = ""
    make: str = "get_batch(16)"


GET = """
def get_batch(n):
    return data[torch.randint(0, 1000, (n,))]
"""
SCALED = """
def get_batch(n):
    return data[torch.randint(0, 1000, (n,))] * {0}
"""
SETTING = "class Cfg:\n    scale = 1.0\ncfg = Cfg()\n" + SCALED.format("cfg.scale")
SUPPLY = """
class Supply:
    size = 16

    def __init__(self):
        self.at = 0

    def next_batch(self):
        self.at = (self.at + 16) % 900
        return data[self.at : self.at + self.size] * 1.0

supply = Supply()
"""
BY_NUMPY = "\ndef get_batch(n):\n    return data[np.random.randint(0, 1000, n)]\n"

CHANGES = {
    "an attribute by its name": Case(SETTING, 'setattr(cfg, "scale", float(step))'),
    "an attribute of a dictionary": Case(SETTING, 'cfg.__dict__["scale"] = float(step)'),
    "attributes by vars": Case(SETTING, "vars(cfg).update(scale=float(step))"),
    "an attribute by a loop": Case(SETTING, "for cfg.scale in (1.0, float(step)): pass"),
    "an attribute by a context": Case(SETTING, 'with open("log") as cfg.scale: pass'),
    "arguments parsed again": Case(
        "import argparse\nparser = argparse.ArgumentParser()\nargs = parser.parse_args([])\n"
        + SCALED.format("args.scale"),
        'parser.parse_args(["--scale", str(step)], namespace=args)',
    ),
    "a variable by globals": Case("scale = 1.0" + SCALED.format("scale"), "globals()['scale'] = float(step)"),
    "a variable by its module": Case(
        "scale = 1.0" + SCALED.format("scale"), "sys.modules['__main__'].scale = float(step)"
    ),
    "an attribute of the function": Case(SCALED.format("get_batch.scale"), "get_batch.scale = float(step)"),
    "the environment": Case(
        SCALED.format('float(os.environ.get("SCALE", "1"))'), "os.environ['SCALE'] = str(step)"
    ),
    "the working folder": Case(
        '\ndef get_batch(n):\n    return torch.tensor(np.load("rows.npy")[:n])\n', 'os.chdir("other")'
    ),
    "an array by a function": Case(
        'weights = np.ones(8, "float32")' + SCALED.format("torch.from_numpy(weights)"),
        "np.put(weights, 0, step)",
    ),
    "an array by a function in place": Case(GET, "torch.relu_(data)"),
    "an array in a list": Case(GET, "torch._foreach_mul_([data], 1.01)"),
    "an array by map": Case(GET, "list(map(lambda t: t.mul_(1.01), [data]))"),
    "the batch, a part of the data": Case(
        "def get_batch(n):\n    return data[:n]\n\ndef halve(b):\n    b.div_(2)\n", "halve(x)"
    ),
    "a field of a class": Case(SUPPLY, "Supply.size = 16 + step", "supply.next_batch()"),
    "a generator by its module's name": Case(
        BY_NUMPY.replace("np.random", "random").replace("(0, 1000, n)", "(0, 999)"),
        "x = sys.modules['random'].random()",
    ),
    "a generator handed on": Case(
        "import numpy.random as draws\n" + BY_NUMPY + 'draw = getattr(draws, "normal")\n', "x = draw()"
    ),
    "the type of what is made": Case(
        "def get_batch(n):\n    return torch.rand(n, 8)\n", "torch.set_default_dtype(torch.float64)"
    ),
}
KEEPS = {
    "nothing": Case(GET),
    "what is set before": Case(
        SETTING + 'setattr(cfg, "name", "x")\nexec(open("settings.py").read())\nos.environ["A"] = "1"\n',
        "print({k: globals()[k] for k in ('step',)}, vars(cfg))",
    ),
    "an object of its own": Case(SUPPLY, make="supply.next_batch()"),
}


def left(folder: Path, case: Case) -> list[str]:
    text = SCRIPT.format(before=dedent(case.before), make=case.make, after=indent(case.after, "    "))
    (folder / "train.py").write_text(text)
    found = patch_of(folder, {"apply": ["background-batches"], "loop": "train.py: for step in"})
    assert bool(found.files) is not bool(found.left)
    return [one.why for one in found.left]


@pytest.mark.parametrize("name", CHANGES)
def test_what_the_loop_may_change_is_not_made_ahead(name: str, tmp_path: Path) -> None:
    assert left(tmp_path, CHANGES[name])


@pytest.mark.parametrize("name", KEEPS)
def test_what_it_leaves_alone_is(name: str, tmp_path: Path) -> None:
    assert left(tmp_path, KEEPS[name]) == []
