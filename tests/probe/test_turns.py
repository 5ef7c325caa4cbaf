"""Who draws the order of samples, and whether others draw from the same generator meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.running import run_observed

from hotloop.hooks.registry import Hooks
from hotloop.probe.turns import Order, Watched

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


LEFT = """
    import gc, weakref
    import torch
    from torch.utils.data import DataLoader, Dataset, Sampler

    events = []

    class Data(Dataset):
        def __init__(self):
            self.x = torch.rand(8, 4)
        def __len__(self):
            return 8
        def __getitem__(self, i):
            return self.x[i]

    class Closing(Sampler):
        def __init__(self, data):
            self.data = data
        def __len__(self):
            return 8
        def __iter__(self):
            try:
                yield from range(8)
            finally:
                events.append("closed")

    dataset = Data()
    gone = weakref.ref(dataset)
    loader = DataLoader(dataset, 2, sampler=Closing(dataset))
    for epoch in range(3):
        for batch in loader:
            break
        events.append(f"epoch {epoch}")
    del loader, dataset
    gc.collect()
    print(*events, gone() is None, sep=", ")
"""


def test_the_sampler_of_a_pass_that_is_left_goes_with_it(tmp_path: Path) -> None:
    observed = run_observed(LEFT, folder=tmp_path)
    left = ", ".join(f"closed, epoch {epoch}" for epoch in range(3))
    assert observed.stdout.strip() == f"{left}, True"


def test_a_fault_in_watching_does_not_reach_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    hooks = Hooks(lambda name, error: told.append(name))
    states: list[dict[str, Any]] = [{}]
    monkeypatch.setattr("hotloop.probe.turns.global_states", lambda: states.pop())
    order = Order(own=True, tell=lambda generators: None)
    watched = Watched(iter([1, 2, 3]), order, lambda look: hooks.guard("observers.turns", look))
    assert list(watched) == [1, 2, 3]
    assert told == ["observers.turns"]
