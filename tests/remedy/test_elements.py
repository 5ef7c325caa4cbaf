"""``numpy-view``: what goes through an array is the same, byte for byte; what cannot be told is torch's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests.remedy.golden import patch_of

from hotloop.remedy.source.patch import Patch

HEAD = """\
import math
import random

import torch
from torch import Tensor

"""

#: Functions that draw; the line with the mark is the one a finding names.
SAME = {
    "a heatmap": """
        def make():
            heat = torch.zeros(2, 3, 16, 16)
            for b in range(2):
                for k in range(3):
                    cx, cy = random.uniform(0, 16), random.uniform(0, 16)
                    for y in range(16):
                        for x in range(16):
                            heat[b, k, y, x] = math.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 4.5)  # hot
            return heat
        """,
    "padding with ones": """
        def make():
            rows = [[random.randrange(500) for _ in range(random.randrange(1, 20))] for _ in range(8)]
            padded = torch.full((8, 20), -100, dtype=torch.long)
            mask = torch.zeros(8, 20, dtype=torch.bool)
            for i, row in enumerate(rows):
                for j, token in enumerate(row):
                    padded[i, j] = token  # hot
                    mask[i, j] = True
            return padded, mask
        """,
    "tensors as tokens": """
        def make():
            rows = [torch.randint(0, 500, (random.randrange(1, 20),)) for _ in range(8)]
            padded = torch.zeros((8, 20), dtype=torch.int64)
            for i, row in enumerate(rows):
                for j, token in enumerate(row):
                    padded[i, j] = token  # hot
            return padded
        """,
    "floats to integers": """
        def make():
            cells = torch.zeros(4, 4, dtype=torch.int32)
            for i in range(4):
                for j in range(4):
                    cells[i, -j] = 100 * (random.random() - 0.5)  # hot
            return cells
        """,
    "negative indices and counts": """
        def make():
            seen = torch.zeros(5, 5)
            for _ in range(100):
                i, j = random.randrange(5), random.randrange(5)
                seen[i, j - 5] += 1  # hot
                seen[-1 - i, j] -= 1.0
            return seen
        """,
    "an adjacency of edges": """
        def make():
            edges = torch.tensor([[random.randrange(9), random.randrange(9)] for _ in range(30)])
            adj, degree = torch.zeros(9, 9), torch.zeros(9, dtype=torch.long)
            for a, b in edges.tolist():
                adj[a, b] = adj[b, a] = 1.0  # hot
                degree[a] += 1
            return adj, degree
        """,
    "nan, infinity and small numbers": """
        def make():
            out = torch.empty(6, 4)
            for i in range(6):
                for j in range(4):
                    text = random.choice(["nan", "inf", "-inf", "-0.0", "1e-45", "3.4028234e38", "0.1"])
                    out[i, j] = float(text)  # hot
            return out
        """,
    "rows written by torch beside elements": """
        def make():
            out = torch.zeros(6, 4)
            for i in range(6):
                out[i] = torch.tensor([random.random() for _ in range(4)])
                out[i, i % 4] = random.gauss(0.0, 1.0)  # hot
                if out[i, 0] > 0.5:
                    out[i, 1:3] = 7.0
            return out * 2
        """,
    "read back": """
        def make():
            cost = torch.rand(7, 7, generator=torch.Generator().manual_seed(random.randrange(99)))
            best = torch.zeros(8, 8)
            for i in range(7):
                for j in range(7):
                    least = min(best[i, j].item(), float(best[i, j + 1]))
                    best[i + 1, j + 1] = least + float(cost[i, j])  # hot
            return best
        """,
    "a tensor that is given": """
        def make():
            g = torch.Generator().manual_seed(random.randrange(99))
            return inner(torch.rand(4, 2, generator=g), torch.randint(0, 9, (4, 2), generator=g))

        def inner(points: torch.Tensor, cells: Tensor):
            out = []
            for k in range(points.shape[0]):
                x, y = points[k, 0].item(), float(points[k, 1])  # hot
                out.append(x * int(cells[k, 0]) + y * cells[k, 1].item())
            return torch.tensor(out, dtype=torch.float64)
        """,
    "made anew in the loop": """
        def make():
            whole = []
            for _ in range(3):
                one = torch.LongTensor(3, 4).fill_(-1)
                for i in range(3):
                    one[i, random.randrange(4)] = i  # hot
                whole.append(one)
            return torch.stack(whole).float()
        """,
    "put on the device of another": """
        def make():
            return inner(torch.zeros(2))

        def inner(like):
            out = torch.zeros(4, 4, device=like.device)
            for i in range(4):
                for j in range(4):
                    if i != j:
                        out[i, j] = random.random()  # hot
            return out + 1
        """,
    "doubles": """
        def make():
            out = torch.zeros(4, 4, dtype=torch.double)
            for i in range(4):
                for j in range(4):
                    out[i, j] = random.randrange(2**62)  # hot
                    out[i, j] += 3
            return out
        """,
    "bytes of conditions": """
        def make():
            out = torch.zeros(4, 4, dtype=torch.uint8)
            for i in range(4):
                for j in range(4):
                    out[i, j] = random.random() < 0.5  # hot
                    out[i, 0] = 255
            return out
        """,
    "one index behind another": """
        def make():
            kernel = torch.empty(5, 5, dtype=torch.float64)
            for i in range(5):
                for j in range(5):
                    kernel[i][j] = math.exp(-(i * i + j * j) / 3)  # hot
            return kernel / kernel.sum()
        """,
    "a sum that goes on": """
        def make():
            rewards = torch.rand(9)
            out, run = torch.zeros(len(rewards)), 0.0
            for t in reversed(range(len(rewards))):
                run = rewards[t].item() + 0.99 * run
                out[t] = run  # hot
            return out
        """,
    "what autograd saw": """
        def make():
            w, total = torch.ones(3, requires_grad=True), 0
            rows = torch.zeros(4, 3)
            for k in range(2):
                for i in range(4):
                    rows[i, i % 3] = 1.5 + k  # hot
                total = total + (rows.clone() * w).sum()
            total.backward()
            return w.grad
        """,
    "a loop over a table": """
        def make():
            edges, adj = torch.randint(0, 9, (30, 2)), torch.zeros(9, 9)
            for a, b in edges.tolist():
                adj[a, b] += 1  # hot
            return adj
        """,
    "a while loop at a fixed column": """
        def make():
            out = torch.ones(9).long()
            i = 0
            while i < 9:
                out[i] = random.randrange(-(2**63), 2**63)  # hot
                i += 1
            return out
        """,
}  # fmt: skip
RUN = """
import hashlib
for seed in range(5):
    random.seed(seed)
    torch.manual_seed(seed)
    made = make()
    for one in made if isinstance(made, tuple) else (made,):
        data = one.detach().numpy().tobytes()
        print(seed, one.dtype, one.device, one.shape, one.stride(), hashlib.sha256(data).hexdigest())
    print(random.random())
