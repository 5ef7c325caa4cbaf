"""A job of its own that caches, told what to do line by line on its standard input; answers in JSON.

Under torchrun, with ``epochs`` as its argument, it is one rank of a training run instead.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
from cache_samples import Squares, is_right
from torch.utils.data import DataLoader, DistributedSampler

from hotloop.feed import budget
from hotloop.feed.cache.dataset import CachedDataset, cached

MIB = 1 << 20


def answer(kept: CachedDataset, **more: Any) -> None:
    stats = kept.stats()
    figures = {
        "pid": os.getpid(), "items": stats.num_items, "hits": stats.hits, "misses": stats.misses,
        "limit": stats.limit_bytes, "resident": stats.resident_bytes, "notes": stats.notes,
        "inode": os.fstat(kept.cache._file.descriptor).st_ino,
    }  # fmt: skip
    print(json.dumps({**figures, **more}), flush=True)


def serve(kept: CachedDataset) -> None:
    answer(kept)
    for line in sys.stdin:
        word, *numbers = line.split()
        if word == "read":
            first, last = map(int, numbers)
            right = all(is_right(kept[index], index) for index in range(first, last))
            answer(kept, right=right)
        if word == "close":
            kept.close()
            print("{}", flush=True)


def train(max_bytes: int) -> None:
    """Three epochs of a rank with two workers."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    kept = cached(Squares(400, 50_000), max_bytes)
    torch.distributed.barrier()
    sampler: Any = DistributedSampler(kept, shuffle=True)
    right = True
    hit_rates = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        torch.distributed.barrier()
        before = kept.stats()
        torch.distributed.barrier()
        for data, numbers in DataLoader(kept, batch_size=8, sampler=sampler, num_workers=2):
            rows = zip(data, numbers.tolist(), strict=True)
            right &= all(is_right((row, number), number) for row, number in rows)
        torch.distributed.barrier()
        after = kept.stats()
        hit_rates.append((after.hits - before.hits) / 400)
    torch.distributed.barrier()
    if rank == 0:
        answer(kept, right=right, hit_rates=hit_rates)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    # A machine that is short of memory for other reasons has nothing to do with these tests.
    budget.memory_is_short = lambda: False  # type: ignore[assignment]
    if sys.argv[1] == "epochs":
        train(int(sys.argv[2]))
    else:
        options = json.loads(sys.argv[1])
        serve(cached(Squares(options.pop("num_items", 40)), options.pop("max_bytes", MIB), **options))
