"""Loaders that are no DataLoader: objects that torch's iterators are given, as by fastai's DataLoader."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.running import INJECT, SRC, run_observed

SCRIPT = """
    import sys
    import torch
    from torch.utils.data import DataLoader, IterableDataset
    from torch.utils.data.dataloader import (
        _DatasetKind, _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter)

    class Given:
        _IterableDataset_len_called, _auto_collation, drop_last, in_order = None, False, False, True
        dataset_kind = _dataset_kind = _DatasetKind.Iterable
        generator = worker_init_fn = multiprocessing_context = None
        pin_memory, pin_memory_device, timeout, persistent_workers = False, "", 0, False
        _get_shared_seed = collate_fn = staticmethod(lambda batch=None: batch)

        def __init__(self, loader, num_workers):
            self.dataset, self.num_workers = loader, num_workers
            self.prefetch_factor = 2 if num_workers else None
            self._index_sampler = range(1000)

        def __iter__(self):
            return iter(self.dataset)

    class Batches:
        def __init__(self, num_workers):
            self.given = Given(self, num_workers)

        def passes(self):
            kind = _MultiProcessingDataLoaderIter if self.given.num_workers else _SingleProcessDataLoaderIter
            yield from kind(self.given)

        def __iter__(self):
            for number in range(3):
                yield torch.full((6, 2), float(number))

    class Restless(DataLoader):
        def __iter__(self):
            return _SingleProcessDataLoaderIter(self)

    class Passing:
        def __init__(self, iterator):
            self.iterator = iterator

        def __next__(self):
            return next(self.iterator)

        def __iter__(self):
            return self

    class Wrapping(DataLoader):
        def _get_iterator(self):
            return Passing(super()._get_iterator())

    if __name__ == "__main__":
        kind, num_workers = sys.argv[1], int(sys.argv[2])
        own = Batches(num_workers)
        made = {"restless": Restless, "wrapping": Wrapping}.get(kind)
        loader = made(torch.zeros(18, 2), batch_size=6) if made else own
        for epoch in range(2):
            for batch in own.passes() if kind == "given" else loader:
                print(batch.shape)
"""
#: Where each makes its iterators.
LINES = {
    kind: next(number for number, line in enumerate(SCRIPT.splitlines(), 1) if text in line)
    for kind, text in (
        ("given", "yield from kind("),
        ("restless", "return _SingleProcess"),
        ("wrapping", "for batch in own"),
    )
}


@pytest.mark.parametrize(("kind", "workers"), [("given", 0), ("given", 1), ("restless", 0), ("wrapping", 0)])
def test_what_iterates_as_torchs_loader_does_is_recorded(tmp_path: Path, kind: str, workers: int) -> None:
    found = run_observed(SCRIPT, kind, str(workers), folder=tmp_path)
    assert found.returncode == 0, found.stderr
    assert not any("disabled" in notes for _, notes in found.processes.values())
    rows, notes = found.with_role("main")[0]
    (loader,) = notes["loader"]
    assert loader["own"] is (kind == "given")
    assert loader["num_workers"] == workers
    unknown = None if kind == "given" else False
    assert [loader[name] for name in ("shuffle", "drop_last")] == [unknown, unknown]
    assert loader["batch_size"] == (None if kind == "given" else 6)

    lines = {note["id"]: note["line"] for note in notes["site"]}
    begun = [row for row in rows if row.kind == "iter"]
    assert [(row.obj, row.value) for row in begun] == [(1, loader["id"]), (2, loader["id"])]
    assert {lines[row.site] for row in begun} == {LINES[kind]}
    assert [len(note["workers"]) for note in notes["iterator"][:1]] == [workers]
    fetched = [(row.obj, row.value, row.flags & 1) for row in rows if row.kind == "fetch"]
    one = [(6, 0)] * 3 + [(0, 1)]
    assert fetched == [(number, *rest) for number in (1, 2) for rest in one]
    assert not any(note["loader"] != loader["id"] for note in notes["batch"])


FASTAI = """
    from torch.utils.data.dataloader import _DatasetKind, _SingleProcessDataLoaderIter

    class _FakeLoader:
        _IterableDataset_len_called, _auto_collation, drop_last, in_order = None, False, False, True
        dataset_kind = _dataset_kind = _DatasetKind.Iterable
        generator = worker_init_fn = multiprocessing_context = prefetch_factor = None
        _index_sampler = range(1000)

        def __init__(self, d, pin_memory, num_workers, timeout, persistent_workers, pin_memory_device):
            self.dataset, self.d, self.pin_memory, self.num_workers = self, d, pin_memory, num_workers
            self.timeout, self.persistent_workers = timeout, persistent_workers
            self.pin_memory_device = pin_memory_device

        def collate_fn(self, batch):
            return batch

        def __iter__(self):
            return iter(self.d.create_batches())

    class DataLoader:
        def __init__(self, dataset, bs, shuffle=False, drop_last=False):
            self.dataset, self.bs, self.shuffle, self.drop_last = dataset, bs, shuffle, drop_last
            self.indexed, self.n = True, len(dataset)
            self.fake_l = _FakeLoader(self, False, 0, 0, persistent_workers=False, pin_memory_device="")

        def create_batches(self):
            for at in range(0, self.n, self.bs):
                yield self.dataset[at : at + self.bs]

        def __iter__(self):
            yield from _SingleProcessDataLoaderIter(self.fake_l)

    class DataLoaders:
        @classmethod
        def from_dsets(cls, train, valid, bs):
            return DataLoader(train, bs, shuffle=True), DataLoader(valid, bs)
"""


def test_fastais_loader_is_where_the_script_builds_it_and_what_it_asked_for(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "fastai" / "data"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    lines = [line[4:] for line in FASTAI.splitlines()]
    (package / "load.py").write_text("\n".join(lines))
    script = """
        import torch
        from fastai.data.load import DataLoaders
        train, valid = DataLoaders.from_dsets(torch.zeros(8, 2), torch.zeros(6, 2), bs=4)  # line 4
        for batch in train:
            pass
    """
    path = os.pathsep.join([str(INJECT), str(tmp_path / "site-packages")])
    found = run_observed(script, folder=tmp_path, env={"PYTHONPATH": path, "HOTLOOP_SRC": str(SRC)})
    assert found.returncode == 0, found.stderr
    train, valid = found.notes["loader"]
    lines_of = {note["id"]: note["line"] for note in found.notes["site"]}
    assert [lines_of[one["where"]] for one in (train, valid)] == [4, 4]
    assert train["by"] == "fastai.data.load:DataLoaders.from_dsets"
    names = ("class", "own", "num_workers", "batch_size", "shuffle", "drop_last", "given")
    assert [train[name] for name in names] == ["fastai.data.load.DataLoader", True, 0, 4, True, False, []]
    assert [one["dataset"]["len"] for one in (train, valid)] == [8, 6]
    assert train["dataset"]["class"] == "Tensor"
    assert [row.value for row in found.of("fetch")] == [4, 4, 0]
    assert {note["loader"] for note in found.notes["iterator"]} == {train["id"]}
