"""Loaders that are no DataLoader: objects that torch's iterators are given."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.running import run_observed, succeeded

SCRIPT = """
    import sys
    import torch
    from torch.utils.data import DataLoader, IterableDataset
    from torch.utils.data.dataloader import (
        _DatasetKind, _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter)

    class Given:
        _IterableDataset_len_called, _auto_collation, drop_last, in_order = None, False, False, True
        dataset_kind = _dataset_kind = _DatasetKind.Iterable
        generator = worker_init_fn = None; multiprocessing_context = torch.multiprocessing.get_context("fork")
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
    found = succeeded(run_observed(SCRIPT, kind, str(workers), folder=tmp_path))
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
