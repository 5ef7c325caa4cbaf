"""Attention by hand and the fused call: the same outputs, gradients and draws, or the script as it is."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from golden import patch_of, scene_of

from hotloop.findings import Place
from hotloop.remedy.source.patch import Patch

GOLDEN = Path(__file__).parent / "golden"
WRITTEN = sorted(path.parent for path in GOLDEN.glob("fused_attention*/after"))

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


def module_of(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"attention_{abs(hash(str(path)))}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def outcome(path: Path) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Output, gradients of parameters and inputs, and the state of the generator behind them."""
    torch.manual_seed(0)
    model, inputs = module_of(path).example()
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


@pytest.mark.parametrize("case", WRITTEN, ids=lambda case: case.name)
def test_the_fused_call_computes_the_same(case: Path) -> None:
    require_same(case / "before" / "train.py", case / "after" / "train.py")


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
        (SCORES + "return s.softmax(-1) @ v", "pass", "", "q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)"),
        ("s = q @ k[0].t()\nreturn s.softmax(-1) @ v[1]", "pass", "", "q, k[0], v[1], scale=1.0"),
        (SCORES + "s = s.masked_fill(pad[:, None], -math.inf)\nreturn s.softmax(-1) @ v", "0", "pad", "~pad"),
        (SCORES + "s = torch.where(~pad[:,None], s, -math.inf)\nreturn s.softmax(-1) @ v", "0", "pad", "pad"),
        (
            SCORES + "s = s.masked_fill(self.mask[:T, :T] < 0.5, -math.inf)\nreturn s.softmax(-1) @ v",
            TRIANGLE, "", "attn_mask=~(self.mask[:T, :T] < 0.5)",
        ),
        (
            SCORES + "s = s.masked_fill(self.mask[:T, :T] == 0, -1e4)\nreturn s.softmax(-1) @ v",
            TRIANGLE, "", "is_causal=True",
        ),
        (
            "k = torch.cat([k, k], 1)\nv = torch.cat([v, v], 1)\nm = torch.ones(T, 2 * T).tril()\n"
            + SCORES + "s = s.masked_fill(m == 0, -math.inf)\nreturn s.softmax(-1) @ v",
            "pass", "", "m != 0",
        ),
        (
            "q = q[:, :1]\n" + SCORES
            + "s = s.masked_fill(torch.ones(1, 1).tril() == 0, -math.inf)\nreturn s.softmax(-1) @ v",
            "pass", "", "torch.ones(1, 1).tril() != 0",
        ),
        (SCORES + "return (s-self.b[:6]).softmax(-1) @ v", "self.b = nn.Parameter(torch.ones(9))", "", "2d"),
        (SCORES + "m = pad[:, None]\ns = torch.where(m, -math.inf, s)\nreturn s.softmax(-1) @ v",
         "0", "pad", "bool()"),
        (
            SCORES + "y = s.softmax(-1) @ v\nreturn y.view(-1)", "pass", "", ".clone(",
        ),
        (
            "m = torch.ones(T, T).tril()\nm[3, 0] = 0\n"
            + SCORES + "s = s.masked_fill(m == 0, -math.inf)\nreturn s.softmax(-1) @ v",
            "pass", "", "m != 0",
        ),
        (
            "kt = k.transpose(1, 2)\ns = q @ kt / math.sqrt(kt.size(-1))\nreturn s.softmax(-1) @ v",
            "pass", "", "scale=1.0 / math.sqrt(kt.size(-1))",
        ),
        (
            SCORES + "s = s.masked_fill(pad[:, None], -math.inf)\n"
            "s = s.masked_fill(torch.ones(T, T).tril() == 0, -math.inf)\nreturn s.softmax(-1) @ v",
            "pass", "pad", "attn_mask=(~pad[:, None]) & (torch.ones(T, T).tril() != 0)",
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
        (SCORES + "self.seen = s.softmax(-1)\nreturn self.seen @ v", "pass", "the weights are kept"),
        (SCORES + "w = s.softmax(-1)\nf = lambda: w.sum()\nreturn w @ v + f()", "pass", "read here too"),
        (SCORES + "w = s.softmax(-1)\nreturn w.transpose(1, 2) @ v", "pass", "made out"),
        (
            SCORES + "s = s / self.t\nreturn s.softmax(-1) @ v",
            "self.t = nn.Parameter(torch.ones(1))",
            "number",
        ),
        (SCORES + "return self.soft(s) @ v", "self.soft = nn.Softmax(dim=1)", "over the last dimension"),
        (SCORES + "w = self.drop(s.softmax(-1))\nreturn w @ v", "self.drop = nn.Dropout(0.1)", "are dropped"),
        (SCORES + "s = s + (k.sum(-1) > 0)\nreturn s.softmax(-1) @ v", "pass", "near zero"),
        (SCORES + "k.mul_(2)\nreturn s.softmax(-1) @ v", "pass", "k is another one"),
        (SCORES + "k.data.mul_(2)\nreturn s.softmax(-1) @ v", "pass", "k is another one"),
        (SCORES + "F.relu(q, inplace=True)\nreturn s.softmax(-1) @ v", "pass", "q is another one"),
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


@pytest.mark.parametrize(
    "behind",
    [
        "y += x\nreturn y",
        "y[:, 0] = 0\nreturn y",
        "y.transpose(1, 2).mul_(2)\nreturn y",
        "return F.relu(y, inplace=True)",
        "return y[0].view(-1)",
        "return y.view_as(x)",
        "y = y + 1\nreturn y.view(-1)",
        "y = F.dropout(y, 0.0)\nreturn y.view(-1)",
        "all = [y]\nreturn all[0].view(-1)",
        "self.y = y\nreturn self.y.view(-1)",
        "if C > 2:\n    y = y * 2\nreturn y.view(-1)",
        "return torch.Tensor.view(y, -1)",
    ],
)
def test_the_result_lies_in_memory_as_that_of_a_product(tmp_path: Path, behind: str) -> None:
    """The kernel keeps what it gives for the gradients, and has an order of its own."""
    heads = "q, k, v, x = (t.view(B, T, 4, -1).transpose(1, 2) for t in (q, k, v, x))\n"
    patch = patched(tmp_path, heads + SCORES + "y = s.softmax(-1) @ v\n" + behind)
    after = tmp_path / "after.py"
    after.write_bytes(patch.files[tmp_path / "train.py"][1])
    assert ".clone(" in after.read_text()
    require_same(tmp_path / "train.py", after)


@pytest.mark.parametrize("behind", ["y = y.reshape(B, T, C)", "y = y.contiguous().view(B, T, C)"])
def test_what_only_a_layer_reads_is_not_copied(tmp_path: Path, behind: str) -> None:
    body = SCORES + f"y = s.softmax(-1) @ v\n{behind}\nreturn self.out(y)"
    patch = patched(tmp_path, body, made="self.out = nn.Linear(width, width)")
    assert b"clone" not in patch.files[tmp_path / "train.py"][1]


BUFFER = "self.register_buffer('mask', torch.tril(torch.ones(length, length)))"


@pytest.mark.parametrize(
    ("made", "behind"),
    [
        ("m = torch.ones(length, length).tril()\n        m[:, :3] = 1\n        " + BUFFER.replace(
            "torch.tril(torch.ones(length, length))", "m"), ""),
        ("if length > 4:\n            self.register_buffer('mask', torch.ones(32, 32))\n        else:\n"
         "            " + BUFFER, ""),
        (BUFFER, "    a.mask = torch.ones(32, 32)"),
        (BUFFER, "    setattr(a, 'mask', torch.ones(32, 32))"),
        (BUFFER, "    a.register_buffer('mask', torch.ones(32, 32))"),
        (BUFFER, "    a.mask.fill_(1)"),
        (BUFFER, "    m = a.mask[:, :3]\n    m.zero_().add_(1)"),
        (BUFFER, "    a.load_state_dict({**a.state_dict(), 'mask': torch.ones(32, 32)})"),
        (BUFFER, "    for _, b in a.named_buffers():\n        b.fill_(1)"),
        (BUFFER, "    a._buffers['mask'] = torch.ones(32, 32)"),
        (BUFFER, "class B(Attention):\n    def __init__(self):\n        super().__init__()\n"
         "        self.register_buffer('mask', torch.ones(32, 32))\n\ndef other():\n    a = B()"),
    ],
)  # fmt: skip
def test_a_triangle_that_may_be_changed_is_handed_over_as_it_is(
    tmp_path: Path, made: str, behind: str
) -> None:
    body = SCORES + "s = s.masked_fill(self.mask[:T, :T] == 0, FILL)\nreturn s.softmax(-1) @ v"
    for fill in ("-math.inf", "-1e9"):
        patched(tmp_path, body.replace("FILL", fill), made=made)
        text = (tmp_path / "train.py").read_text().replace("Attention(), (", "changed(), (")
        head = "" if behind.startswith("class") else "def other():\n    a = Attention()\n"
        text += f"\n{head}{behind}\n    return a\n\ndef changed():\n    return other()\n"
        (tmp_path / "train.py").write_text(text)
        patch = patch_of(tmp_path, {"apply": ["fused-attention"]})
        assert bool(patch.files) == (fill == "-math.inf")
        if patch.files:
            after = tmp_path / "after.py"
            after.write_bytes(patch.files[tmp_path / "train.py"][1])
            assert "attn_mask=self.mask[:T, :T] != 0" in after.read_text()
            require_same(tmp_path / "train.py", after)
            after.unlink()


@pytest.mark.parametrize(
    ("body", "made", "given"),
    [
        (SCORES + "s = s + pad\nreturn s.softmax(-1) @ v", "0", "pad"),
        (SCORES + "return (s - (1 - pad.long()) * 10000).softmax(-1) @ v", "0", "pad"),
        (SCORES + "m = torch.zeros(T, T)\ny = (s + m).softmax(-1) @ v\nm += 1\nreturn y", "0", ""),
        (SCORES + "s = s.masked_fill(pad[:, None], torch.finfo(s.dtype).min)\nreturn s.softmax(-1) @ v",
         "0", "pad"),
        (SCORES + "if pad is not None:\n    s = s.masked_fill(pad[:, None], -math.inf)\n    pad = None\n"
         "return s.softmax(-1) @ v", "0", "pad"),
        ("s = q @ k.mT * (1 - pad.float()[:, None])\nreturn s.softmax(-1) @ v", "0", "pad"),
        (SCORES + "return (s * self.t).softmax(-1) @ v", "self.t = length / torch.ones(1)", ""),
    ],
)  # fmt: skip
def test_what_may_be_no_mask_and_no_number_stays(tmp_path: Path, body: str, made: str, given: str) -> None:
    assert not patched(tmp_path, body, made=made, given=given).files


def test_a_mask_that_is_another_one_in_the_next_round_is_no_triangle(tmp_path: Path) -> None:
    body = (
        "m = torch.ones(T, T).tril()\nfor _ in range(2):\n    s = q @ k.mT\n"
        "    s = s.masked_fill(m == 0, -math.inf)\n    y = s.softmax(-1) @ v\n    m = m * 0 + 1\nreturn y"
    )
    patch = patched(tmp_path, body)
    after = tmp_path / "after.py"
    after.write_bytes(patch.files[tmp_path / "train.py"][1])
    require_same(tmp_path / "train.py", after)


@pytest.mark.parametrize(
    "again",
    [
        "torch.autograd.grad(y, x, None, True, True)",
        "y.backward(None, True, True)",
        "y.backward(create_graph=again)",
        "from torch.func import jvp as j",
        "import functorch as ft",
        "torch.autograd.functional.hvp(f, x)",
        "g = torch.func.grad(f)",
        "torch.nn.modules.module.register_module_forward_hook(f)",
        "model.act.register_full_backward_hook(f)",
    ],
)
def test_hooks_and_gradients_of_gradients_leave_it(tmp_path: Path, again: str) -> None:
    assert patched(tmp_path, SCORES + "return s.softmax(-1) @ v").files
    text = (tmp_path / "train.py").read_text() + f"\ndef more(f, x, y, model, again):\n    {again}\n"
    (tmp_path / "train.py").write_text(text)
    assert not patch_of(tmp_path, {"apply": ["fused-attention"]}).files


@pytest.mark.parametrize(
    "body",
    [
        "s = self.a(x) @ k.mT\nz = self.a(v)\nreturn s.softmax(-1) @ z",
        "s = (q @ k.mT).masked_fill(self.a(q)[:, :, :1] > 0, -math.inf)\nreturn s.softmax(-1) @ self.a(v)",
        "w = torch.einsum('bqd,bkd->bkq', self.a(q), self.a(k)).softmax(-1)\nreturn w @ v",
    ],
)
def test_what_may_draw_keeps_its_order(tmp_path: Path, body: str) -> None:
    made = "self.a = nn.Sequential(nn.Linear(width, width), nn.Dropout(0.3))"
    patch = patched(tmp_path, body, made=made)
    assert not patch.files
    assert "order" in patch.left[0].why


def test_weights_that_locals_gives_are_read(tmp_path: Path) -> None:
    body = SCORES + "w = s.softmax(-1)\ny = w @ v\nreturn y * locals()['w'].mean()"
    assert not patched(tmp_path, body).files


def test_a_softmax_that_is_replaced_is_none(tmp_path: Path) -> None:
    body, made = SCORES + "return self.act(s) @ v", "self.act = nn.Softmax(dim=-1)"
    assert patched(tmp_path, body, made=made).files
    text = (tmp_path / "train.py").read_text() + "\nmodel = Attention()\nmodel.act = nn.Sigmoid()\n"
    (tmp_path / "train.py").write_text(text)
    assert not patch_of(tmp_path, {"apply": ["fused-attention"]}).files


def test_a_module_whose_rate_is_set_later_may_drop(tmp_path: Path) -> None:
    body, made = SCORES + "return self.drop(s.softmax(-1)) @ v", "self.drop = nn.Dropout(0.0)"
    assert patched(tmp_path, body, made=made).files
    assert not patched(tmp_path, body, made=made + "\n        self.drop.p = 0.1").files


def test_a_test_of_two_keeps_its_parentheses(tmp_path: Path) -> None:
    body = SCORES + "w = s.softmax(-1)\nif T > 2 or C > 9:\n    w = self.drop(w)\nreturn w @ v"
    patch = patched(tmp_path, body, made="self.drop = nn.Dropout(0.5)", apply=["fused-attention-dropout"])
    assert b"if (T > 2 or C > 9) and self.drop.training" in patch.files[tmp_path / "train.py"][1]


def test_a_function_that_is_handed_in_is_no_dropout(tmp_path: Path) -> None:
    text = (GOLDEN / "fused_attention_dropout" / "before" / "train.py").read_text()
    for drop, written in (("self.d", True), ("lambda a: F.dropout(a, 0.1)", False), ("None", True)):
        (tmp_path / "train.py").write_text(text.replace("dropout=self.d)", f"dropout={drop})"))
        assert bool(patch_of(tmp_path, {"apply": ["fused-attention-dropout"]}).files) == written


def test_the_attention_that_is_asked_for_is_the_one_that_must_be_written(tmp_path: Path) -> None:
    """What else can be written stays where the one that takes the time cannot."""
    for name in ("fused_attention", "fused_attention_refused_entropy"):
        shutil.copy(GOLDEN / name / "before" / "train.py", tmp_path / f"{name}.py")
    facts: dict[str, Any] = {"apply": ["fused-attention"]}
    patch = patch_of(tmp_path, facts)
    assert [path.name for path in patch.files] == ["fused_attention.py"]
    assert "fused_attention_refused_entropy.py:" in patch.remarks[0]
    asked = {"fused-attention": "fused_attention_refused_entropy.py: y = att @ v"}
    patch = patch_of(tmp_path, {**facts, "where": asked})
    assert not patch.files
    assert "read here too" in patch.left[0].why


def test_the_rule_and_the_remedy_know_each_other(tmp_path: Path) -> None:
    facts = json.loads((GOLDEN / "fused_attention" / "facts.json").read_text())
    shutil.copytree(GOLDEN / "fused_attention" / "before", tmp_path, dirs_exist_ok=True)
    scene = scene_of(tmp_path, {**facts, "where": {"fused-attention": "train.py: att = (q @"}})
    assert scene.where["fused-attention"] == Place(file=str(tmp_path / "train.py"), line=27)
