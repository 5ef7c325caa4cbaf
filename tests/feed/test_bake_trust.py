"""A bake that somebody else made runs no code: what has no plain form opens only for who trusts its maker."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from bake_datasets import Given, Point, Scene
from tests.running import python
from torch.utils.data import DataLoader

from hotloop.feed import Baked, NotPlainError, bake
from hotloop.feed.baking import manifest as manifests
from hotloop.feed.baking import plain


class Runs:
    """Its pickle runs a command when it is opened."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.made),)


def test_objects_of_samples_open_only_with_trust(tmp_path: Path) -> None:
    samples = [{"x": torch.ones(3) * number, "part": Fraction(number, 3)} for number in range(6)]
    assert bake(Given(samples), tmp_path / "b")[2]["part"] == Fraction(2, 3)  # who baked it trusts it
    with pytest.raises(NotPlainError, match="trust=True"):
        Baked(tmp_path / "b")[2]
    assert Baked(tmp_path / "b", trust=True)[2]["part"] == Fraction(2, 3)


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    bake(Given([{"x": torch.ones(3)}] * 4), tmp_path / "b")
    path, made = tmp_path / "b" / manifests.FILE, tmp_path / "made"
    manifest = manifests.read(tmp_path / "b")
    forged: Any = Runs(made)
    schema = manifest.schema._replace(structure=forged)
    path.write_text(manifests.dumps(dataclasses.replace(manifest, schema=schema)))
    with pytest.raises(NotPlainError, match="which only code opens"):
        Baked(tmp_path / "b")
    assert not made.exists()
    odd = [{"x": torch.ones(3)}, {"x": torch.ones(3)}, {"y": Runs(made)}]
    bake(Given(odd), tmp_path / "c")
    with pytest.raises(NotPlainError):
        Baked(tmp_path / "c")[2]
    assert not made.exists()


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def named(module: str, name: str) -> bytes:
    return text(module) + text(name) + b"\x93"


@pytest.mark.parametrize(
    "program",
    [
        # dict() of a mapping whose values are unpickled when they are asked for
        named("builtins", "dict") + named("numpy.lib.npyio", "NpzFile") + text("x") + b"\x89\x88\x87R\x85R.",
        # attributes of a class that is named: (None, {"__getitem__": dict})
        named("os", "_Environ") + b"N}" + text("__getitem__") + named("builtins", "dict") + b"s\x86b.",
        named("builtins", "eval") + text("1 + 1") + b"\x85R.",
        named("bake_datasets", "Scene") + b")\x81.",
    ],
    ids=["calls a mapping", "writes into a class", "calls a function", "makes a dataclass"],
)
def test_a_name_in_a_pickle_can_do_nothing(program: bytes) -> None:
    before = dict(vars(os._Environ))
    with pytest.raises(NotPlainError):
        plain.loads(b"\x80\x04" + program, trust=False)
    assert dict(vars(os._Environ)) == before


def test_classes_that_are_more_than_a_named_tuple_need_trust(tmp_path: Path) -> None:
    bake(Given([Scene(torch.ones(2), "a")] * 3), tmp_path / "b")
    with pytest.raises(NotPlainError, match="Scene, which is no named tuple"):
        Baked(tmp_path / "b")
    assert Baked(tmp_path / "b", trust=True)[1].name == "a"


def test_classes_of_samples_must_be_imported(tmp_path: Path) -> None:
    bake(Given([Point(torch.ones(2) * number, number) for number in range(8)]), tmp_path / "b")
    loader = DataLoader(Baked(tmp_path / "b"), batch_size=4, num_workers=1, multiprocessing_context="spawn")
    assert [batch.y.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    (tmp_path / "opens.py").write_text("import hotloop.feed as f; f.Baked('b')")
    done = python("opens.py", folder=tmp_path)
    assert "bake_datasets.Point is not imported" in done.stderr
    assert "import bake_datasets" in done.stderr