"""


def patched(folder: Path, text: str, **facts: Any) -> Patch:
    (folder / "train.py").write_text(text)
    return patch_of(folder, {"apply": ["numpy-view"], "where": {"numpy-view": "train.py: # hot"}, **facts})


@pytest.mark.parametrize("shape", SAME)
def test_what_is_written_through_an_array_is_the_same_byte_for_byte(shape: str, tmp_path: Path) -> None:
    text = HEAD + dedent(SAME[shape])
    patch = patched(tmp_path, text)
    assert not patch.left, [one.why for one in patch.left]
    ((_, new),) = patch.files.values()
    hot = next(line for line in new.decode().splitlines() if "# hot" in line)
    assert "_np[" in hot
    both = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", one + RUN], capture_output=True, text=True, check=True
        )
        for one in (text, new.decode())
    ]
    assert both[0].stdout == both[1].stdout
    (tmp_path / "train.py").write_bytes(new)
    assert not patch_of(tmp_path, {"apply": ["numpy-view"], "where": {"numpy-view": "train.py: # hot"}}).files


#: Bodies of loops over i and j in ``make(given, names)``, whose ``out`` is a table of floats made there, and
#: what is said.
REFUSED = {
    "out[i, j] = given": "given is a plain number cannot be told",
    "out[i, j] = torch.exp(given[i])": "is a plain number cannot be told",
    "out[i, j] = names[i]": "is a plain number cannot be told",
    "out[i, j] = i * 2**60": "large integers round otherwise",
    "out[i, j] = int(given)": "large integers round otherwise",
    "out[i, j] += 0.1": "may differ",
    "out[i, j] *= 2": "may differ",
    "out[i, :j] = 1.0": "may differ",
    "out[..., j] = 1.0": "may differ",
    "out[None, i] = 1.0": "may differ",
    "out[[i, j]] = 1.0": "may differ",
    "out[names] = 1.0": "may differ",
    "out[names[i]][j] = 1.0": "may differ",
    "out[i, names[j].byte()] = 1.0": "may differ",
    "out[i, j] = 1.0; out[i] = given": "given may carry a gradient",
    "out[i, j] = 1.0; out[i, :2].copy_(given)": "a part of out is handed on",
    "out[i, j] = 1.0; out.add_(given)": "what out becomes",
    "out[i, j] = 1.0; out = out * 2": "what out becomes",
    "out[i, j] = 1.0; out.resize_(9, 9)": "may be resized",
    "out[i, j] = 1.0; torch.cat([given], out=given)": "may be resized",
    "out[i, j] = 1.0; given.untyped_storage().resize_(0)": "may be resized",
    "out[i, j] = 1.0; out.fill_(given)": "what out becomes",
    "out[i, j] = 1.0; draw(out)": "what out becomes",
    "out[i, j] = 1.0; draw(out[i])": "a part of out is handed on",
    "out[i, j] = 1.0; out.share_memory_()": "what out becomes",
    "out[i, j] = 1.0; out.requires_grad_()": "what out becomes",
    "out[i, j] = 1.0; other = out": "what out becomes",
    "out[i, j] = 1.0; names.append(out)": "what out becomes",
    "out[i, j] = 1.0; del out": "what out becomes",
    "out[i, j] = 1.0; yield out": "what out becomes",
    "out[i, j] = 1.0; names.sort(key=lambda x: out[x])": "another function reads out",
    "out[i, j] = 1.0; out.data = given": "what out becomes",
}  # fmt: skip
LOOP = """
def make(given, names):
    out = torch.zeros(4, 4)
    for i in range(4):
        for j in range(4):
            BODY  # hot
    return out
