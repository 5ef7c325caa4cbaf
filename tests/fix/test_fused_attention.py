"""Attention by hand and the fused call: the same outputs, gradients and draws, or the script as it is."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.fix.golden import case_of, names, patch_of, scene_of

from hotloop.findings import Place
from hotloop.fix.patch import Patch

WRITTEN = [name for name in names("fused_attention*") if case_of(name).after != case_of(name).before]

ONE = """
import math
import torch
import torch.nn.functional as F
from torch import nn

class Attention(nn.Module):
    def __init__(self, width=16, length=32):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.width = width
        {made}

    def forward(self, x{given}):
        B, T, C = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        {body}

def example():
    torch.manual_seed(3)
    pad = torch.zeros(2, 6).bool()
    pad[1, 4:] = True
    return Attention(), (torch.randn(2, 6, 16){handed},)
"""


def outcome(path: Path) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Output, gradients of parameters and inputs, and the state of the generator behind them."""
    torch.manual_seed(0)
    model, inputs = runpy.run_path(str(path))["example"]()
    inputs = [one.requires_grad_() if one.is_floating_point() and one.dim() > 2 else one for one in inputs]
    output = model(*inputs)
    (output * torch.linspace(-1, 1, output.numel()).view(output.shape)).sum().backward()
    gradients = [one.grad for one in (*model.parameters(), *inputs) if one.grad is not None]
    return [output.detach(), *gradients], torch.get_rng_state()


def require_same(before: Path, after: Path) -> None:
    (first, drawn), (second, drawn_after) = outcome(before), outcome(after)
    assert len(first) == len(second)
    most = max(float(one.abs().max()) for one in first)
    for one, other in zip(first, second, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6 * most)
    assert torch.equal(drawn, drawn_after)


@pytest.mark.parametrize("name", WRITTEN)
def test_the_fused_call_computes_the_same(name: str, tmp_path: Path) -> None:
    before = case_of(name).write(tmp_path / "before")
    after = case_of(name).write(tmp_path / "after", after=True)
    require_same(before / "train.py", after / "train.py")


def patched(folder: Path, body: str, *, made: str = "pass", given: str = "", **facts: Any) -> Patch:
    text = ONE.format(
        body=body.replace("\n", "\n        "),
        made=made,
        given=given and f", {given}",
        handed=given and ", pad",
    )
    (folder / "train.py").write_text(text)
    return patch_of(folder, {"apply": ["fused-attention"], **facts})


SCORES = "s = q @ k.transpose(-2, -1) / 4\n"
TRIANGLE = "self.mask = torch.tril(torch.ones(length, length))"


@pytest.mark.parametrize(
    ("body", "made", "given", "written"),
    [
        (SCORES + "return s.softmax(-1) @ v", "pass", "", "attention(q, k, v, scale=1.0 / 4)"),
        (SCORES + "s = s.masked_fill(pad[:, None], -math.inf)\nreturn s.softmax(-1) @ v", "0", "pad", "~pad"),
        (
            SCORES + "s = s.masked_fill(self.mask[:T, :T] < 0.5, -math.inf)\nreturn s.softmax(-1) @ v",
            TRIANGLE, "", "attn_mask=~(self.mask[:T, :T] < 0.5)",
        ),
        (
            SCORES + "s = s.masked_fill(self.mask[:T, :T] == 0, -1e4)\nreturn s.softmax(-1) @ v",
            f"self.register_buffer('mask', {TRIANGLE.partition('= ')[2]})", "", "is_causal=True",
        ),
        (
            "k = torch.cat([k, k], 1)\nv = torch.cat([v, v], 1)\nm = torch.ones(T, 2 * T).tril()\n"
            + SCORES + "s = s.masked_fill(m == 0, -math.inf)\nreturn s.softmax(-1) @ v",
            "pass", "", "~(m == 0)",
        ),
        (
            "q = q[:, :1]\n" + SCORES
            + "s = s.masked_fill(torch.ones(1, 1).tril() == 0, -math.inf)\nreturn s.softmax(-1) @ v",
            "pass", "", "~(torch.ones(1, 1).tril() == 0)",
        ),
        (
            SCORES + "if pad is not None:\n    s = s.masked_fill(pad[:, None], -math.inf)\n"
            "return s.softmax(-1) @ v", "0", "pad", "if pad is not None else None",
        ),
        (
            SCORES + "return (s + self.b[:6]).softmax(-1) @ v",
            "self.b = nn.Parameter(torch.ones(9, 6))", "", ".to(q.dtype)",
        ),
        (
            "m = torch.ones(T, T).tril()\nm[3, 0] = 0\n"
            + SCORES + "s = s.masked_fill(m == 0, -math.inf)\nreturn s.softmax(-1) @ v",
            "pass", "", "~(m == 0)",
        ),
        ("F = 4\ns = q @ k.mT / F\nreturn s.softmax(-1) @ v", "pass", "", "nn.functional.scaled"),
        (SCORES + "s = s.softmax(-1)\ns = s @ v\nreturn s * 2", "pass", "", "s = F.scaled"),
    ],
)  # fmt: skip
def test_masks_keep_their_meaning(tmp_path: Path, body: str, made: str, given: str, written: str) -> None:
    patch = patched(tmp_path, body, made=made, given=given)
    after = tmp_path / "after.py"
    after.write_bytes(patch.files[tmp_path / "train.py"][1])
    assert written in after.read_text()
    require_same(tmp_path / "train.py", after)


