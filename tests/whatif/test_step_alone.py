"""The step alone: a launch in which one batch comes again and again, and that ends by itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hotloop import flow

SCRIPT = """
import os, sys, time, torch
from torch.utils.data import DataLoader, Dataset

workers, per_update, evaluated = map(int, sys.argv[1:])

class Samples(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, index):
        return {"number": index, "values": torch.full((8,), float(index)), "more": [torch.ones(2)]}

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0001)
if per_update > 1:  # updates take far longer than the rest
    optimizer.register_step_post_hook(lambda *_: time.sleep(0.02))
loader = DataLoader(Samples(), batch_size=4, num_workers=workers)
held_out = DataLoader(Samples(), batch_size=8)
for epoch in range(400):
    for number, batch in enumerate(loader):
        numbers = batch.pop("number")  # a batch that is used up
        batch["more"].clear()
        batch["values"].mul_(0.5)
        print("trained", os.getpid(), numbers.tolist(), batch["values"].sum().item(), flush=True)
        loss = model(batch["values"]).square().mean()
        loss.backward()
        if number % per_update == 0:
            optimizer.step()
            optimizer.zero_grad()
        if evaluated and number % 5 == 4:
            with torch.no_grad():
                for other in held_out:
                    model(other["values"])
                    print("evaluated", os.getpid(), other["number"].tolist())
print("came to its end")
"""


def run(
    folder: Path, *words: str, command: tuple[str, ...] = (), script: str = SCRIPT
) -> tuple[list[dict[str, Any]], str]:
    """The notes of the echo, and what the script printed."""
    (folder / "train.py").write_text(script)
    launched = [*(command or (sys.executable,)), str(folder / "train.py"), *words]
    where = flow.new_run_folder(folder / "run", launched)
    with (folder / "log").open("w") as log:
        plan = {"HOTLOOP_WHAT_IF": json.dumps({"echo": True})}
        outcome = flow.observe(launched, where, env=plan, stdout=log, stderr=log)
    told = (folder / "log").read_text()
    assert outcome.exit_code == 0, told
    return [note for rank in flow.read(where).ranks for note in rank.notes.get("echo", ())], told


@pytest.mark.parametrize(("workers", "per_update", "evaluated"), [(0, 1, 0), (2, 1, 0), (0, 4, 1)])
def test_one_batch_comes_again_until_enough_steps_are_timed(
    tmp_path: Path, workers: int, per_update: int, evaluated: int
) -> None:
    (note,), told = run(tmp_path, str(workers), str(per_update), str(evaluated))
    assert 4 <= note["steps"] <= 400
    assert note["step_s"] > (0.02 / per_update / 2 if per_update > 1 else 0)  # updates count
    trained = [line for line in told.splitlines() if line.startswith("trained")]
    assert "came to its end" not in told
    assert len(set(trained[-note["steps"] :])) == 1 < len(set(trained))
    evaluations = {line for line in told.splitlines() if line.startswith("evaluated")}
    assert len(evaluations) == (3 if evaluated else 0)  # other loaders hand out what is theirs


def test_steps_that_no_single_loader_feeds_end_the_launch_and_give_no_time(
    tmp_path: Path,
) -> None:
    script = SCRIPT.replace("batch in enumerate(loader)", "(batch, _) in enumerate(zip(loader, held_out))")
    notes, told = run(tmp_path, "0", "1", "0", script=script)
    assert notes == []
    assert "came to its end" not in told


def test_ranks_are_left_alone_for_they_would_end_at_different_steps(tmp_path: Path) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    notes, told = run(tmp_path, "0", "1", "0", command=launcher)
    assert notes == []
    assert told.count("came to its end") == 2
