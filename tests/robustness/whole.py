"""Runs ``hotloop run`` as a person would, in a process of its own, and reads what it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from tests import running
from tests.running import SRC

from hotloop.record.read import open_recording
from hotloop.record.recording import Recording
from hotloop.record.rows import BACKWARD

#: Stands for ``folder/run``.
DEFAULT = Path("run")

#: A small training run; ``step()`` does one step and ``digest()`` tells whether the weights are the same.
PRELUDE = """
import hashlib, os, sys
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
model = torch.nn.Linear(8, 1)
optimizer = __name__ == "__mp_main__" or torch.optim.SGD(model.parameters(), lr=0.1)
def step(x, y):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
def epoch(loader=None):
    for x, y in loader or DataLoader(data, batch_size=8, shuffle=True):
        step(x, y)
def digest():
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16]
"""


@dataclass(frozen=True, kw_only=True)
class Done:
    """A finished ``hotloop run``; ``stderr`` holds the command's and hotloop's."""

    returncode: int
    stdout: str
    stderr: str
    folder: Path

    @property
    def recording(self) -> Recording:
        return open_recording(self.folder)

    @property
    def num_backwards(self) -> int:
        """Backward passes in all training processes."""
        return sum(int((rank.rows["kind"] == BACKWARD).sum()) for rank in self.recording.ranks)


def script(folder: Path, text: str, name: str = "train.py") -> Path:
    """Write a training script."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PRELUDE + dedent(text))
    return path


def surroundings(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment in which ``python -m hotloop`` works."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOTLOOP_")}
    return {**kept, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", **(extra or {})}


def hotloop_command(command: Sequence[str], out: Path | None) -> list[str]:
    """``hotloop run`` as words."""
    where = ["--out", str(out)] if out else []
    return [sys.executable, "-m", "hotloop", "run", *where, "--", *command]


def run(
    command: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str] | None = None,
    before: str = "",
    out: Path | None = DEFAULT,
    timeout_s: float = 120,
    warm: bool = False,
) -> Done:
    """Run a command in ``folder`` under hotloop, recorded in ``folder/run``; ``out=None``: where it likes.

    ``before`` is shell, run first in a mount namespace of its own. ``warm``: where no start of an interpreter
    is looked at (``tests/warm.py``).
    """
    out = folder / "run" if out is DEFAULT else out
    words = hotloop_command(command, out)
    if warm:
        done = running.hotloop(*words[3:], folder=folder, env=env, timeout=timeout_s)
    else:
        if before:
            words = ["unshare", "--mount", "sh", "-ec", f'{before}\nexec "$@"', "sh", *words]
        done = subprocess.run(
            words, cwd=folder, env=surroundings(env), capture_output=True, text=True, timeout=timeout_s
        )
    return Done(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr, folder=out or folder)


def can_mount() -> bool:
    """Whether this test may mount in a namespace of its own."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
