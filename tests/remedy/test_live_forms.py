"""Live forms on the real torch, in this process: what they keep, what they refuse, what they let go of."""

from __future__ import annotations

import gc
import weakref
from _thread import get_ident
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, dataloader

from hotloop.hooks.registry import Hooks
from hotloop.remedy.live import loader as loader_forms
from hotloop.remedy.live.compiled import Compile
from hotloop.remedy.live.flags import CudnnBenchmark, Tf32
from hotloop.remedy.live.optimizer import Foreach, FusedOptimizer
from hotloop.remedy.live.ring import CacheSamples
from hotloop.remedy.live.transfer import NonBlocking


class Context:
    """As much of the probe as these forms ask for."""

    def __init__(self) -> None:
        self.torch = torch
        self.errors: list[BaseException] = []
        self.hooks = Hooks(lambda name, error: self.errors.append(error))
        self.hooks.owner = get_ident()
        self.inside = [0]
        self.updates = 0
        self.role = "main"
        self.callbacks: list[Callable[[], None]] = []

    def note(self, kind: str, **fields: Any) -> None:
        """Notes are read from ``status`` here."""

    def on_update(self, name: str, function: Callable[[], None]) -> None:
        self.callbacks.append(function)

    def off_update(self, function: Callable[[], None]) -> None:
        self.callbacks.remove(function)

    def update(self) -> None:
        self.updates += 1
        for function in list(self.callbacks):
            function()


@pytest.fixture
def context() -> Iterator[Any]:
    found = Context()
    yield found
    found.hooks.undo()
    assert not found.errors


def images(num: int = 8) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(4, 3, 8, 8, generator=generator) for _ in range(num)]


def convolution() -> nn.Conv2d:
    torch.manual_seed(0)
    return nn.Conv2d(3, 8, 3)


def trained(before_step: Callable[[int, nn.Conv2d], None], *, fused: bool) -> Any:
    model = convolution()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=fused)
    for step, batch in enumerate(images()):
        before_step(step, model)
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.weight.detach().contiguous()


def test_a_fused_step_goes_with_state_of_other_strides(context: Any) -> None:
    def lay_out(step: int, model: nn.Conv2d) -> None:
        if step == 2:
            model.to(memory_format=torch.channels_last)

    wanted = trained(lay_out, fused=False)
    form = FusedOptimizer(context, None)
    form.active = False
    form.install()

    def fuse(step: int, model: nn.Conv2d) -> None:
        lay_out(step, model)
        if step == 4:
            form.on()

    torch.testing.assert_close(trained(fuse, fused=False), wanted, rtol=1e-3, atol=1e-4)
    assert form.status() == "in effect"


@pytest.mark.parametrize("first", [0, 2])
def test_sparse_gradients_are_not_fused(context: Any, first: int) -> None:
    form = FusedOptimizer(context, None)
    form.install()
    words, line = nn.Embedding(10, 4, sparse=True), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*words.parameters(), *line.parameters()], lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        entry = words(torch.tensor([1, 2])) if step >= first else torch.ones(2, 4)
        line(entry).sum().backward()
        optimizer.step()
    assert form.status() == "gradients are sparse: no fused kernel takes them"
    assert not optimizer.param_groups[0]["fused"]


