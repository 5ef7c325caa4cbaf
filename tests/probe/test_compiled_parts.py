"""What was compiled tells the same places as the Python it stands for."""

from __future__ import annotations

import time
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import pytest
from tests.running import Observed, run_observed

from hotloop import fast
from hotloop.probe.observers import workers

PLACES = """
    import functools

    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(24, 4)), batch_size=4)

    def step(x):
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward(); optimizer.step()
        return loss

    def through(function, *args):
        return function(*args)

    for epoch in range(3):
        for (x,) in loader:
            through(step, x).item()
    exec("step(x)", globals())

    def stepping(count):
        for _ in range(count):
            yield step(x)

    async def asked():
        return step(x)

    def finished(coroutine):
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value

    for _ in range(3):  # called by C, from generators, coroutines, lambdas and comprehensions
        list(map(step, [x, x])), list(map(model, [x, x])), list(stepping(2)), finished(asked())
        [model(x) for _ in range(2)], functools.partial(model, x)(), (lambda: step(x))()
        sorted([1, 2], key=lambda _: model(x).sum().item())
"""


def places(run: Observed) -> list[tuple[str, tuple[Any, ...]]]:
    """Every row's kind and where it says that it was called from, the whole stack."""
    sites = {note["id"]: tuple(tuple(frame[1:]) for frame in note["stack"]) for note in run.notes["site"]}
    wanted = ("fetch", "forward", "backward", "optimizer", "zero_grad")
    return [(row.kind, sites.get(row.site, ())) for row in run.rows if row.kind in wanted]


@pytest.mark.nightly
def test_both_forms_name_the_same_places(tmp_path: Path) -> None:
    if fast.Sites is None:
        pytest.skip("not compiled for this interpreter")
    compiled = run_observed(PLACES, folder=tmp_path / "compiled")
    python = run_observed(PLACES, folder=tmp_path / "python", env={"HOTLOOP_PURE": "1"})
    assert compiled.returncode == python.returncode == 0
    found = places(compiled)
    assert found == places(python)
    assert {kind for kind, stack in found if stack} >= {"fetch", "forward", "backward", "optimizer"}


class Squares:
    """A dataset with a slow sample and one that it cannot make."""

    def __getitem__(self, index: int) -> int:
        if index == 5:
            time.sleep(0.02)
        if index == 9:
            raise KeyError(index)
        return index * index


@pytest.mark.parametrize("make", [workers._samples, fast.making])
def test_samples_are_made_and_the_slowest_is_found(make: Any) -> None:
    if make is None:
        pytest.skip("not compiled for this interpreter")
    begun = perf_counter_ns()
    samples, (start, took, index) = make(Squares(), [2, 5, 3])
    assert (samples, index) == ([4, 25, 9], 5)
    assert begun < start < start + took < perf_counter_ns() and took >= 20_000_000
    assert make(Squares(), iter([3])) == ([9], None)
    assert make(Squares(), []) == ([], None)
    with pytest.raises(KeyError):
        make(Squares(), [1, 9, 2])
    with pytest.raises(TypeError):
        make(Squares(), 3)


#: What the ends of the wrappers decide: flags, counts, rounds, samples, nesting, raising.
DECISIONS = """
    import gc
    gc.disable()
    import threading, torch
    from torch.utils.data import DataLoader, IterableDataset, TensorDataset

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(torch.randn(7, 4))

    class Odd(torch.nn.Module):
        def forward(self, x):
            raise ValueError("odd")

    model, head = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()), torch.nn.Linear(3, 1)
    first = torch.optim.SGD(model.parameters(), lr=0.1)
    second = torch.optim.Adam(head.parameters(), lr=0.1)

    def loss_of(x):
        return head(model(x)).square().mean()

    def closure():
        second.zero_grad()
        loss = loss_of(torch.ones(2, 4))
        loss.backward()
        return loss

    for epoch in range(2):
        for turn, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(10, 4)), batch_size=4)):
            loss_of(x).backward()
            if turn % 2:
                first.step()
                second.step()
                first.zero_grad(); second.zero_grad()
    for x in DataLoader(Stream(), batch_size=3):
        torch.autograd.backward(tensors=loss_of(x))
        first.step()
    second.step(closure)
    model.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        model(x)
    model.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(x)
    for wrong in (lambda: Odd()(x), lambda: model(x).backward(), lambda: first.step(lambda: 1 / 0)):
        try:
            wrong()
        except (ValueError, RuntimeError, ZeroDivisionError):
            pass
    first.step()
    other = threading.Thread(target=lambda: [loss_of(x).backward(), second.step()])
    other.start(); other.join()
    for generation in (0, 1, 2):
        gc.collect(generation)
    import hotloop.probe.install
    count = hotloop.probe.install.current().count
    print(count.backwards, count.batches, count.rounds, count.fed_at, count.fetched, count.updates)
"""


