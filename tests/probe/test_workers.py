"""Batches being made, in workers of every start method and in the main process; no dataset notices."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch.utils.data._utils.fetch as torch_fetch
from tests.running import Observed, Row, run_observed, succeeded
from torch.utils.data import DataLoader, DistributedSampler

from hotloop.hooks.wrapping import same_code
from hotloop.probe.observers.loaders import batch_sizes
from hotloop.probe.observers.workers import BYTES_FIRST, MOST_SKIPPED, WORTH_OBSERVING_NS, _known_code

SCRIPT = """
import sys, time
import numpy, random
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

class Map(Dataset):
    def __len__(self):
        return 22
    def __getitem__(self, i):
        if i == 5:
            time.sleep(0.02)
        noise = torch.rand(3)
        x = torch.full((4,), float(i))
        return {"x": x, "noise": noise, "np": numpy.random.rand(2), "r": random.random()}

class Many(Map):
    def __getitems__(self, indices):
        return [self[i] for i in indices]

class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for i in range(first, 22, step):
            yield torch.full((4,), float(i))

if __name__ == "__main__":
    kind, workers, context = sys.argv[1], int(sys.argv[2]), sys.argv[3] or None
    size = int(sys.argv[4]) or None
    random.seed(1); numpy.random.seed(2); torch.manual_seed(3)
    dataset = {"map": Map, "many": Many, "stream": Stream}[kind]()
    loader = DataLoader(dataset, batch_size=size, num_workers=workers, multiprocessing_context=context,
                        drop_last=bool(size))
    digest = []
    for batch in loader:
        values = batch.values() if isinstance(batch, dict) else [batch]
        digest.append([v.double().sum().item() if isinstance(v, torch.Tensor) else v for v in values])
    print(digest)
    print(torch.rand(1).item(), random.random())
