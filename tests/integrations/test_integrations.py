"""Marked steps, and each framework's integration in a real training of that framework."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tests import running
from tests.running import hotloop, succeeded

import hotloop as package
from hotloop.flow.examine import examine, read

ODD = """
import torch, hotloop
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for size in range(1, 31):
    batch = torch.ones(size, 4)
    with hotloop.step(samples=size, update={update}):
        model(batch).square().mean().backward()
        if {update}:
            with torch.no_grad():
                for one in model.parameters():
                    one -= 0.01 * one.grad
                    one.grad = None
        else:
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.mark.parametrize("update", [True, False])
def test_a_marked_step_has_its_samples(tmp_path: Path, update: bool) -> None:
    (tmp_path / "train.py").write_text(ODD.format(update=update))
    succeeded(hotloop("run", "--out", tmp_path / "run", "--", sys.executable, "train.py", folder=tmp_path))
    steps = examine(read(tmp_path / "run")).lead
    assert steps is not None
    assert np.nan_to_num(steps.samples).tolist() == list(range(1, 31))


def test_without_a_probe_a_mark_is_nothing() -> None:
    from hotloop.integrations.marks import Marks, samples_in, verdict

    with package.step(samples=3, update=True):
        pass
    marks = Marks()
    marks.begin({"x": np.ones((5, 2))})
    marks.end()
    marks.end()
    assert verdict() is None
    assert samples_in([3, (None, np.ones((7, 2)))]) == 7
    assert samples_in("text") == 0
    pictures = [np.ones((3, 32, 30 + number)) for number in range(8)]
    assert samples_in((pictures, [{"boxes": np.ones((2, 4))}])) == 8
    assert samples_in(pictures[:2]) == 0  # two pictures, or two fields of three samples each
    assert samples_in([np.ones((16, 4, 4)), np.ones((16, 4, 4))]) == 16


class Odd:
    """An object whose ``shape`` is None, a method, or raises."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @property
    def shape(self) -> object:
        if self.kind == "raises":
            raise RuntimeError("not initialized")
        return None if self.kind == "none" else lambda: (1, 2)


@pytest.mark.parametrize("kind", ["none", "method", "raises"])
def test_a_batch_that_has_no_shape_breaks_no_training(kind: str) -> None:
    from hotloop.integrations.marks import Marks, samples_in

    Marks().begin({"odd": Odd(kind)})
    assert samples_in([Odd(kind), np.ones((6, 2))]) == 6


def test_the_first_rank_alone_asks_for_the_verdict_beside_the_users_modules(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not the standard library')")
    script = "import sys; sys.path.pop(0)\nfrom hotloop.integrations.marks import verdict\n"
    asked = "import os\nfor os.environ['SLURM_PROCID'] in '01': print('FOUND', verdict() is not None)"
    (tmp_path / "train.py").write_text(script + ODD.format(update=False) + asked)
    words = ["-P", "-m", "hotloop", "run", "--out", "run", "--", sys.executable, "train.py"]
    done = running.python(*words, folder=tmp_path)
    assert "FOUND True\nFOUND False\n" in done.stdout, done.stderr[-3000:]


MODEL = """
import sys, warnings
import torch
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
model = torch.nn.Linear(4, 1)
data = TensorDataset(torch.ones(320, 4), torch.ones(320, 1))
loader = DataLoader(data, batch_size=8)
"""
LIGHTNING = """
import lightning
from hotloop.integrations.lightning import HotloopCallback
from lightning.pytorch.loggers import CSVLogger

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model

    def training_step(self, batch, _):
        return torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

trainer = lightning.Trainer(
    max_epochs=1, accelerator="cpu", logger=CSVLogger("."), callbacks=[HotloopCallback()],
    enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
)
trainer.fit(Module(), loader)
trainer.logger.finalize("success")
print("LOGGED", "hotloop/samples_per_s" in open(trainer.logger.log_dir + "/metrics.csv").read())
"""
TRANSFORMERS = """
from hotloop.integrations.transformers import HotloopCallback
from transformers import Trainer, TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model

    def forward(self, x, labels):
        return {"loss": torch.nn.functional.mse_loss(self.inner(x), labels)}

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, i):
        return {"x": torch.ones(4), "labels": torch.ones(1)}

arguments = TrainingArguments(
    "out", per_device_train_batch_size=8, num_train_epochs=1, report_to=[], disable_tqdm=True, use_cpu=True,
    save_strategy="no",
)
trainer = Trainer(Model(), arguments, train_dataset=Data(), callbacks=[HotloopCallback()])
trainer.train()
print("LOGGED", any("hotloop/samples_per_s" in one for one in trainer.state.log_history))
"""
ACCELERATE = """
from accelerate import Accelerator
from hotloop.integrations.accelerate import HotloopTracker

tracker = HotloopTracker()
accelerator = Accelerator(cpu=True, log_with=tracker)
accelerator.init_trackers("p", {"lr": 0.01})
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    accelerator.log({"loss": loss.item()})
accelerator.end_training()
print("LOGGED", "hotloop/samples_per_s" in tracker.tracker.metrics)
"""
MMENGINE = """
from mmengine.model import BaseModel
from mmengine.runner import Runner
import hotloop.integrations.mmengine

class Model(BaseModel):
    def __init__(self):
        super().__init__()
        self.inner = model

    def forward(self, x, y, mode):
        return {"loss": torch.nn.functional.mse_loss(self.inner(x), y)}

runner = Runner(
    model=Model(), work_dir="work", train_dataloader=loader, train_cfg=dict(by_epoch=True, max_epochs=1),
    optim_wrapper=dict(optimizer=dict(type="SGD", lr=0.01)), custom_hooks=[dict(type="HotloopHook")],
    log_level="INFO",
)
runner.train()
import pathlib
logs = pathlib.Path("work").glob("*/vis_data/*.json")
print("LOGGED", any("hotloop/samples_per_s" in one.read_text() for one in logs))
"""
IGNITE = """
from ignite.engine import create_supervised_trainer
from hotloop.integrations.ignite import attach

trainer = create_supervised_trainer(
    model, torch.optim.SGD(model.parameters(), lr=0.01), torch.nn.functional.mse_loss
)
attach(trainer)
trainer.run(loader, max_epochs=1)
print(trainer.state.hotloop.words)
print("LOGGED", "hotloop/samples_per_s" in trainer.state.hotloop.metrics)
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("library", "script"),
    [
        ("lightning", LIGHTNING), ("transformers", TRANSFORMERS), ("accelerate", ACCELERATE),
        ("mmengine", MMENGINE), ("ignite", IGNITE),
    ],
)  # fmt: skip
def test_a_framework_logs_the_verdict(library: str, script: str, tmp_path: Path) -> None:
    pytest.importorskip(library)
    (tmp_path / "train.py").write_text(MODEL + script)
    words = ["-m", "hotloop", "run", "--quiet", "--out", "run", "--json", "--", sys.executable, "train.py"]
    done = succeeded(running.python(*words, folder=tmp_path))
    assert "LOGGED True" in done.stderr, done.stderr[-3000:]
    assert "hotloop: " in done.stderr
    report = json.loads(done.stdout)
    assert report["num_steps"] == 40
    pace = report["throughput"]  # accelerate's loader is a batch ahead, which the first step has
    assert pace["samples_per_s"] == pytest.approx(8 * pace["steps_per_s"], rel=0.05)
