"""What spikevid's clips cost to load, what its shared cache hits and holds, what the guide's plans compute,
whether it compiles.

    python benchmarks/spikevid.py [--fraction 0.5] [--workers 2] [--only PART] [--out FILE]

Clips are those of the guide: five frames of 720 x 1280, a crop of 256. The cache is given a part of the set
at cpu scale and every frame is read once an epoch; then all processes stand still and /proc is read: the
pages of the cache, each once, and the memory of main process and workers (PSS) beside that of the same
without a cache. Plans are counted in floating-point operations of a forward pass at full scale (no numbers
are computed), which is not their time on a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.utils.flop_counter import FlopCounterMode

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "workloads" / "spikevid"), str(ROOT / "benchmarks" / "feed")]

from memory import pss_bytes, shared_files  # type: ignore[import-not-found]  # noqa: E402
from train import model_settings, parse_args  # type: ignore[import-not-found]  # noqa: E402

from hotloop.feed import Loader, cached  # noqa: E402

from config import Config  # type: ignore[import-not-found]  # noqa: E402
from data import Frames, make_data  # type: ignore[import-not-found]  # noqa: E402
from loaders import (  # type: ignore[import-not-found]  # noqa: E402
    ByteClips,
    ClipSampler,
    Expand,
    FloatClips,
    FrameBytes,
)
from model import Block, SpikeVRT  # type: ignore[import-not-found]  # noqa: E402
from steps import charbonnier  # type: ignore[import-not-found]  # noqa: E402

CLIP_LEN, CROP, SENSOR = 5, 256, (10, 396, 640)
PLAN_AND_SCALE = "deblur/vrt_spike_cured.yaml", "scales/tiny.yaml"


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
    store = cached(FrameBytes(frames), 22 * CLIP_LEN * 8_100_000)
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
    found = held(cached(FrameBytes(frames), budget), workers, 3)
    return {
        "set_bytes": whole,
        "budget_bytes": budget,
        **found,
        "more_than_without_bytes": found["pss_bytes"] - without["pss_bytes"],
    }


def plans() -> dict[str, dict[str, float]]:
    """Parameters, operations of a forward pass of one clip, and the shares of the stages the guide names."""
    found = {}
    for plan in ("baseline", "opt", "fast"):
        file = ROOT / "workloads/spikevid/configs/deblur" / f"vrt_spike_{plan}.yaml"
        args, config = parse_args(["--variant", "guide", "--scale", "full"]), Config([file])
        crop = config.count("DATA.TRAIN_CROP_SIZE", CROP)
        stages: dict[str, int] = {}
        with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
            model = SpikeVRT(**model_settings(args, config))

            @contextmanager
            def count(name: str, counter: FlopCounterMode = counter, stages: dict[str, int] = stages) -> Any:
                before = counter.get_total_flops()
                yield
                stages[name] = counter.get_total_flops() - before

            model(torch.empty(1, CLIP_LEN, 3, crop, crop), torch.empty(1, CLIP_LEN, 32, crop, crop), count)
        total = counter.get_total_flops()
        found[plan] = {
            "parameters": sum(p.numel() for p in model.parameters()),
            "crop": crop,
            "flops": total,
            **{name: stages[name] / total for name in ("Stage 8", "Stage 2", "Stage 1 fusion")},
        }
    return found


def compiled(whole: bool, steps: int = 6) -> dict[str, Any]:
    """Losses and times of the model at tiny scale, as it is and compiled by inductor: whole or by block."""
    torch.set_num_threads(1)
    args = parse_args(["--variant", "cured", "--scale", "tiny"])
    files = [ROOT / "workloads/spikevid/configs" / name for name in PLAN_AND_SCALE]
    settings = model_settings(args, Config(files))
    found: dict[str, Any] = {}
    for name in ("as it is", "compiled"):
        torch.manual_seed(0)
        model = SpikeVRT(**settings)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        run = model
        if name == "compiled" and whole:
            run = torch.compile(model)
        elif name == "compiled":
            for block in model.modules():
                if isinstance(block, Block):
                    block.compile(dynamic=False)
        blur, voxel = torch.rand(1, CLIP_LEN, 3, 32, 32), torch.rand(1, CLIP_LEN, 32, 32, 32)
        losses, seconds = [], []
        for _ in range(steps):
            begin = time.perf_counter()
            loss = charbonnier(run(blur, voxel), blur.roll(1, -1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            seconds.append(time.perf_counter() - begin)
        found[name] = {"losses": losses, "first_s": seconds[0], "step_s": statistics.median(seconds[1:])}
    found["graphs"] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    found["graph_breaks"] = sum(torch._dynamo.utils.counters["graph_break"].values())
    return found


def show_compiled(found: Mapping[str, Any]) -> None:
    plain, made = found["as it is"], found["compiled"]
    apart = max(abs(a / b - 1) for a, b in zip(made["losses"], plain["losses"], strict=True))
    print(f"graphs {found['graphs']}, breaks {found['graph_breaks']}; losses differ by at most {apart:.1e}")
    for name in ("as it is", "compiled"):
        row = found[name]
        print(f"{name:<10}first step {row['first_s']:>8.1f} s, then {1e3 * row['step_s']:>8.1f} ms a step")


def show_plans(found: Mapping[str, Mapping[str, float]]) -> None:
    print(
        f"{'':<10}{'parameters':>12}{'crop':>6}{'GFLOP':>10}{'a pixel':>9}  Stage 8  Stage 2  Stage 1 fusion"
    )
    base = found["baseline"]
    for plan, row in found.items():
        ratio = row["flops"] / base["flops"] * (base["crop"] / row["crop"]) ** 2 - 1
        print(
            f"{plan:<10}{row['parameters']:>12,}{row['crop']:>6}{row['flops'] / 1e9:>10,.0f}{ratio:>+9.0%}  "
            f"{row['Stage 8']:>7.1%}  {row['Stage 2']:>7.1%}  {row['Stage 1 fusion']:>14.1%}"
        )


def show_cache(kept: Mapping[str, Any], fraction: float) -> None:
    budget = kept["budget_bytes"]
    print(
        f"cache for {fraction:.0%} of {kept['set_bytes'] / 2**20:,.0f} MiB, {kept['processes']} processes\n"
        "hit rate by epoch    "
        + "  ".join(f"{rate:.1%}" for rate in kept["hit_rates"])
        + f"\ncache, resident      {kept['cache_bytes'] / budget:.1%} of the budget"
        f"\nmore than without    {kept['more_than_without_bytes'] / budget:.1%} of the budget"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fraction", type=float, default=0.5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=("clips", "cache", "plans", "compiled", "blocks"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.only in (None, "cache"):
        found["cache"] = cache(options.fraction, options.workers)
        show_cache(found["cache"], options.fraction)
    if options.only in (None, "clips"):
        found["clips"] = clips()
        for name, value in found["clips"].items():
            print(f"{name:<32}{value:>10,.1f}")
    if options.only in (None, "plans"):
        found["plans"] = plans()
        show_plans(found["plans"])
    if options.only in ("compiled", "blocks"):  # minutes, of which all but a second is compiling
        found[options.only] = compiled(whole=options.only == "compiled")
        show_compiled(found[options.only])
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
