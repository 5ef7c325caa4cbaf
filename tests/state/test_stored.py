"""Batches and arguments are read without running the script's code, which could draw a random number."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.running import run_observed

from hotloop.probe import batches
from hotloop.probe.evidence import fingerprint

LAZY = """
    import random
    from collections.abc import Mapping
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    torch.manual_seed(0)
    random.seed(0)

    class Data(Dataset):
        def __len__(self):
            return 48
        def __getitem__(self, i):
            return torch.full((8,), float(i)), i % 2

    class Lazy(Mapping):
        def __init__(self, x, y):
            self.held = {"x": x, "y": y}
        def __getitem__(self, key):
            return self.held[key] + random.random() if key == "x" else self.held[key]
        def __getattr__(self, name):
            random.random()
            raise AttributeError(name)
        def __iter__(self):
            return iter(self.held)
        def __len__(self):
            return 2

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 2)
        def forward(self, batch):
            return self.inner(batch["x"])

    net = nn.Sequential(Net())  # the module window looks at arguments
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    collate = lambda samples: Lazy(*torch.utils.data.default_collate(samples))
    for epoch in range(2):
        for batch in DataLoader(Data(), 4, shuffle=True, collate_fn=collate):
            loss = nn.functional.cross_entropy(net(batch), batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(loss.item(), random.random())
"""


def test_a_batch_that_computes_on_access_trains_as_without_hotloop(tmp_path: Path) -> None:
    plain = run_observed(LAZY, folder=tmp_path / "plain", observed=False)
    seen = run_observed(LAZY, folder=tmp_path / "seen")
    evidence = run_observed(LAZY, folder=tmp_path / "evidence", env={"HOTLOOP_EVIDENCE": "1"})
    assert plain.stdout and plain.stdout == seen.stdout == evidence.stdout
    assert not seen.notes.get("disabled") and not evidence.notes.get("disabled")


class ForbiddenError(Exception):
    """Code of the script's was run."""


def forbid(*_: Any) -> Any:
    raise ForbiddenError


class ComputedDict(dict[str, Any]):
    __getitem__ = items = values = keys = __iter__ = __len__ = forbid


class ComputedList(list[Any]):
    __getitem__ = __iter__ = __len__ = forbid


class ComputedTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise ForbiddenError


@dataclasses.dataclass
class ComputedFields:
    x: torch.Tensor

    def __getattribute__(self, name: str) -> Any:
        raise ForbiddenError


class Opaque(Mapping[str, Any]):
    shape = dtype = nbytes = device = is_cuda = data_ptr = property(forbid)
    __class__ = property(forbid)  # type: ignore[assignment]
    __array_interface__ = property(forbid)
    __getattr__ = __getitem__ = __len__ = forbid

    def __iter__(self) -> Iterator[str]:
        raise ForbiddenError


def whole(batch: Any) -> Any:
    """Everything that is asked of a batch."""
    with torch._C.DisableTorchFunction():
        fingerprint.of_batch(batch, full=True)
    return batches.num_bytes(batch), [field["path"] for field in batches.fields(batch)]


def test_no_code_of_a_class_is_run_to_read_what_it_stores() -> None:
    x = torch.zeros(4, 2)
    for batch, path in (
        (ComputedDict(x=x), "x"),
        (ComputedList([x]), "0"),
        (ComputedFields(x), "x"),
        (x.as_subclass(ComputedTensor), ""),
    ):
        assert whole(batch) == (32, [path])
    assert whole({"a": Opaque.__new__(Opaque)}) == (0, [])


def test_containers_that_store_are_read() -> None:
    x = torch.zeros(4, 2)
    pair = namedtuple("pair", "x y")
    for batch in (
        OrderedDict(x=x, y=x),
        UserDict(x=x, y=x),
        pair(x, x),
        {"x": x, "y": np.zeros((4, 2), "f")},
    ):
        assert whole(batch) == (64, ["x", "y"])
    slotted = dataclasses.make_dataclass("slotted", ["x"], slots=True)
    assert whole([slotted(x), (x, 1.5, "word")]) == (68, ["0.x", "1.0"])
