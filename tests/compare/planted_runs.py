"""Seeded CPU training with one planted difference by name, run once each under ``hotloop run --evidence``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import Any

import pytest
from tests import running

from hotloop.compare.checkpoint import _ask

SCRIPT = """
    import os, random, sys, time
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    kind, workers = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0

    class Data(Dataset):
        def __init__(self):
            g = torch.Generator().manual_seed(5)
            self.x = torch.randn(512, 1, 8, 8, generator=g)
            self.y = (self.x.flatten(1) @ torch.randn(64, 10, generator=g)).argmax(1)
            if kind == "labels":
                bad = torch.rand(512, generator=g) < 0.1
                self.y[bad] = torch.randint(0, 10, (int(bad.sum()),), generator=g)
        def __len__(self):
            return 512
        def __getitem__(self, i):
            if kind == "slow":
                time.sleep(0.002)
            i = i % 64 if kind == "duplicates" else i
            return {"x": self.x[i], "y": self.y[i]}

    def main():
        torch.manual_seed(0)
        random.seed(0)
        torch.set_num_threads(1)
        net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                            nn.Dropout(0.1), nn.Linear(512, 10))
        if kind == "bn":
            net[1].eval()
        lr = 0.02 * {"lr": 1.5, "lr2": 1.02}.get(kind, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
        g = torch.Generator().manual_seed(1 if kind == "shuffle" else 0)
        loader = DataLoader(Data(), 16, shuffle=True, generator=g, num_workers=workers)
        ring = None
        for epoch in range(1 if kind == "short" else 2):
            for number, batch in enumerate(loader):
                if kind == "ring":
                    ring = batch = ring or batch
                if kind == "crash" and epoch == 1:
                    raise ValueError("planted")
                with torch.autocast("cpu", torch.bfloat16, enabled=kind == "bf16"):
                    out = net(batch["x"])
                loss = nn.functional.cross_entropy(out.float(), batch["y"])
                if kind == "nan" and (epoch, number) == (1, 3):
                    loss = loss * float("nan")
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        if kind not in ("none", "prefix", "bf16"):
            return
        prefix = "_orig_mod." if kind == "prefix" else ""
        saved = {prefix + name: value for name, value in net.state_dict().items()}
        torch.save(saved, os.environ.get("CHECKPOINT", kind + ".pt"))

    if __name__ == "__main__":
        main()
"""

_FOLDER = TemporaryDirectory(prefix="hotloop-planted-")
ROOT = Path(_FOLDER.name)


def hotloop(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The command line, in the folder of the runs."""
    return running.hotloop(*words, folder=ROOT, timeout=300, env=env)


def command(kind: str, workers: int = 0) -> list[str]:
    """The training command."""
    script = ROOT / "train.py"
    if not script.exists():
        script.write_text(dedent(SCRIPT))
    return [sys.executable, "train.py", kind, str(workers)]


@cache
def run(kind: str, *, evidence: bool = True, number: int = 0) -> Path:
    """The folder of a run of this kind; ``number`` makes another one of the same."""
    out = ROOT / f"run-{kind}-{evidence:d}-{number}"
    words = command(kind)
    words[1] = str(ROOT / words[1])
    asked = ("--evidence",) if evidence else ()
    try:
        done = hotloop("run", "--quiet", "--out", str(out), *asked, "--", *words, CHECKPOINT=f"{out.name}.pt")
        assert (out / "report.json").exists(), done.stderr
    except BaseException:  # a skip as well: the next who asks begins with an empty folder
        shutil.rmtree(out, ignore_errors=True)
        raise
    return out


@pytest.fixture(autouse=True, scope="module")
def asked_once() -> Iterator[None]:
    """What a Python says of a checkpoint is asked once per file: every answer takes an import of torch."""
    known: dict[Any, dict[str, Any]] = {}

    def ask(python: str, path: str, beside: str = "") -> dict[str, Any]:
        files = [Path(file) for file in (path, beside) if file]
        key = (python, *((file, file.stat().st_mtime_ns) for file in files))
        if key not in known:
            known[key] = _ask(python, path, beside)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hotloop.compare.checkpoint._ask", ask)
        yield
