"""What statements read and write, what is pure, who shares memory, and what an expression stands for."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from hotloop.source.code import Code
from hotloop.source.effects import draws, in_place, pure_function
from hotloop.source.flow import binds, is_pure, loops_around, reads, writes
from hotloop.source.text import Text
from hotloop.source.values import UNKNOWN, bound_to_self, constant, keys_of, made_by


def made(text: str) -> Code:
    return Code(Text(path=Path("train.py"), text=text))


def last(text: str) -> tuple[Code, ast.stmt]:
    code = made(text)
    return code, code.module.body[-1]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a = b + c.d", ({"b", "c"}, {"a"}, {"a"})),
        ("a.b[0] = c", ({"a", "c"}, set(), {"a"})),
        ("a += 1", ({"a"}, {"a"}, {"a"})),
        ("a.append(b)", ({"a", "b"}, set(), {"a"})),
        ("a.mul_(b)", ({"a", "b"}, set(), {"a"})),
        ("np.copyto(a, b)", ({"np", "a", "b"}, set(), {"a"})),
        ("for i in a:\n    b = i", ({"a", "i"}, {"i", "b"}, {"i", "b"})),
        ("a = [i for i in b]", ({"b", "i"}, {"a"}, {"a", "i"})),
        ("del a", (set(), {"a"}, {"a"})),
        ("def f(): return a", ({"a"}, {"f"}, {"f"})),
    ],
)
def test_reads_and_writes(text: str, found: tuple[set[str], set[str], set[str]]) -> None:
    code, statement = last(text)
    assert (reads(code, statement), binds(code, statement), writes(code, statement)) == found


@pytest.mark.parametrize(
    ("text", "pure"),
    [
        ("a = len(b) + abs(c)", True),
        ("a = x.float().mean(dim=0)", True),
        ("import torch\na = torch.stack([b, c])", True),
        ("import torch\na = torch.stack([b, c], out=d)", False),
        ("import torch\na = torch.rand(3)", False),
        ("import numpy as np\na = np.random.rand(3)", False),
        ("import torch\ntorch.save(a, b)", False),
        ("a = x.add_(1)", False),
        ("a = x.pop()", False),
        ("a.b = 1", False),
        ("a += 1", False),
        ("print(a)", False),
        ("a = f(b)", False),
        ("def len(x): ...\na = len(b)", False),
    ],
)
def test_what_is_pure(text: str, pure: bool) -> None:
    assert is_pure(*last(text)) is pure


def test_effects_by_name() -> None:
    assert in_place("append")
    assert in_place("clamp_")
    assert not in_place("clamp")
    assert not in_place("__init__")
    assert draws("torch.randn")
    assert draws("numpy.random.rand")
    assert not pure_function("random.shuffle")
    assert pure_function("math.sqrt")
    assert not pure_function("os.remove")


def test_loops_around_a_node_are_of_its_own_function() -> None:
    code = made(
        "for a in b:\n    def f():\n        while c:\n            d()\n    for e in g():\n        pass\n"
        "    else:\n        h()\n"
    )

    def lines(name: str) -> list[int]:
        return [one.lineno for one in loops_around(code, code.calls(name)[0])]

    assert (lines("d"), lines("g"), lines("h")) == ([3], [1], [1])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n = 3\nn", 3),
        ("n = -3\nm = n\nm", -3),
        ("n = 3\nn = 4\nn", UNKNOWN),
        ("n += 1\nn", UNKNOWN),
        ("def f(n): ...\nn", UNKNOWN),
        ("a, b = 1, 2\nb", 2),
    ],
)
def test_constants_through_names_bound_once(text: str, value: Any) -> None:
    code, statement = last(text)
    assert isinstance(statement, ast.Expr)
    assert constant(code, statement.value) == value


CLASS = """\
import torch
class A:
    def __init__(self):
        self.n = 3
        self.net = torch.nn.Linear(1, 1).to("cpu")
    def f(self):
        self.n2 = self.n
        self.net.weight.data.fill_(0)
"""


def test_attributes_of_self() -> None:
    code = made(CLASS)
    owner = code.nodes(ast.ClassDef)[0]
    read = next(one for one in code.nodes(ast.Attribute) if one.attr == "n" and isinstance(one.ctx, ast.Load))
    assert constant(code, read) == 3
    assert made_by(code, bound_to_self(code, owner, "net")[0] or read) == "torch.nn.Linear"


def test_chains_of_keys() -> None:
    code, statement = last('cfg.data["loader"].get("workers", 2)')
    assert isinstance(statement, ast.Expr)
    root, keys = keys_of(statement.value)
    assert (code.source(root), keys) == ("cfg", ("data", "loader", "workers"))