"""


#: What a number ``s`` becomes beside ``s = 1.0``: it is no plain number for certain any more.
BOUND = [
    "s = given",
    "s += given",
    "s = s * 0.5 + given",
    "s, other = given",
    "for s in given: pass",
    "with given as s: pass",
    "if (s := given): pass",
    "match given:\n        case [s]: pass",
    "match given:\n        case {1: 2, **s}: pass",
    "def s(): pass",
    "import given as s",
    "first, *s = given",
    "(first, s), last = given",
    "for i, s in enumerate(given): pass",
    "def inner():\n        nonlocal s\n        s = given",
]


@pytest.mark.parametrize("bound", BOUND)
def test_a_name_is_a_number_where_all_that_it_is_given_are(bound: str, tmp_path: Path) -> None:
    text = LOOP.replace("    out =", f"    s = 1.0\n    {bound}\n    out =")
    patch = patched(tmp_path, HEAD + text.replace("BODY", "out[i, j] = s"))
    assert not patch.files
    assert "s is a plain number cannot be told" in patch.left[0].why


def test_a_byte_or_a_bool_in_a_tensor_is_a_mask_for_torch(tmp_path: Path) -> None:
    assert not patched(tmp_path, HEAD + LOOP.replace("BODY", "out[i, names[j]] = 1.0")).files
    assert patched(tmp_path, HEAD + LOOP.replace("BODY", "out[i, names[j].long()] = 1.0")).files


@pytest.mark.parametrize("body", REFUSED)
def test_what_torch_and_numpy_may_do_differently_is_left_to_torch(body: str, tmp_path: Path) -> None:
    patch = patched(tmp_path, HEAD + LOOP.replace("BODY", body))
    assert not patch.files
    assert REFUSED[body] in patch.left[0].why
    assert patch.left[0].write


MADE = {
    "torch.zeros(4, 4, dtype=torch.bfloat16)": "whose type and place",
    "torch.zeros(4, 4, dtype=torch.float16)": "whose type and place",
    "torch.zeros(4, 4, dtype=given.dtype)": "whose type and place",
    "torch.zeros(4, 4, requires_grad=True)": "whose type and place",
    "torch.zeros(4, 4, **given)": "whose type and place",
    "torch.zeros_like(given)": "whose type and place",
    "given.new_zeros(4, 4)": "whose type and place",
    "given": "whose type and place",
    "torch.zeros(4, 4).to(given)": "whose type and place",
    "torch.nn.Parameter(torch.zeros(4, 4))": "whose type and place",
    "torch.zeros(4, 4, device=place())": "would be computed again",
    "torch.rand(4, 4, device=given)": "drawn on the device",
}


@pytest.mark.parametrize("made", MADE)
def test_a_tensor_whose_type_or_place_cannot_be_told_is_left_to_torch(made: str, tmp_path: Path) -> None:
    text = LOOP.replace("torch.zeros(4, 4)", made).replace("BODY", "out[i, j] = 1.0")
    patch = patched(tmp_path, HEAD + text)
    assert not patch.files
    assert MADE[made] in patch.left[0].why


AROUND = {
    "torch.set_default_device('cuda')": "set_default_device",
    "torch.set_default_dtype(torch.bfloat16)": "set_default_dtype",
    "with torch.device('cuda'):\n    make(1, 2)": "may be made on a device",
    "where = torch.device('meta')\nwith where:\n    make(1, 2)": "may be made on a device",
    "make = torch.compile(make)": "compiled",
    "class Net:\n    def forward(self):\n        return make(1, 2)\n\n\nmodel.compile()": "compiled",
    "def step():\n    loss()\n\n\ndef loss():\n    make(1, 2)\n\n\nf = torch.compile(step)": "compiled",
    "@torch.compile(dynamic=True)\ndef step():\n    return make(1, 2)": "compiled",
    "step = torch.jit.script(make)": "compiled",
    "def other():\n    global out\n    out = 3": "another function",
}


@pytest.mark.parametrize("around", AROUND)
def test_what_stands_elsewhere_may_say_what_tensors_are(around: str, tmp_path: Path) -> None:
    patch = patched(tmp_path, HEAD + LOOP.replace("BODY", "out[i, j] = 1.0") + around + "\n")
    assert not patch.files
    assert AROUND[around] in patch.left[0].why


def test_what_is_compiled_elsewhere_does_not_matter(tmp_path: Path) -> None:
    around = "class Net:\n    def forward(self, x):\n        return x\n\n\nnet = torch.compile(Net())\n"
    assert patched(tmp_path, HEAD + LOOP.replace("BODY", "out[i, j] = 1.0") + around).files


def test_errors_that_are_caught_stay_torchs(tmp_path: Path) -> None:
    body = "try:\n                out[i, j] = 1.0\n            except RuntimeError: pass"
    patch = patched(tmp_path, HEAD + LOOP.replace("BODY", body))
    assert not patch.files
    assert "numpy raises other errors" in patch.left[0].why


@pytest.mark.parametrize(("dtype", "taken"), [("int64", True), ("int32", False), ("bool", False)])
def test_values_that_may_not_fit_are_left_to_torch(dtype: str, taken: bool, tmp_path: Path) -> None:
    text = LOOP.replace("torch.zeros(4, 4)", f"torch.zeros(4, 4, dtype=torch.{dtype})")
    patch = patched(tmp_path, HEAD + text.replace("BODY", "out[i, j] = names[j]"))
    assert bool(patch.files) is taken


READS = """
def make(given, names):
    total = 0.0
    for i in range(4):
        for j in range(4):
            total += given[i, j].item()  # hot
    return total
