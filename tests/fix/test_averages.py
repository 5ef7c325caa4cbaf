"""``foreach-loop`` and ``foreach-lerp``: the moving average of weights as list forms, all else as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.fix.golden import patch_of

from hotloop.fix.patch import Patch

MODULE = {"overlapping": False, "param_dtypes": {"float32": 4}}
SCRIPT = """
import copy
import torch
from torch import nn

def update(ema, model, d=0.9):
    with torch.no_grad():
        {loop}

def run():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    ema = copy.deepcopy(model)
    for p in model.parameters():
        p.data.add_(torch.randn_like(p))
    for _ in range(3):
        update(ema, model)
    return list(ema.parameters())
"""
OVER = "for e, p in zip(ema.parameters(), model.parameters()):\n            "


def patched(folder: Path, loop: str, remedy: str, **facts: Any) -> Patch:
    (folder / "train.py").write_text(SCRIPT.format(loop=loop))
    known = {"module": [MODULE], "where": {remedy: "train.py: in zip("}, **facts}
    return patch_of(folder, {"apply": [remedy], **known})


def after(patch: Patch) -> str:
    assert patch.files, patch.left
    return next(iter(patch.files.values()))[1].decode()


def ran(text: str) -> list[torch.Tensor]:
    names: dict[str, Any] = {"__name__": "train"}
    exec(compile(text, "train.py", "exec"), names)
    return [one.detach() for one in names["run"]()]


EXACT = {
    "chained": OVER + "e.mul_(d).add_(p, alpha=1 - d)",
    "two statements": OVER + "e.data.mul_(d)\n            e.data.add_(p.data, alpha=1 - d)",
    "lerp": OVER + "e.lerp_(p.detach(), 0.1)",
    "the other way round": "for p, e in zip(model.parameters(), ema.parameters(), strict=True):\n"
    "            e.mul_(0.9).add_(p, alpha=0.2)",
}
NUMERIC = {
    "copied": OVER + "e.data.copy_(d * e.data + (1 - d) * p.data)",
    "bound anew": OVER + "e.data = e.data * d + p.data * (1.0 - d)",
    "scaled by hand": OVER + "e.mul_(d).add_((1 - d) * p)",
}


@pytest.mark.parametrize("loop", EXACT.values(), ids=EXACT)
def test_the_list_forms_compute_the_same_bits(loop: str, tmp_path: Path) -> None:
    new = after(patched(tmp_path, loop, "foreach-loop"))
    assert "_foreach_" in new
    for one, other in zip(ran(SCRIPT.format(loop=loop)), ran(new), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("loop", [*NUMERIC.values(), EXACT["chained"]], ids=[*NUMERIC, "chained"])
def test_an_average_is_one_interpolation(loop: str, tmp_path: Path) -> None:
    new = after(patched(tmp_path, loop, "foreach-lerp"))
    assert "_foreach_lerp_" in new
    for one, other in zip(ran(SCRIPT.format(loop=loop)), ran(new), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loop", NUMERIC.values(), ids=NUMERIC)
def test_what_rounds_otherwise_is_left_to_the_interpolation(loop: str, tmp_path: Path) -> None:
    assert not patched(tmp_path, loop, "foreach-loop").files


@pytest.mark.parametrize(
    ("loop", "why"),
    [
        (OVER + "e.mul_(d)", "no moving average"),
        (OVER + "e.mul_(d).add_(p, alpha=1 - d).clamp_(0)", "no moving average"),
        (OVER + "e.mul_(p).add_(p, alpha=1 - d)", "no moving average"),
        (OVER + "e.mul_(d).add_(p, alpha=1 - d)\n            print(e)", "no moving average"),
        ("for e, p in zip(ema.buffers(), model.buffers()):\n            e.lerp_(p, 0.1)", "two models"),
        ("for e, p in zip(ema.weights, model.parameters()):\n            e.lerp_(p, 0.1)", "two models"),
    ],
)  # fmt: skip
def test_any_other_loop_is_left(loop: str, why: str, tmp_path: Path) -> None:
    patch = patched(tmp_path, loop, "foreach-lerp")
    assert not patch.files
    assert why in patch.left[0].why
    assert "torch._foreach_lerp_(" in patch.left[0].write


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"module": [{**MODULE, "param_bytes": 4 << 20}]}, "uses its cache again"),
        ({"where": {}}, "no loop over parameters"),
    ],
)
def test_what_the_run_says_is_heard(facts: dict[str, Any], words: str, tmp_path: Path) -> None:
    patch = patched(tmp_path, EXACT["chained"], "foreach-loop", **facts)
    assert not patch.files
    assert words in patch.left[0].why
