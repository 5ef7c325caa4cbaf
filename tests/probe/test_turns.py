"""Who draws the order of samples, and whether others draw from the same generator meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.running import run_observed

SCRIPT = """
    import random
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Sampler, TensorDataset

    class Classes(Sampler):
        def __init__(self, draw):
            self.draw = draw
        def __len__(self):
            return 6
        def __iter__(self):
            for _ in range(6):
                yield [int(self.draw()) for _ in range(2)]

    data = TensorDataset(torch.rand(8, 4))
    own = np.random.default_rng(0)
    by_numpy = lambda: np.random.randint(8)
    by_python = lambda: random.randrange(8)
    by_its_own = lambda: own.integers(8)
"""


@pytest.mark.parametrize(
    ("loop", "turns"),
    [
        ("for _ in DataLoader(data, batch_sampler=Classes(by_numpy)): np.random.rand()", ["numpy.random"]),
        (
            "for _ in DataLoader(data, batch_sampler=Classes(by_numpy), num_workers=1): np.random.beta(1, 1)",
            ["numpy.random"],
        ),
        ("for _ in DataLoader(data, batch_sampler=Classes(by_python)): np.random.beta(1, 1)", []),
        ("for _ in DataLoader(data, batch_sampler=Classes(by_its_own)): np.random.beta(1, 1)", []),
        ("for _ in DataLoader(data, 2, shuffle=True): torch.rand(1)", []),
        ("batches = iter(DataLoader(data, 2, shuffle=True)); torch.rand(1); next(batches)", ["torch"]),
        (
            "loader = DataLoader(data, batch_sampler=Classes(by_python))\n"
            "    for _ in range(2):\n"
            "        for step, _ in enumerate(loader):\n"
            "            if step == 2: break",
            ["random"],
        ),
    ],
)
def test_an_order_drawn_by_turns_with_others_is_noted(tmp_path: Path, loop: str, turns: list[str]) -> None:
    observed = run_observed(f"{SCRIPT}\n    {loop}\n", folder=tmp_path)
    found = [note for _, notes in observed.processes.values() for note in notes.get("turns", ())]
    assert [note["generators"] for note in found] == ([turns] if turns else [])