"""


@pytest.mark.parametrize(
    ("before", "after", "changes", "taken"),
    [
        ("given, names", "given: torch.Tensor, names", False, True),
        ("total = 0.0", "total, given = 0.0, torch.rand(4, 4)", False, True),
        ("total = 0.0", "total = 0.0 * given.numel()", False, True),
        ("total = 0.0", "total = 0.0", False, False),
        ("given, names", "given: list, names", False, False),
        ("total = 0.0", "total, given = 0.0, names.given; given.size(0)", False, False),
        ("given, names", "names, given: torch.Tensor = None", False, False),
        ("    total", "    if given is not None: given = given.float()\n    total", False, False),
        ("    total", "    if torch.is_tensor(given): given = given.float()\n    total", False, False),
        ("  # hot", "  # hot in bfloat16", False, False),
        ("total +=", "given = given.long(); total +=", True, False),
        ("total +=", "given[i, j] = 0; total +=", True, False),
        ("total +=", "given.mul_(2); total +=", True, False),
        ("total +=", "names(given); total +=", True, False),
        ("    total = 0.0\n", "    total = 0.0\n    view = given.view(-1)\n    view[0] = 1\n", True, False),
    ],
)
def test_elements_are_read_of_what_is_a_tensor_and_stays_one(
    before: str, after: str, changes: bool, taken: bool, tmp_path: Path
) -> None:
    text = READS.replace(before, after, 1)
    if changes:
        text = text.replace("given, names", "given: torch.Tensor, names")
    patch = patched(tmp_path, HEAD + text)
    assert bool(patch.files) is taken, [one.why for one in patch.left]


@pytest.mark.parametrize(("dtype", "taken"), [("int64", True), ("bfloat16", False)])
def test_batches_say_what_is_given_to_a_function(dtype: str, taken: bool, tmp_path: Path) -> None:
    text = (
        HEAD
        + READS
        + dedent("""
        def main(loader, device):
            for step, (images, points) in enumerate(loader):
                points = points.to(device)
                make(points, 2)
        """)
    )
    field = {"path": "1", "dtype": dtype, "bytes": 100}
    patch = patched(tmp_path, text, batch=[{"fields": [field]}], loop="train.py: for step, (images")
    assert bool(patch.files) is taken


def test_what_is_left_beside_what_is_written_is_told(tmp_path: Path) -> None:
    text = LOOP.replace("    out =", "    heat = torch.zeros(4, 4)\n    out =")
    patch = patched(tmp_path, HEAD + text.replace("BODY", "out[i, j] = 1.0; heat[i, j] = given"))
    assert patch.files
    assert "train.py:13 is left as it is" in patch.remarks[0]
