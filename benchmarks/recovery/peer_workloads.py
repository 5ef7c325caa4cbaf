"""Runs in the peers' environment: ``peer_workloads.py PEER CASE.py``; prints «proposed {...}»."""

import ast
import json
import sys
from pathlib import Path

import torch


def parts(path):
    """The case's dataset class, without its training loop: what a user of a peer copies into a workload."""
    tree = ast.parse(Path(path).read_text())
    kept = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom, ast.ClassDef))]
    names = {"__name__": "case"}
    exec(compile(ast.Module(kept, []), path, "exec"), names)
    dataset = next(v for k, v in names.items() if isinstance(v, type) and v.__module__ == "case")
    batch_size = 16 if "slow_loader" in path else 32
    return dataset, batch_size


def model_for(dataset):
    x, _ = dataset[0]
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(x.numel(), 5))


def train_step(model, optimizer, batch, device):
    x, y = batch
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


DATASET, BATCH_SIZE = parts(sys.argv[2]) if len(sys.argv) > 2 else (None, 0)


def with_loadtune():
    import loadtune
    from loadtune.workload import Workload

    workload = Workload(
        name="case", make_dataset=DATASET, make_model=lambda: model_for(DATASET()), train_step=train_step,
        make_optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.01), default_batch_size=BATCH_SIZE,
    )  # fmt: skip
    found = loadtune.tune(workload, steps=40, warmup=5, fast=True)
    knobs = vars(found.best.knobs) if found.best is not None else {}
    return {**knobs, "diagnosis": found.diagnosis[:200], "speedup": found.speedup}


def with_lightning():
    import lightning
    from lightning.pytorch.tuner import Tuner
    from torch.utils.data import DataLoader

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.batch_size, self.model = BATCH_SIZE, model_for(DATASET())

        def training_step(self, batch, index):
            return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

        def train_dataloader(self):
            return DataLoader(DATASET(), batch_size=self.batch_size, shuffle=True)

    trainer = lightning.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    size = Tuner(trainer).scale_batch_size(Module(), mode="power", max_trials=4, steps_per_trial=3)
    return {"batch_size": size, "diagnosis": "scale_batch_size only: it looks at memory, not at speed"}


if __name__ == "__main__":
    proposed = {"loadtune": with_loadtune, "lightning": with_lightning}[sys.argv[1]]()
    print("proposed " + json.dumps(proposed, default=str))