@pytest.mark.parametrize("name", ["NAdam", "RAdam", "ASGD", "Adafactor"])
def test_multi_tensor_kernels_that_round_differently_are_refused(context: Any, name: str) -> None:
    form = Foreach(context, None)
    form.install()
    model = nn.Linear(2, 2)
    optimizer = getattr(torch.optim, name)(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert form.status() == f"{name}: its multi-tensor kernels round differently"
    assert not optimizer.param_groups[0]["foreach"]


@pytest.mark.parametrize("kind", [FusedOptimizer, Compile])
def test_models_and_optimizers_of_the_script_are_let_go(
    context: Any, kind: type, request: pytest.FixtureRequest
) -> None:
    if kind is Compile:  # monkeypatch would delete the settings afterwards, which hides them from all
        settings = pytest.importorskip("torch._dynamo").config.patch(disable=True, suppress_errors=True)
        settings.__enter__()
        request.addfinalizer(lambda: settings.__exit__(None, None, None))
    form = kind(context, None)
    form.install()

    def train() -> list[weakref.ref[Any]]:
        model, criterion = convolution(), nn.MSELoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        output = model(images(1)[0])
        criterion(output, torch.zeros_like(output)).backward()
        optimizer.step()
        form.off()
        form.on()
        return [weakref.ref(model), weakref.ref(model.weight), weakref.ref(criterion), weakref.ref(optimizer)]

    kept = train()
    assert form.count
    gc.collect()
    assert [ref() for ref in kept] == [None] * 4


def cached_by(context: Any, monkeypatch: pytest.MonkeyPatch) -> CacheSamples:
    monkeypatch.setattr(loader_forms, "_changes", None)
    form = CacheSamples(context, None)
    form._join(dataloader)
    return form


def test_a_cache_goes_when_another_is_begun(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    form = cached_by(context, monkeypatch)

    def begin(loader: DataLoader[Any]) -> Any:
        changes = form.changes(loader, loader.__dict__)
        assert changes is not None
        return changes["dataset"].cached

    data = TensorDataset(torch.arange(8.0))
    first = begin(DataLoader(data))
    assert begin(DataLoader(data)) is first  # a script may make its loader anew in each epoch
    kept = weakref.ref(first)
    del first
    other = DataLoader(TensorDataset(torch.arange(4.0)))
    begin(other)
    gc.collect()
    assert kept() is None


def test_batches_of_a_cache_are_those_of_torch(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = TensorDataset(torch.rand(12, 3, 4).permute(0, 2, 1), torch.arange(12), torch.rand(12).half())
    loader = DataLoader(data, batch_size=5)
    wanted = list(loader)
    form = cached_by(context, monkeypatch)
    for _ in range(2):  # the cache fills, then it serves
        changes = form.changes(loader, loader.__dict__)
        assert changes is not None
        for indices, batch in zip(loader.batch_sampler, wanted, strict=True):
            ours = changes["collate_fn"](changes["dataset"].__getitems__(indices))
            assert type(ours) is type(batch)
            for one, other in zip(ours, batch, strict=True):
                assert (one.dtype, one.stride()) == (other.dtype, other.stride())
                assert torch.equal(one, other)
    assert changes["dataset"].cached.stats().hits == 12


def test_a_collation_of_the_scripts_own_gets_samples(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    form = cached_by(context, monkeypatch)
    loader = DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2, collate_fn=list)
    changes = form.changes(loader, loader.__dict__)
    assert changes is not None and set(changes) == {"dataset"}
    assert changes["dataset"][3] == (torch.tensor(3.0),)


class _Labelled(Dataset[int]):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return int((self.folder / "labels").read_bytes()[index])


def test_a_cache_ends_where_samples_are_others_when_read_again(
    context: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    form = cached_by(context, monkeypatch)
    (tmp_path / "labels").write_bytes(bytes(range(8)))
    loader = DataLoader(_Labelled(tmp_path))
    assert form.changes(loader, loader.__dict__) is not None
    assert form.changes(loader, loader.__dict__) is not None
    (tmp_path / "labels").write_bytes(bytes(range(1, 9)))
    monkeypatch.setattr("hotloop.remedy.live.form.PART", 1e-9)  # no time for it in an epoch as short
    assert form.changes(loader, loader.__dict__) is not None
    monkeypatch.setattr("hotloop.remedy.live.form.PART", 1e9)
    assert form.changes(loader, loader.__dict__) is None
    assert form.failed


class _Pinned(NonBlocking):
    """Every tensor is page-locked."""

    def pinned(self, tensor: Any) -> bool:
        """Yes."""
        return True


def test_a_copy_that_says_whether_to_wait_is_left_alone(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    _Pinned(context, None).install()
    batch = torch.ones(2)
    assert batch.to("cpu", torch.float64, False).dtype == torch.float64
    assert batch.to("cpu", torch.float64, non_blocking=False).dtype == torch.float64
    assert batch.to("cpu", torch.float64).dtype == torch.float64


@pytest.mark.parametrize("trains_there", [False, True])
@pytest.mark.parametrize(
    ("kind", "owner", "flag"),
    [(Tf32, torch.backends.cudnn, "allow_tf32"), (CudnnBenchmark, torch.backends.cudnn, "benchmark")],
)
def test_the_driver_is_not_asked_before_the_script_uses_it(
    context: Any, monkeypatch: pytest.MonkeyPatch, kind: Any, owner: Any, flag: str, trains_there: bool
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: asked.append(1))
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(owner, flag, False)
    form = kind(context, None)
    form.install()
    NonBlocking(context, None).install()
    assert getattr(owner, flag)
    assert not form.count
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: trains_there)
    context.update()
    assert getattr(owner, flag) is trains_there
    assert form.status() == ("in effect" if trains_there else "the training runs on no CUDA device")
    form.off()
    assert not getattr(owner, flag)
    assert not asked
