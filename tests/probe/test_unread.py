"""Fields of a batch that nobody reads are named; where that cannot be told nothing is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.running import run_observed, succeeded

SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset

class Fields(Dataset):
    def __len__(self):
        return 480
    def __getitem__(self, i):
        return {"x": torch.full((4,), float(i)), "y": float(i), "mask": torch.zeros(8), "rare": i}

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
if "compile" in sys.argv:  # offered, and not asked for
    net = torch.compile(net)
kinds = set()
for step, batch in enumerate(DataLoader(Fields(), batch_size=8)):
    kinds.add(type(batch).__name__)
    if sys.argv[1] == "items":
        batch = {key: value for key, value in batch.items()}
    if sys.argv[1] == "rare" and step == 50:
        print(len(batch["rare"]))
    if sys.argv[1] == "exact" and not type(batch) is dict:
        raise TypeError("not a dict")
    loss = (net(batch["x"]).squeeze(1) - batch["y"].float()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(repr(net.weight.sum().item()))
"""


@pytest.mark.parametrize(
    ("use", "unread"), [("keys", ["mask", "rare"]), ("rare", ["mask"]), ("items", None), ("exact", None)]
)
def test_unread_fields(tmp_path: Path, use: str, unread: list[str] | None) -> None:
    # The word "type(batch) is" in the script makes it one that looks at exact types; only `exact` keeps it.
    script = SCRIPT if use == "exact" else SCRIPT.replace("not type(batch) is dict", "False")
    observed = succeeded(run_observed(script, use, folder=tmp_path))
    notes = observed.notes.get("unread", [])
    assert [note["unread"] for note in notes] == ([unread] if unread else [])
    assert "disabled" not in observed.notes
