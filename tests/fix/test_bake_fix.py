"""``hotloop fix --apply bake``: the samples are written once, and every batch stays bit for bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from test_fix import hotloop
from tests.running import SRC, succeeded

TRAIN = """
    import hashlib
    import os

    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Scans(Dataset):
        def __init__(self, side):
            self.pictures = np.arange(60 * 48, dtype=np.float32).reshape(60, 48)
            self.side = side

        def __len__(self):
            return len(self.pictures)

        def __getitem__(self, index):
            picture = np.sort(self.pictures[index] * 7 % 11)[: self.side]
            return {"image": torch.from_numpy(picture), "label": index % 10, "name": str(index)}


    torch.manual_seed(0)
    model = torch.nn.Linear(12, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Scans(int(os.environ.get("SIDE", 12))), batch_size=8, shuffle=True)
    seen = hashlib.sha256()
    for epoch in range(2):
        for batch in loader:
            seen.update(batch["image"].numpy().tobytes() + batch["label"].numpy().tobytes())
            seen.update(repr((batch["name"], batch["image"].dtype, batch["image"].stride())).encode())
            loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(seen.hexdigest(), torch.rand(2).tolist(), model.bias.tolist())
"""


@pytest.mark.nightly
def test_a_script_gives_the_same_batches_from_a_bake(tmp_path: Path) -> None:
    train = tmp_path / "train.py"
    train.write_text(dedent(TRAIN).strip() + "\n")
    plain = ran(tmp_path)
    assert hotloop("run", "--out", "run", "--", sys.executable, "train.py", folder=tmp_path).returncode == 0
    done = succeeded(hotloop("fix", "run", "--apply", "bake", "--no-check", "--write", folder=tmp_path))
    assert 'bake(Scans(int(os.environ.get("SIDE", 12))), "scans.baked")' in train.read_text(), done.stderr
    assert [ran(tmp_path).stdout for _ in range(2)] == [plain.stdout] * 2
    assert (tmp_path / "scans.baked" / "manifest.json").is_file()
    stale = ran(tmp_path, SIDE="8")
    assert stale.returncode and "dataset.side was 12, now 8" in stale.stderr


def ran(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "train.py"]
    env = {"PYTHONPATH": str(SRC), **env}
    return subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )
