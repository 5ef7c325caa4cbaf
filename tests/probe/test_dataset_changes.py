"""What changes in a dataset from an iterator to the next: workers that stay would not see it."""

from __future__ import annotations

from pathlib import Path

from tests.running import run_observed

SCRIPT = """
    import torch
    from torch.utils.data import DataLoader, Dataset, Subset

    class Data(Dataset):
        def __init__(self):
            self.x, self.crop, self.file = torch.rand(8, 4), 1, None
        def __len__(self):
            return 8
        def __getitem__(self, i):
            self.file = self.file or object()
            return self.x[i]

    data, still = Data(), Data()
    for epoch in range(3):
        data.crop += 1
        for each in (data, still):
            for _ in DataLoader(Subset(each, range(6)), 2):
                pass
"""


def test_what_the_script_changes_is_noted_and_what_is_opened_when_needed_is_not(tmp_path: Path) -> None:
    process = run_observed(SCRIPT, folder=tmp_path)
    assert {name for note in process.notes["dataset_changed"] for name in note["names"]} == {"crop"}