def decisions(run: Observed) -> list[tuple[Any, ...]]:
    """Every row but those that depend on the time, without the time."""
    timed = ("sample", "make", "collate", "slowest", "module", "gc")
    rows = [row for row in run.rows if row.kind not in timed]
    return [(row.kind, row.value, run.line(row), row.obj, row.extra, row.flags) for row in rows]


def test_both_forms_decide_the_same(tmp_path: Path) -> None:
    if fast.Hook is None:
        pytest.skip("not compiled for this interpreter")
    seeded = {"PYTHONHASHSEED": "0"}
    compiled = run_observed(DECISIONS, folder=tmp_path / "compiled", env=seeded, warm=False)
    python = run_observed(DECISIONS, folder=tmp_path / "python", env={"HOTLOOP_PURE": "1"})
    assert (compiled.stderr, python.stderr) == ("", "")
    assert compiled.stdout == python.stdout
    found, wanted = decisions(compiled), decisions(python)
    assert [row for row in found if row[0] != "loss"] == [row for row in wanted if row[0] != "loss"]
    assert {"fetch", "iter", "forward", "backward", "optimizer", "zero_grad"} <= {row[0] for row in found}
    assert [any(row.kind == "gc" for row in run.rows) for run in (compiled, python)] == [True, False]
    assert "disabled" not in compiled.notes | python.notes
    assert len({run.notes["graph"][-1]["nodes_per_backward"] for run in (compiled, python)}) == 1


LIKE_TORCH = """
    import copy, inspect, pickle, torch
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data._utils.fetch import _MapDatasetFetcher as Fetcher
    from torch.utils.data.dataloader import _BaseDataLoaderIter as Base

    for owner, name in ((torch.autograd, "backward"), (Base, "__next__"), (Fetcher, "fetch")):
        function = getattr(owner, name)
        print(pickle.dumps(function), copy.deepcopy(function) is function, callable(function))
        print(function.__module__, function.__qualname__, function.__doc__, inspect.signature(function))
        print(inspect.getsource(function))

    class Mine(Base):
        __next__ = lambda self: Base.__next__(self)

    batches = iter(DataLoader(TensorDataset(torch.ones(3, 2)), batch_size=1))
    print(next(batches), batches.__next__(), type(batches).__next__(batches), next(batches, "over"))
    print(inspect.signature(batches.__next__), batches.__next__ == batches.__next__)
    fetcher = Fetcher([5, 6], True, list, False)
    print(fetcher.fetch([1, 0]), Fetcher.fetch(fetcher, possibly_batched_index=[0]))
    for wrong in (Base.__next__, torch.autograd.backward, fetcher.fetch):
        try:
            wrong()
        except TypeError as error:
            print(error)
"""


@pytest.mark.parametrize("pure", ["", "1"])
def test_what_stands_in_for_a_function_of_torchs_is_like_it(pure: str, tmp_path: Path) -> None:
    observed = run_observed(LIKE_TORCH, folder=tmp_path / "run", env={"HOTLOOP_PURE": pure})
    plain = run_observed(LIKE_TORCH, folder=tmp_path / "plain", observed=False)
    assert (observed.stdout, observed.stderr) == (plain.stdout, plain.stderr)
    assert observed.returncode == 0


BEHIND = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Hurried(DataLoader):
        def __iter__(self):
            batches = super().__iter__()
            batches._data_queue.qsize = lambda: -9
            return batches

    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in Hurried(TensorDataset(torch.ones(12, 4)), 4, num_workers=1, multiprocessing_context="fork"):
        model(x).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("pure", ["", "1"])
