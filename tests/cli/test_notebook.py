"""``hotloop.observe()`` and ``%%hotloop`` in a real kernel that has trained before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.running import SRC

SETUP = """
import time, torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 160
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.randn(8), torch.tensor([1.0])
def train(loader):
    for inputs, targets in loader:
        loss = ((model(inputs) - targets) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
before = torch.utils.data.DataLoader(Data(), batch_size=8)
train(before)
"""
TWICE = """
import hotloop
patched = torch.utils.data.DataLoader, torch.Tensor, torch.nn.Module, torch.optim.Optimizer
plain = [dict(vars(one)) for one in patched]
with hotloop.observe("first") as first, hotloop.observe() as inner:
    train(before)
assert inner.folder == first.folder and inner.run is None
assert [dict(vars(one)) for one in patched] == plain
try:
    with hotloop.observe("second") as second:
        train(torch.utils.data.DataLoader(Data(), batch_size=8, num_workers=2))
        1 / 0
except ZeroDivisionError:
    train(before)
for run in (first.run, second.run):
    print(run.bottleneck, len(run.steps["start_s"]), run.report["exit_code"], *run.report["warnings"])
print(first.run.findings[0].id, first.run)
"""


def test_cells_and_blocks_are_observed_in_the_running_kernel(tmp_path: Path) -> None:
    nbclient, v4 = pytest.importorskip("nbclient"), pytest.importorskip("nbformat").v4
    pytest.importorskip("ipykernel")
    cells = [f"import sys; sys.path.insert(0, {str(SRC)!r})", SETUP, "%load_ext hotloop"]
    cells += ["%%hotloop cell\ntrain(before)\nmade = 1", "print(made)", TWICE]
    book = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(book, resources={"metadata": {"path": str(tmp_path)}}, timeout=120).execute()
    shown, after, printed = (book.cells[i].outputs for i in (3, 4, 5))
    (page,) = [one["data"]["text/html"] for one in shown if "data" in one]
    assert page.startswith("<iframe") and re.search("Input-bound: the training loop spends", page)
    assert "time.sleep(0.004)" in page, "the text of a cell is recorded"
    assert after[0]["text"] == "1\n", "the cell ran in the kernel"

    words = "".join(one["text"] for one in printed if one["name"] == "stdout")
    first, second, report = words.split("\n", 2)
    assert first == "input 20 0" and second.endswith(" 20 1")
    assert report.startswith("input/") and "a block of a running process" in report
    assert "hotloop tune" not in report
    assert (tmp_path / "second" / "report.html").is_file() and not (tmp_path / "first" / "raw").exists()