"""


_plain: dict[tuple[str, int, int], Observed] = {}


def unobserved(kind: str, workers: int, size: int, folder: Path) -> Observed:
    """The same without hotloop; seeds depend neither on the start method nor on how samples are asked for."""
    key = ("stream" if kind == "stream" else "map", workers, size)
    if key not in _plain:
        context = "fork" if workers else ""
        _plain[key] = run_observed(
            SCRIPT, key[0], str(workers), context, str(size), folder=folder, observed=False
        )
    return _plain[key]


def made(observed: Observed) -> tuple[list[Row], list[dict[str, Any]]]:
    """Every row and every process note, over all processes."""
    rows = [row for rows, _ in observed.processes.values() for row in rows]
    notes = [note for _, notes in observed.processes.values() for note in notes.get("process", [])]
    return rows, notes


@pytest.mark.parametrize(
    ("kind", "workers", "context", "size"),
    [
        ("map", 0, "", 4),
        ("map", 2, "fork", 4),
        ("many", 2, "spawn", 4),
        ("stream", 2, "fork", 4),
        pytest.param("stream", 2, "forkserver", 4, marks=pytest.mark.nightly),
        ("map", 0, "", 0),
    ],
)
def test_batches_are_timed_and_are_the_same_batches(
    tmp_path: Path, kind: str, workers: int, context: str, size: int
) -> None:
    arguments = (kind, str(workers), context, str(size))
    observed = run_observed(SCRIPT, *arguments, folder=tmp_path)
    plain = unobserved(kind, workers, size, tmp_path / "plain")
    assert observed.returncode == plain.returncode == 0, observed.stderr
    assert observed.stdout == plain.stdout
    assert observed.stderr == plain.stderr

    rows, notes = made(observed)
    makes = [row for row in rows if row.kind == "make"]
    batches = (5 if kind != "stream" or workers == 0 else 4) if size else 22
    if not workers:  # after the first 8, each row but the last stands for as many as are worth no look
        durations = [row.dur for row in makes]
        took = [max(pair) for pair in pairwise([0, *durations])]
        stand_for = [
            1 + (min(MOST_SKIPPED, WORTH_OBSERVING_NS // (dur + 1)) & ~1) if number >= BYTES_FIRST else 1
            for number, dur in enumerate(took)
        ]
        assert sum(stand_for[:-1]) < batches <= sum(stand_for)
        assert stand_for[-1] > 1 or sum(stand_for) == batches
        batches = len(makes)
    assert len(makes) == batches
    assert {row.extra for row in makes} == {size or 1}
    assert {row.obj for row in makes} == (set(range(1, workers + 1)) or {0})
    assert {note["worker"] for note in notes if note["role"] == "worker"} == set(range(workers))
    assert all(row.value >= 16 for row in makes[:8])
    assert not any("disabled" in notes for _, notes in observed.processes.values())

    collates = [row for row in rows if row.kind == "collate"]
    assert len(collates) == batches
    slowest = [row for row in rows if row.kind == "slowest"]
    if kind == "map" and size:
        assert len(slowest) == batches
        assert max(slowest, key=lambda row: row.dur).value == 5
    elif kind == "stream":
        assert not slowest
    if workers:
        stats = [note for _, notes in observed.processes.values() for note in notes.get("worker_stat", [])]
        assert {note["worker"] for note in stats} == set(range(workers))
        assert all(note["cpu_s"] > 0 for note in stats)
        main = next(note for note in notes if note["role"] == "main")
        assert {n["parent_main_pid"] for n in notes if n["role"] == "worker"} == {main["pid"]}


def test_cheap_batches_in_turn_with_dear_ones_hide_none_of_these(tmp_path: Path) -> None:
    script = """
        import time, torch
        from torch.utils.data import DataLoader, Dataset
        class Samples(Dataset):
            def __init__(self, seconds): self.seconds = seconds
            def __len__(self): return 40
            def __getitem__(self, i):
                time.sleep(self.seconds)
                return i
        for pair in zip(DataLoader(Samples(0)), DataLoader(Samples(0.02))):
            pass
    """
    observed = succeeded(run_observed(script, folder=tmp_path))
    dear = [row for row in made(observed)[0] if row.kind == "make" and row.dur > 15_000_000]
    assert len(dear) >= 40, "a cheap one may be held up too"


@pytest.mark.parametrize("workers", ["0", "1"])
def test_an_error_in_the_dataset_keeps_its_type_and_its_traceback(tmp_path: Path, workers: str) -> None:
    script = """
        import sys, torch
        from torch.utils.data import DataLoader, Dataset
        class Broken(Dataset):
            def __len__(self): return 8
            def __getitem__(self, i):
                return {}["missing"]  # THE LINE
        if __name__ == "__main__":
            try:
                list(DataLoader(Broken(), batch_size=4, num_workers=int(sys.argv[1])))
            except KeyError as error:
                print(type(error).__name__)
                raise
    """
    observed = run_observed(script, workers, folder=tmp_path)
    assert observed.returncode == 1
    assert observed.stdout == "KeyError\n"
    assert 'return {}["missing"]  # THE LINE' in observed.stderr
    assert "hotloop" not in observed.stderr
    assert [row for row in made(observed)[0] if row.kind == "make"] == []


def test_what_is_repeated_is_what_this_torch_does() -> None:
    for name, code in _known_code().items():
        assert same_code(getattr(torch_fetch, name).fetch.__code__, code)


def test_another_body_is_told_apart() -> None:
    known = _known_code()
    assert not same_code(known["_MapDatasetFetcher"], known["_IterableDatasetFetcher"])

    class Changed:
        def fetch(self, possibly_batched_index: Any) -> Any:
            if self.auto_collation:  # type: ignore[attr-defined]
                if hasattr(self.dataset, "__getitems__") and self.dataset.__getitems__:  # type: ignore[attr-defined]
                    data = self.dataset.__getitems__(possibly_batched_index)  # type: ignore[attr-defined]
                else:
                    data = [self.dataset[idx + 1] for idx in possibly_batched_index]  # type: ignore[attr-defined]
            else:
                data = self.dataset[possibly_batched_index]  # type: ignore[attr-defined]
            return self.collate_fn(data)  # type: ignore[attr-defined]

    assert not same_code(Changed.fetch.__code__, known["_MapDatasetFetcher"])


def test_a_worker_that_is_killed_has_told_of_the_source_it_ran(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(
        "import time\nclass Slow:\n    def __len__(self):\n        return 999\n"
        "    def __getitem__(self, i):\n        time.sleep(0.05)\n        return i\n"
    )
    script = """
        import os, time
        from torch.utils.data import DataLoader
        from parts import Slow
        batches = iter(DataLoader(Slow(), batch_size=2, num_workers=1, multiprocessing_context="fork"))
        until = time.monotonic() + 1.6
        while time.monotonic() < until:
            next(batches)
        try:
            for worker in batches._workers:
                worker.kill()
        finally:
            os._exit(0)
    """
    ((_, notes),) = run_observed(script, folder=tmp_path).with_role("worker")
    assert not notes.get("exit")
    assert str(tmp_path / "parts.py") in {note["file"] for note in notes.get("source", [])}


def test_the_batches_of_a_rank_are_counted_from_its_sampler() -> None:
    data = [*range(10)]
    sampler: DistributedSampler[int] = DistributedSampler(data, num_replicas=3, rank=0)  # 4 samples each
    assert batch_sizes(DataLoader(data, batch_size=3, sampler=sampler), len) == (3, 1, 2)
