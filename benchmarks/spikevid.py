"""What spikevid's clips cost to load, and what its shared cache hits and holds.

    python benchmarks/spikevid.py [--fraction 0.5] [--workers 2] [--out FILE]

Clips are those of the guide: five frames of 720 x 1280, a crop of 256. The cache is given a part of the set
at cpu scale and every frame is read once an epoch; then all processes stand still and /proc is read: the
pages of the cache, each once, and the memory of main process and workers (PSS) beside that of the same
without a cache.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "workloads" / "spikevid"), str(ROOT / "benchmarks" / "feed")]

from memory import pss_bytes, shared_files  # type: ignore[import-not-found]  # noqa: E402

from hotloop.feed import Loader, cached  # noqa: E402

from data import Frames, make_data  # type: ignore[import-not-found]  # noqa: E402
from loaders import (  # type: ignore[import-not-found]  # noqa: E402
    ByteClips,
    ClipSampler,
    Expand,
    FloatClips,
    FrameBytes,
)

CLIP_LEN, CROP, SENSOR = 5, 256, (10, 396, 640)


def milliseconds(count: int, load: Callable[[int], object]) -> float:
    """The median over ``count`` calls."""
    found = []
    for number in range(count):
        begin = time.perf_counter()
        load(number)
        found.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(found)


def clips() -> dict[str, float]:
    """Milliseconds and bytes of one clip, as found and cured."""
    torch.set_num_threads(1)
    frames = Frames(make_data("links", voxels=True), "train", SENSOR)
    live, stored = (FloatClips(frames, CLIP_LEN, CROP, None, kind) for kind in (False, True))
    keys = [(97 * number, 12345 * number) for number in range(22)]
    store = cached(FrameBytes(frames), 22 * CLIP_LEN * 8_100_000, copy=False)
    cured = ByteClips(frames, CLIP_LEN, CROP, store)
    batch = torch.utils.data.default_collate([cured[keys[0]]])
    expand = Expand(frames, CROP, torch.device("cpu"))
    size = {"as found": live[keys[0]], "cured": cured[keys[0]]}
    return {
        "as found, live voxels, ms": milliseconds(4, lambda n: live[keys[n]]),
        "as found, stored voxels, ms": milliseconds(4, lambda n: stored[keys[n]]),
        "cured, first time, ms": milliseconds(4, lambda n: cured[keys[n + 1]]),
        "cured, in the cache, ms": milliseconds(200, lambda n: cured[keys[n % 4 + 1][0], 97531 * n]),
        "cured, made floats of, ms": milliseconds(10, lambda n: expand(batch)),
        **{f"{name}, MB": sum(v.nbytes for v in clip.values()) / 1e6 for name, clip in size.items()},
    }


def held(store: Any, workers: int, epochs: int) -> dict[str, Any]:
    """Read every frame once an epoch; hit rates by epoch, and what all processes hold at the end."""
    frames = store.frames if isinstance(store, FrameBytes) else store.dataset.frames
    data = ByteClips(frames, 1, CROP, store)
    sampler = ClipSampler(data.sequence_lengths(), 0)
    loader = Loader(data, sampler=sampler, num_workers=workers, persistent_workers=True)
    rates, before = [], (0, 0)
    for sampler.epoch in range(epochs):
        for _ in loader:
            pass
        if hasattr(store, "stats"):
            now = store.stats().hits, store.stats().misses
            hits, misses = (after - one for after, one in zip(now, before, strict=True))
            rates.append(hits / (hits + misses))
            before = now
    pids = [psutil.Process().pid, *(child.pid for child in psutil.Process().children(recursive=True))]
    pages = sum(size for (_, label), size in shared_files(pids).items() if "cache" in label)
    return {
        "processes": len(pids),
        "hit_rates": rates,
        "cache_bytes": pages,
        "pss_bytes": sum(map(pss_bytes, pids)),
    }


def cache(fraction: float, workers: int) -> dict[str, Any]:
    """A cache for a part of the set at cpu scale."""
    frames = Frames(make_data("cpu"), "train", SENSOR)
    plain = FrameBytes(frames)
    whole = len(plain) * sum(value.nbytes for value in plain[0].values())
    without = held(plain, workers, 1)
    budget = int(fraction * whole)
    found = held(cached(FrameBytes(frames), budget, copy=False), workers, 3)
    return {
        "set_bytes": whole,
        "budget_bytes": budget,
        **found,
        "more_than_without_bytes": found["pss_bytes"] - without["pss_bytes"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fraction", type=float, default=0.5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    loading = clips()
    for name, value in loading.items():
        print(f"{name:<32}{value:>10,.1f}")
    kept = cache(options.fraction, options.workers)
    budget = kept["budget_bytes"]
    print(
        f"\ncache for {options.fraction:.0%} of {kept['set_bytes'] / 2**20:,.0f} MiB, "
        f"{kept['processes']} processes\nhit rate by epoch    "
        + "  ".join(f"{rate:.1%}" for rate in kept["hit_rates"])
        + f"\ncache, resident      {kept['cache_bytes'] / budget:.1%} of the budget"
        f"\nmore than without    {kept['more_than_without_bytes'] / budget:.1%} of the budget"
    )
    if options.out:
        options.out.write_text(json.dumps({"clips": loading, "cache": kept}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