def test_a_queue_that_counts_fewer_batches_than_there_are_is_empty(pure: str, tmp_path: Path) -> None:
    """torch counts a batch as outstanding before and after it takes it out of the queue."""
    run = run_observed(BEHIND, folder=tmp_path, env={"HOTLOOP_PURE": pure})
    assert "disabled" not in run.notes
    assert [row.extra for row in run.rows if row.kind == "fetch"] == [0, 0, 0, 0]


FAILING = """
    import torch

    class Shy(torch.nn.Linear):
        @property
        def training(self):
            if shy:
                raise LookupError("not now")
            return True

        @training.setter
        def training(self, mode):
            pass

    shy = False
    model = Shy(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        shy = step == 2
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    print("through")
"""


@pytest.mark.parametrize("pure", ["", "1"])
def test_an_observer_that_fails_is_switched_off_and_training_goes_on(pure: str, tmp_path: Path) -> None:
    run = run_observed(FAILING, folder=tmp_path, env={"HOTLOOP_PURE": pure})
    assert (run.stdout, run.stderr) == ("through\n", "")
    [note] = run.notes["disabled"]
    assert note["observer"] == "observers.modules" and note["error"] == "LookupError: not now"
    assert note["place"]
    assert (len(run.of("forward")), len(run.of("backward")), len(run.of("optimizer"))) == (2, 4, 4)


CALLS = """
    import torch

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, x, fail=False):
            if fail:
                raise ValueError("no")
            return self.inner(x)

    model, lazy = Block(), torch.nn.LazyLinear(2)
    x = torch.ones(3, 4)
    for turn in range(3):
        model(x)
        torch.nn.Module.__call__(model, x)
        model.__call__(x=x)
        lazy(x)
        list(map(torch.nn.Sequential(model), [x, x]))
        try:
            model(x, fail=True)
        except ValueError:
            pass
    model.eval()
    model(x)
    with torch.no_grad():
        model(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model(x)
    for wrong in ("torch.nn.Module.__call__()", "model()"):
        try:
            eval(wrong)
        except TypeError as error:
            print(error)
    for turn in range(12):  # some of them within the window
        model(x).sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    model(x, fail=True)
"""


def test_both_forms_tell_the_same_calls_of_modules(tmp_path: Path) -> None:
    if fast.attach is None:
        pytest.skip("not compiled for this interpreter")
    compiled = run_observed(CALLS, folder=tmp_path / "compiled")
    python = run_observed(CALLS, folder=tmp_path / "python", env={"HOTLOOP_PURE": "1"})
    assert "disabled" not in compiled.notes and "disabled" not in python.notes
    calls, theirs = (
        [(row.flags, row.obj, row.site) for row in run.of("forward")] for run in (compiled, python)
    )
    assert calls == theirs and len(calls) == 38
    classes, their_classes = ([note["class"] for note in run.notes["module"]] for run in (compiled, python))
    assert classes == their_classes and classes[:2] == ["Block", "Linear"]
    assert compiled.stdout == python.stdout
    bare = run_observed(CALLS, folder=tmp_path / "compiled", observed=False)
    assert (compiled.stdout, compiled.stderr) == (bare.stdout, bare.stderr)


def test_a_function_is_the_hooks_for_who_calls_it_from_c() -> None:
    if fast.attach is None:
        pytest.skip("not compiled for this interpreter")
    for wrong in ((print, None), (test_both_forms_name_the_same_places, None), ()):
        with pytest.raises(TypeError):
            fast.attach(*wrong)


EPOCHS = """
    import torch
    from torch.utils.data import DataLoader

    data = list(range(8))
    train, valid = DataLoader(data, batch_size=4), DataLoader(data, batch_size=2)
    for epoch in range(4):
        for loader in (train, valid):
            for batch in loader:
                pass
        if epoch == 2:
            data.extend(range(4))
"""


@pytest.mark.parametrize("pure", ["", "1"])
def test_an_iterator_like_the_one_before_it_is_not_noted_again(pure: str, tmp_path: Path) -> None:
    run = run_observed(EPOCHS, folder=tmp_path, env={"HOTLOOP_PURE": pure})
    noted = [(note["id"], note["loader"], note["num_batches"]) for note in run.notes["iterator"]]
    assert noted == [(1, 1, 2), (2, 2, 4), (7, 1, 3), (8, 2, 6)]
    assert [(row.obj, row.value) for row in run.of("iter")] == [(n + 1, n % 2 + 1) for n in range(8)]
