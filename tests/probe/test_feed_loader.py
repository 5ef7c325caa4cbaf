"""hotloop's own Loader is seen like torch's: its waits, its workers, the samples they read, their end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.running import INJECT, SRC, run_observed

SCRIPT = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset
from hotloop.feed import Loader

class Plain(Dataset):
    def __len__(self):
        return 22
    def __getitem__(self, i):
        if i == 5:
            time.sleep(0.02)
        return torch.full((4,), float(i))

class Gathered(Plain):
    _serves_loader = True
    def gather(self, indices, out=None):
        return torch.tensor([[float(i)] * 4 for i in indices])

if __name__ == "__main__":
    kind, workers, persistent = sys.argv[1], int(sys.argv[2]), bool(int(sys.argv[3]))
    dataset = Gathered() if kind == "gather" else Plain()
    loader = (DataLoader if kind == "torch" else Loader)(
        dataset, batch_size=4, num_workers=workers, persistent_workers=persistent)
    for epoch in range(2):
        print([batch.sum().item() for batch in loader])
"""


@pytest.mark.parametrize(("kind", "workers", "persistent"), [("plain", 2, False), ("gather", 1, True)])
def test_what_is_known_of_torchs_loader_is_known_of_ours(
    tmp_path: Path, kind: str, workers: int, persistent: bool
) -> None:
    env = {"PYTHONPATH": os.pathsep.join([str(INJECT), str(SRC)])}
    arguments = (str(workers), str(int(persistent)))
    found = run_observed(SCRIPT, kind, *arguments, folder=tmp_path / "feed", env=env)
    torchs = run_observed(SCRIPT, "torch", *arguments, folder=tmp_path / "torch", env=env)
    assert found.returncode == torchs.returncode == 0, found.stderr
    assert found.stdout == torchs.stdout
    for run in (found, torchs):
        assert not any("disabled" in notes for _, notes in run.processes.values())

    rows, notes = found.with_role("main")[0]
    their_rows, their_notes = torchs.with_role("main")[0]
    assert [note["class"] for note in notes["loader"]] == ["hotloop.feed.loader.Loader"]
    lines = {note["id"]: note["line"] for note in notes["site"]}
    their_lines = {note["id"]: note["line"] for note in their_notes["site"]}
    for row_kind in ("iter", "fetch", "shutdown"):
        seen = [(lines[row.site], row.flags) for row in rows if row.kind == row_kind]
        assert seen == [(their_lines[row.site], row.flags) for row in their_rows if row.kind == row_kind]
        assert seen or row_kind == "shutdown"
    iterators, theirs = notes["iterator"], their_notes["iterator"]
    assert [len(note["workers"]) for note in iterators] == [len(note["workers"]) for note in theirs]

    worked = found.with_role("worker")
    assert len(worked) == len(torchs.with_role("worker"))
    makers = worked or [(found.rows, found.notes)]
    makes = [row for rows, _ in makers for row in rows if row.kind == "make"]
    assert {row.extra for row in makes} == {4, 2}
    if workers:
        assert len(makes) == 12
    if kind == "plain":
        slowest = [row for rows, _ in makers for row in rows if row.kind == "slowest"]
        assert max(slowest, key=lambda row: row.dur).value == 5
