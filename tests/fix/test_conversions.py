"""``batched-convert``: what a rewritten function makes is what it made, to the last bit, errors included."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.fix.golden import patch_of

REWRITTEN = {
    "of lists": "torch.stack([torch.tensor(row, dtype=torch.float32) for row in [[1, 2], [3, 4]]])",
    "of arrays": "torch.stack([torch.tensor(row) for row in np.random.rand(4, 3)])",
    "computed": "torch.stack([torch.tensor([x * 2 for x in row]) for row in [(1, 2), (3, 4)] if row[0]])",
    "by class": "torch.stack([torch.FloatTensor(row) for row in [np.ones(3), [1, 2, 3]]], dim=0)",
    "ragged": "torch.stack([torch.tensor(row) for row in [[1], [2, 3]]])",
    "of nothing": "torch.stack([torch.tensor(row) for row in []])",
    "of several kinds": "torch.stack([torch.tensor(row) for row in [[1, 2], [0.5, 2]]])",
}
LEFT = {
    "another dimension": "torch.stack([torch.tensor(row) for row in [[1, 2]]], dim=1)",
    "computed with": "torch.stack([torch.tensor(row) / 255 for row in [[1, 2]]])",
    "joined": "torch.cat([torch.tensor(row) for row in [[1, 2]]])",
    "two loops": "torch.stack([torch.tensor(x) for row in [[1, 2]] for x in row])",
    "gradients": "torch.stack([torch.tensor(row, requires_grad=True) for row in [[1.0, 2.0]]])",
    "a type for each": "torch.stack([torch.tensor(row, dtype=kind) for row, kind in [([1], torch.int64)]])",
}

HEAD = "import collections, random\nimport numpy as np\nimport torch\n"
FACTS = {"apply": ["batched-convert"], "where": {"batched-convert": "train.py: # here"}}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("script", REWRITTEN.values(), ids=REWRITTEN)
def test_what_is_rewritten_gives_the_same(script: str, tmp_path: Path) -> None:
    text, new = _patched(script, tmp_path)
    assert new != text
    assert "hotloop.feed" in new
    assert _made(new) == _made(text)


@pytest.mark.parametrize("script", LEFT.values(), ids=LEFT)
def test_what_may_give_another_thing_is_left(script: str, tmp_path: Path) -> None:
    text, new = _patched(script, tmp_path)
    assert new == text


def _patched(script: str, folder: Path) -> tuple[str, str]:
    text = f"{HEAD}\n\ndef make():\n    return {script}  # here\n"
    path = folder / "train.py"
    path.write_text(text)
    patch = patch_of(folder, FACTS)
    return text, patch.files[path][1].decode() if path in patch.files else text


def _made(text: str) -> Any:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": "train"}
    try:
        exec(compile(text, "train.py", "exec"), names)
        return _told(names["make"]())
    except (RuntimeError, ValueError, TypeError, KeyError) as error:
        return type(error), str(error)


def _told(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        flat = value.detach().reshape(-1).clone()
        held = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        return value.dtype, value.shape, value.stride(), value.requires_grad, held
    if isinstance(value, list | tuple):
        return [_told(one) for one in value]
    return {key: _told(one) for key, one in value.items()} if isinstance(value, dict) else value
