"""The parts together: the same weights bit for bit, whoever carries the batches, interrupted or not."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from hotloop.feed import Accumulation, DevicePrefetcher, Loader, ScaledLR, cached


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 203

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, 8), index, dtype=torch.uint8), index


def to_float(batch: Any) -> Any:
    return batch[0].float() / 255, batch[1].float() / 203


class Training:
    """A model, its optimizer and everything between it and the loader."""

    def __init__(self, loader: Any) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(24, 1)
        self.loader = loader
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.scheduler = ScaledLR(self.optimizer, batch_size=64, base_batch_size=16, warmup_steps=5)
        self.accumulation = Accumulation(self.optimizer, steps=4)

    def epoch(self, most: int | None = None) -> dict[str, Any]:
        """One epoch, or its first batches; the state after the last of them."""
        state: dict[str, Any] = {}
        for pictures, targets in self.accumulation(DevicePrefetcher(self.loader, "cpu", transform=to_float)):
            loss = (self.model(pictures.flatten(1)).squeeze(1) - targets).square().mean()
            if self.accumulation.backward(loss, len(targets)):
                self.scheduler.step()
            most = None if most is None else most - 1
            if most == 0:
                file = io.BytesIO()
                torch.save({name: part.state_dict() for name, part in self.parts().items()}, file)
                file.seek(0)
                state = torch.load(file)
                break
        return state

    def parts(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "accumulation": self.accumulation,
        }

    def load(self, state: dict[str, Any]) -> None:
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
        self.loader.load_state_dict(state["accumulation"]["loader"])

    def weights(self) -> list[torch.Tensor]:
        return [parameter.detach().clone() for parameter in self.model.parameters()]


def loader(kind: Any, dataset: Any, num_workers: Any) -> Any:
    generator = torch.Generator().manual_seed(5)
    return kind(dataset, batch_size=16, shuffle=True, num_workers=num_workers, generator=generator)


@pytest.fixture(scope="module")
def wanted() -> list[torch.Tensor]:
    """The weights after three epochs with torch's own loader."""
    training = Training(loader(DataLoader, Pictures(), 0))
    for _ in range(3):
        training.epoch()
    assert training.accumulation.num_optimizer_steps == 12
    return training.weights()


@pytest.mark.parametrize("num_workers", [0, 2, "auto"])
@pytest.mark.parametrize("with_cache", [False, True])
def test_the_weights_are_the_same_bit_for_bit(wanted: Any, num_workers: Any, with_cache: bool) -> None:
    dataset = cached(Pictures(), max_bytes="64MiB", shared=False) if with_cache else Pictures()
    training = Training(loader(Loader, dataset, num_workers))
    for _ in range(3):
        training.epoch()
    assert all(torch.equal(a, b) for a, b in zip(training.weights(), wanted, strict=True))


@pytest.mark.parametrize("taken", [1, 4, 6, 13])
def test_interrupted_anywhere_and_resumed_they_are_too(wanted: Any, taken: int) -> None:
    interrupted = Training(loader(Loader, Pictures(), 1))
    interrupted.epoch()
    state = interrupted.epoch(most=taken)
    resumed = Training(loader(Loader, Pictures(), 1))
    resumed.load(state)
    resumed.epoch()
    resumed.epoch()
    assert resumed.accumulation.num_optimizer_steps == 12
    assert all(torch.equal(a, b) for a, b in zip(resumed.weights(), wanted, strict=True))
