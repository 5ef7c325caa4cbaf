"""One cache for many processes, and what is left of it when some of them are killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_samples import Ragged, Squares, in_child, is_right, status_of
from test_cache import on_our_own  # noqa: F401
from torch.utils.data import DataLoader

import hotloop.feed.cache
from hotloop.feed.cache.cache import SampleCache
from hotloop.feed.cache.dataset import cached
from hotloop.feed.cache.table import READY, Header
from hotloop.feed.layout import ALIGNMENT

MIB = 1 << 20

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_fill_one_cache_however_they_are_started(method: str) -> None:
    kept = cached(Squares(60), 4 * MIB)
    loader = DataLoader(
        kept,
        batch_size=5,
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=True,
        timeout=120,
    )
    for epoch in range(2):
        for data, numbers in loader:
            rows = zip(data, numbers.tolist(), strict=True)
            assert all(is_right((row, number), number) for row, number in rows)
        assert (kept.stats().hits, kept.stats().misses) == (60 * epoch, 60)
    assert is_right(kept[7], 7)
    kept.close()


def hammer(kept: Any, seed: int) -> None:
    """Random reads, single and gathered; every sample must be whole."""
    random = np.random.default_rng(seed)
    for _ in range(60):
        indices = random.integers(0, len(kept), 6).tolist()
        assert all(is_right(kept[index], index) for index in indices)
        data, numbers = kept.gather(indices[:1] * 3)
        assert all(
            is_right((row, int(number)), indices[0]) for row, number in zip(data, numbers, strict=True)
        )


@pytest.mark.parametrize("kind", [Squares, Ragged])
def test_nobody_sees_a_sample_that_is_being_written(kind: Any) -> None:
    kept = cached(kind(40, 30_000), 600_000)
    children = [in_child(lambda seed=seed: hammer(kept, seed)) for seed in range(3)]
    hammer(kept, 9)
    assert [status_of(pid) for pid in children] == [0, 0, 0]
    check(kept.cache)
    kept.close()


def check(cache: SampleCache) -> None:
    """Nothing has two owners, nothing is lost, nothing is over the limit."""
    shared = cache._shared
    assert cache.resident_bytes <= cache.limit_bytes
    ready = np.flatnonzero(shared.table.state == READY)
    begins = np.sort(shared.table.offset[ready])
    sizes = -(-shared.table.num_bytes[ready] // ALIGNMENT) * ALIGNMENT
    ends = np.sort(shared.table.offset[ready] + sizes)
    assert (begins[1:] >= ends[:-1]).all()
    assert not ready.size or ends[-1] <= shared.header[Header.USED]


def killed_at_line(number: int, work: Callable[[], Any]) -> Callable[[], Any]:
    """``work``, killed with SIGKILL before the so-manieth line that it runs of the cache."""
    folder = str(Path(hotloop.feed.cache.__file__).parent)

    def run() -> None:
        left = number

        def trace(frame: Any, event: str, argument: Any) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.startswith(folder):
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        work()
        sys.settrace(None)

    return run


def test_a_writer_killed_at_any_line_loses_nothing_but_what_it_wrote() -> None:
    dataset = Ragged(12, 20_000)
    cache = SampleCache(12, max_bytes=16 * MIB)  # a stretch may be lost with each death
    new = 11

    def fill() -> None:
        for index in [*range(11), new]:
            if index not in cache:
                cache.put(index, dataset[index])

    def write() -> None:
        cache._shared.table.state[new] = 0
        cache.put(new, dataset[new])

    fill()
    number = 0
    while True:
        before = {index for index in range(11) if index in cache}
        status = status_of(in_child(killed_at_line(number, write)))
        if not status:
            break
        assert status == -signal.SIGKILL
        assert {index for index in range(11) if index in cache} >= before
        assert all(is_right(cache.get(index), index) for index in range(12) if index in cache)
        assert new in cache or cache.put(new, dataset[new])
        check(cache)
        number += 2
    assert number > 60
    cache.close()


def test_a_fork_while_a_thread_holds_the_lock_does_not_block_the_child() -> None:
    cache = SampleCache(4, max_bytes=MIB)
    held, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with cache._shared.lock:
            held.set()
            forked.wait()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    held.wait()
    child = in_child(lambda: cache.put(1, "from the child") or sys.exit(3))
    forked.set()
    thread.join()
    assert status_of(child) == 0
    assert cache.get(1) == "from the child"
    cache.close()


def test_a_lock_dies_with_its_holder_while_other_children_live() -> None:
    """A child forked while the lock is held shares no description with the holder."""
    cache = SampleCache(4, max_bytes=MIB)
    ready, wait = os.pipe(), os.pipe()

    def hold_and_die() -> None:
        cache._shared.lock.__enter__()
        grandchild = os.fork()
        if not grandchild:
            os.read(wait[0], 1)  # lives on, with everything it inherited
            os._exit(0)
        os.write(ready[1], b"x")
        os.kill(os.getpid(), signal.SIGKILL)

    child = in_child(hold_and_die)
    os.read(ready[0], 1)
    assert status_of(child) == -signal.SIGKILL
    assert cache.put(2, "after")
    os.write(wait[1], b"x")
    for descriptor in (*ready, *wait):
        os.close(descriptor)
    cache.close()