@pytest.mark.parametrize(
    ("body", "made", "why"),
    [
        (SCORES + "self.seen = s.softmax(-1)\nreturn self.seen @ v", "pass", "made out"),
        (SCORES + "w = s.softmax(-1)\nf = lambda: w.sum()\nreturn w @ v + f()", "pass", "read here too"),
        (SCORES + "w = s.softmax(-1)\nreturn w.transpose(1, 2) @ v", "pass", "made out"),
        (SCORES + "return self.soft(s) @ v", "self.soft = nn.Softmax(dim=1)", "over the last dimension"),
        (SCORES + "w = self.drop(s.softmax(-1))\nreturn w @ v", "self.drop = nn.Dropout(0.1)", "are dropped"),
        (SCORES + "k.mul_(2)\nreturn s.softmax(-1) @ v", "pass", "k is another one"),
        (SCORES + "k.data.mul_(2)\nreturn s.softmax(-1) @ v", "pass", "k is another one"),
        (
            "m = torch.zeros(T, T)\n" + SCORES + "s = s + m\nm[0] = 1\nreturn s.softmax(-1) @ v",
            "pass",
            "m is",
        ),
        (SCORES + "s = F.relu(s)\nreturn s.softmax(-1) @ v", "pass", "F.relu"),
    ],
)
def test_what_is_no_attention_stays(tmp_path: Path, body: str, made: str, why: str) -> None:
    patch = patched(tmp_path, body, made=made)
    assert not patch.files
    assert why in patch.left[0].why


def test_the_attention_that_is_asked_for_is_the_one_that_must_be_written(tmp_path: Path) -> None:
    """What else can be written stays where the one that takes the time cannot."""
    for name in ("fused_attention", "fused_attention_refused_entropy"):
        (tmp_path / f"{name}.py").write_text(case_of(name).text())
    facts: dict[str, Any] = {"apply": ["fused-attention"]}
    patch = patch_of(tmp_path, facts)
    assert [path.name for path in patch.files] == ["fused_attention.py"]
    assert "fused_attention_refused_entropy.py:" in patch.remarks[0]
    asked = {"fused-attention": "fused_attention_refused_entropy.py: y = att @ v"}
    patch = patch_of(tmp_path, {**facts, "where": asked})
    assert not patch.files
    assert "read here too" in patch.left[0].why


def test_the_rule_and_the_remedy_know_each_other(tmp_path: Path) -> None:
    facts = case_of("fused_attention").facts
    case_of("fused_attention").write(tmp_path)
    scene = scene_of(tmp_path, {**facts, "where": {"fused-attention": "train.py: att = (q @"}})
    assert scene.where["fused-attention"] == Place(file=str(tmp_path / "train.py"), line=27)
