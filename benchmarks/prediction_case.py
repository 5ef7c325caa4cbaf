"""One training loop of ``benchmarks/prediction.py``: a dataset, a step, and settings to run it with.

``python benchmarks/prediction_case.py DATASET STEP WxP [WxP...]`` prints seconds per step of each
setting as JSON lines. The step sleeps (cores free, as with an accelerator) or multiplies matrices on a core.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    """Samples whose cost is known: FIELDNOTES part 3."""

    batch_size = 16

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        raise NotImplementedError


class Sleep(Samples):
    """Waits, as for a network: 4 ms a sample."""

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.004)
        return torch.zeros(256)


class Cpu(Samples):
    """Computes in Python: about 1 ms a sample."""

    def __getitem__(self, index: int) -> torch.Tensor:
        total = 0
        for value in range(16_000):
            total += value & index
        return torch.full((256,), float(total % 7))


class Tiny(Samples):
    """Small samples out of memory."""

    batch_size = 64

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.data = torch.zeros(4096, 64)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.data[index % 4096]


class Large(Samples):
    """10 MB a sample: the transport costs more than the making."""

    batch_size = 4

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.data = torch.zeros(8, 2_500_000)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.data[index % 8].clone()


class Heavy(Samples):
    """1.5 ms a sample, one in twenty-five 60 ms."""

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.060 if index * 2654435761 % 2**32 < 0.04 * 2**32 else 0.0015)
        return torch.zeros(256)


#: Batches measured at least.
LEAST = 30

DATASETS = {"sleep": Sleep, "cpu": Cpu, "tiny": Tiny, "large": Large, "heavy": Heavy}


class Step:
    """One training step of a model of one parameter, which sleeps or computes ``seconds``."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.model = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.0)
        self.matrix = torch.randn(384, 384)

    def __call__(self, batch: torch.Tensor) -> None:
        if self.kind == "sleep":
            time.sleep(0.025)
        elif self.kind == "short":
            time.sleep(0.003)
        else:
            for _ in range(10):
                torch.mm(self.matrix, self.matrix)
        self.model(batch.flatten()[:1]).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", choices=sorted(DATASETS))
    parser.add_argument("step", choices=("sleep", "short", "cpu"))
    parser.add_argument("settings", nargs="+", help="workers x prefetch factor: 2x4; 0: none; 2x4k: kept")
    parser.add_argument("--seconds", type=float, default=4.0, help="to measure each setting")
    parser.add_argument("--epoch", type=int, default=0, help="batches of an epoch (default: endless)")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "This DataLoader will create")
    torch.set_num_threads(1)
    for setting in options.settings:
        torch.manual_seed(0)
        seconds = train(options.dataset, options.step, setting, options.seconds, options.epoch)
        print(json.dumps({"setting": setting, "s_per_step": seconds}), flush=True)


def train(dataset: str, step: str, setting: str, seconds: float, epoch: int) -> float:
    """Seconds per step in the long run: whole epochs, or from when batches made at the start are used up."""
    kind = DATASETS[dataset]
    first, _, prefetch = setting.removesuffix("k").partition("x")
    workers = int(first)
    ahead = {"num_workers": workers, "prefetch_factor": int(prefetch)} if workers else {}
    loader = DataLoader(
        kind((epoch or 20_000) * kind.batch_size),
        batch_size=kind.batch_size,
        shuffle=True,
        persistent_workers=setting.endswith("k"),
        **ahead,
    )
    warm = 4 + workers * (int(prefetch or 0) * 2 + 1)
    run, number, began, ended = Step(step), 0, 0.0, 0.0
    while True:
        for batch in loader:
            run(batch)
            number += 1
            if not epoch and number == warm:
                began = time.perf_counter()
            if not epoch and number >= warm + LEAST and time.perf_counter() - began > seconds:
                return (time.perf_counter() - began) / (number - warm)
        ended = time.perf_counter()
        if number == epoch:
            began = ended
        elif ended - began > seconds:
            return (ended - began) / (number - epoch)


if __name__ == "__main__":
    main()
