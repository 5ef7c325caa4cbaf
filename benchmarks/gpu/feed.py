"""The feeding library on a device: bandwidth of the pinned ring, overlap with computation, and waiting.

    PYTHONPATH=src python benchmarks/gpu/feed.py [--device cuda] [--rounds 5] [--seconds 2] [--out FILE]

Rounds alternate: the plain copy of one pinned tensor that is the machine's limit, then the same bytes through
Loader and DevicePrefetcher, and through torch's DataLoader. `--device cpu` runs every line without a device,
for a test of this file: its numbers mean nothing. Not yet run on a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from hotloop.feed import DevicePrefetcher, Loader, cached

SIDE = 224
BATCH_SIZE = 128
NUM_IMAGES = 2048
MAX_WAIT_SHARE = 0.01
WARM_UP_STEPS = 3


class Images(Dataset[tuple[torch.Tensor, int]]):
    """uint8 images in memory, to be cached."""

    def __init__(self, count: int, side: int) -> None:
        generator = torch.Generator().manual_seed(0)
        shape = (count, 3, side, side)
        self.images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.images[index], index % 10


class Clock:
    """Seconds on the device, or on the host where the device has no streams."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--count", type=int, default=NUM_IMAGES)
    parser.add_argument("--side", type=int, default=SIDE)
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        print("no CUDA device: the GPU part has not been run on this machine")
        return 0
    result = measure(args)
    print(as_markdown(result))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(as_markdown(result))
    return 0


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All three parts with one cached dataset."""
    device = torch.device(args.device)
    clock = Clock(device)
    dataset = cached(Images(args.count, args.side), max_bytes="auto")
    options: dict[str, Any] = {
        "batch_size": args.batch_size,
        "shuffle": True,
        "num_workers": args.workers,
        "persistent_workers": args.workers > 0,
        "pin_memory": device.type != "cpu",
        "drop_last": True,
    }
    ways = {"Loader": Loader(dataset, **options), "DataLoader": DataLoader(dataset, **options)}
    for way in ways.values():
        # The first epoch fills the cache and starts the workers.
        for _ in way:
            pass
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu: a test of this file",
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "settings": {key: value for key, value in vars(args).items() if key != "out"},
        "bandwidth": bandwidth(ways, clock, args),
        "overlap": overlap(ways, clock, args),
        "waiting": waiting(ways, clock, args),
    }


def bandwidth(ways: dict[str, Any], clock: Clock, args: argparse.Namespace) -> dict[str, Any]:
    """Bytes per second onto the device, against one pinned tensor copied again and again, paired by round."""
    num_bytes = args.batch_size * 3 * args.side * args.side
    rates: dict[str, list[float]] = {"plain pinned copy": [], **{name: [] for name in ways}}
    for _ in range(args.rounds):
        rates["plain pinned copy"].append(plain_copies(num_bytes, clock, args.seconds))
        for name, loader in ways.items():
            prefetcher = DevicePrefetcher(loader, clock.device)
            moved, start = 0, clock.now()
            for batch in repeated(prefetcher, args.seconds):
                moved += batch[0].nbytes
            rates[name].append(moved / (clock.now() - start))
    limit = rates["plain pinned copy"]
    return {
        name: {"bytes_s": spread(found), "share": spread([x / y for x, y in zip(found, limit, strict=True)])}
        for name, found in rates.items()
    }


def plain_copies(num_bytes: int, clock: Clock, seconds: float) -> float:
    """The limit of the bus: bytes per second of one page-locked tensor copied to the same place."""
    source = torch.ones(num_bytes, dtype=torch.uint8)
    if clock.device.type == "cuda":
        source = source.pin_memory()
    target = torch.empty_like(source, device=clock.device)
    moved, start = 0, clock.now()
    while not moved or time.perf_counter() - start < seconds:
        for _ in range(20):
            target.copy_(source, non_blocking=True)
        moved += 20 * num_bytes
        clock.now()
    return moved / (clock.now() - start)


def overlap(ways: dict[str, Any], clock: Clock, args: argparse.Namespace) -> dict[str, Any]:
    """How much of the loader's and the bus's time hides behind computation: 1 is all of the shorter one."""
    work = Work(clock, seconds=2.0 * args.batch_size * 3 * args.side**2 / 10e9)
    found: dict[str, Any] = {}
    for name, loader in ways.items():
        shares = []
        for _ in range(args.rounds):
            batches = len(loader)
            prefetcher = DevicePrefetcher(loader, clock.device)
            feed_s = timed(clock, lambda: drain(prefetcher))  # noqa: B023
            work_s = timed(clock, lambda: [work() for _ in range(batches)])  # noqa: B023
            both_s = timed(clock, lambda: [work() for _ in prefetcher])  # noqa: B023
            shares.append((feed_s + work_s - both_s) / min(feed_s, work_s))
        found[name] = spread(shares)
    return found


class Work:
    """Matrix products on the device that take about ``seconds``."""

    def __init__(self, clock: Clock, *, seconds: float) -> None:
        size = 2048 if clock.device.type == "cuda" else 128
        self.matrix = torch.rand(size, size, device=clock.device)
        self.times = 1
        once_s = min(timed(clock, self) for _ in range(10))
        self.times = max(1, round(seconds / once_s))

    def __call__(self) -> None:
        for _ in range(self.times):
            self.matrix @ self.matrix


def waiting(ways: dict[str, Any], clock: Clock, args: argparse.Namespace) -> dict[str, Any]:
    """The share of a training step that its batch costs on a cached set, by two measures.

    ``share``: host time until a batch is there. ``longer``: how much longer the steps are than those of the
    same round on one batch that stays on the device, which also sees what the device waits for.
    """
    model = small_network().to(clock.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    found: dict[str, dict[str, list[float]]] = {
        name: {"share": [], "longer": [], "step_s": []} for name in ways
    }
    for _ in range(args.rounds):
        for name, loader in ways.items():
            prefetcher = DevicePrefetcher(loader, clock.device, transform=as_input)
            waited_s, step_s = train(model, optimizer, repeated(prefetcher, args.seconds), clock)
            stays = next(iter(prefetcher))
            _, resident_s = train(model, optimizer, same(stays, args.seconds), clock)
            found[name]["share"].append(waited_s / step_s)
            found[name]["longer"].append(step_s / resident_s - 1)
            found[name]["step_s"].append(step_s)
    return {name: {key: spread(values) for key, values in row.items()} for name, row in found.items()}


def train(model: nn.Module, optimizer: Any, batches: Iterator[Any], clock: Clock) -> tuple[float, float]:
    """Mean seconds per step that the host waited, and in all, after the first steps."""
    waited_s, steps, begin = 0.0, -WARM_UP_STEPS, 0.0
    while True:
        if steps == 0:
            waited_s, begin = 0.0, clock.now()
        asked = time.perf_counter()
        batch = next(batches, None)
        waited_s += time.perf_counter() - asked
        if batch is None:
            break
        images, labels = batch
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if clock.device.type == "cuda":
            # As a loop that logs its loss does; the copies on the other stream go on.
            torch.cuda.current_stream(clock.device).synchronize()
        steps += 1
    if steps <= 0:
        raise ValueError("no step was measured: give --seconds or --count more")
    return waited_s / steps, (clock.now() - begin) / steps


def same(batch: Any, seconds: float) -> Iterator[Any]:
    start, steps = time.perf_counter(), 0
    while steps < 2 * WARM_UP_STEPS or time.perf_counter() - start < seconds:
        yield batch
        steps += 1


def small_network() -> nn.Module:
    """Convolutions worth a few milliseconds of an accelerator."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 128, 256, 512):
        layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def as_input(batch: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = batch
    return images.float().div_(255), labels


def repeated(loader: Iterable[Any], seconds: float) -> Iterator[Any]:
    """Whole epochs until the time is over."""
    start = time.perf_counter()
    while True:
        yield from loader
        if time.perf_counter() - start >= seconds:
            return


def drain(loader: Iterable[Any]) -> None:
    for _ in loader:
        pass


def timed(clock: Clock, call: Callable[[], Any]) -> float:
    start = clock.now()
    call()
    return clock.now() - start


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and middle half."""
    quarters = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"median": statistics.median(values), "low": quarters[0], "high": quarters[2]}


def as_markdown(result: dict[str, Any]) -> str:
    """The three parts as a table."""
    lines = [f"# Feeding a device\n\n{result['device']}, torch {result['torch']}, {result['date']}\n"]
    lines += ["| way | GB/s to the device | of the limit | hidden | waiting | longer | step |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for name, row in result["bandwidth"].items():
        text = f"| {name} | {row['bytes_s']['median'] / 1e9:.2f} | {row['share']['median']:.0%} |"
        if name in result["overlap"]:
            hidden, wait = result["overlap"][name]["median"], result["waiting"][name]
            text += f" {hidden:.0%} | {wait['share']['median']:.2%} | {wait['longer']['median']:+.2%} |"
            text += f" {wait['step_s']['median'] * 1e3:.2f} ms |"
        else:
            text += " | | | |"
        lines.append(text)
    share = result["waiting"]["Loader"]["share"]["median"]
    met = "met" if share < MAX_WAIT_SHARE else "NOT met"
    lines.append(f"\nWaiting below {MAX_WAIT_SHARE:.0%} of a step on a cached set: {met} ({share:.2%}).")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
