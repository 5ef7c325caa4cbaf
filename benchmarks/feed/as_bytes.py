"""Images that were made of bytes, carried from two workers as floats and as bytes (``as_bytes=True``).

    python benchmarks/feed/as_bytes.py [--rounds 9] [--workers 2] [--out FILE]

Samples are uint8 images in memory made floats as ``ToTensor`` does it, and as ``Normalize`` does behind it,
so that carrying them is most of the work. Every batch is copied into a buffer that is used again, as a copy
to a device reads it once. Told are bytes carried, time per batch of the loop and processor time of the
training process, medians over epochs in turns; and what coding and looking up cost alone. On a CPU the
training process has to look the values up itself (``as_bytes`` is not for the CPU); on a GPU (**not yet
run**) the device does: ``bytes, not looked up`` is what is left to the host there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from hotloop import fast
from hotloop.feed.coding import Coded, CodedBatches, Lookup
from hotloop.feed.palette import Palette, look_up, table_of

SHAPES = ((256, 3, 64, 64), (64, 3, 224, 224))
MEAN, STD = (torch.tensor(values).view(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
NUM_BATCHES = 24


class Images(Dataset[Any]):  # type: ignore[misc,unused-ignore]
    """Bytes made floats."""

    def __init__(self, shape: tuple[int, ...], normalize: bool) -> None:
        self.normalize = normalize
        self.length = NUM_BATCHES * shape[0]
        self.images = torch.randint(0, 256, (512, *shape[1:]), dtype=torch.uint8)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> Any:
        image = self.images[i % len(self.images)].to(torch.float32).div_(255)
        return image.sub_(MEAN).div_(STD) if self.normalize else image, i % 10


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--beside", action="store_true", help="other programs run on this machine")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {
        "machine": {"cores": os.cpu_count(), "platform": platform.platform(), "torch": torch.__version__},
        "compiled": fast.encode is not None,
        "beside_other_programs": options.beside,
        "num_workers": options.workers,
        "rounds": options.rounds,
        "loops": [],
        "alone": [],
    }
    for shape in SHAPES:
        result["alone"].append(alone(shape))
        for normalize in (False, True):
            result["loops"].append(loops(shape, normalize, options.workers, options.rounds))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def loops(shape: tuple[int, ...], normalize: bool, workers: int, rounds: int) -> dict[str, Any]:
    """Both ways through one dataset, epoch by epoch in turns."""
    made = Images(shape, normalize)

    def loader() -> Any:
        return DataLoader(made, batch_size=shape[0], num_workers=workers)

    coded, here = CodedBatches(loader()), Lookup()
    ways: dict[str, Callable[[], Iterator[Any]]] = {
        "floats": loader().__iter__,
        "bytes": lambda: map(here, coded),
        "bytes, not looked up": CodedBatches(loader()).__iter__,
    }
    buffers = {torch.float32: torch.empty(shape), torch.uint8: torch.empty(shape, dtype=torch.uint8)}
    seen: dict[str, list[tuple[float, ...]]] = {way: [] for way in ways}
    for turn in range(rounds + 1):
        for way, begin in ways.items() if turn % 2 else reversed(ways.items()):
            batches = begin()
            read(next(batches)[0], buffers)
            started, cpu = time.perf_counter(), time.process_time()
            count = sum(read(images, buffers) for images, _ in batches)
            if turn:  # the first epoch warms up
                per_batch = (time.perf_counter() - started, time.process_time() - cpu)
                seen[way].append(tuple(value / count for value in per_batch))
    size = buffers[torch.float32].nbytes
    found: dict[str, Any] = {"shape": shape, "normalize": normalize, "ways": {}}
    for way, times in seen.items():
        wall, own = (statistics.median(column) for column in zip(*times, strict=True))
        found["ways"][way] = {
            "carried_bytes": size if way == "floats" else size // 4,
            "batch_s": wall,
            "training_process_cpu_s": own,
            "every_batch_s": [one[0] for one in times],
        }
    first, told = found["ways"]["floats"], []
    for way, each in found["ways"].items():
        ratios = [a[0] / b[0] for a, b in zip(seen["floats"], seen[way], strict=True)]
        each["ratio"] = statistics.median(ratios)
        each["every_ratio"] = ratios
        own = each["training_process_cpu_s"] * 1e3
        told.append(f"{way} {each['batch_s'] * 1e3:.1f} ms ({each['ratio']:.2f}x; {own:.1f} ms its own)")
    name = f"{'x'.join(map(str, shape))}{', normalized' if normalize else ''}"
    print(f"{name}, {first['carried_bytes'] / 1e6:.1f} MB as floats: {', '.join(told)}", flush=True)
    return found


def read(field: Any, buffers: dict[torch.dtype, torch.Tensor]) -> int:
    """Read a field of images once, in whichever form it came: 1."""
    values = field.numbers if isinstance(field, Coded) else field
    into = buffers[values.dtype]
    into.copy_(values.view(into.shape))
    return 1


def alone(shape: tuple[int, ...]) -> dict[str, Any]:
    """Coding a batch's samples, and looking its values up, into memory that is used again."""
    data = Images(shape, True)
    samples = [data[i][0] for i in range(shape[0])]
    palette = Palette(torch.float32, shape[1])
    numbers = torch.empty(shape, dtype=torch.uint8)
    inner = shape[2] * shape[3]
    for sample, into in zip(samples, numbers, strict=True):
        assert palette.encode(sample, into, inner)
    table = table_of(palette.table(), torch.float32, torch.device("cpu"))
    into = torch.empty(shape)

    def code() -> None:
        for sample, row in zip(samples, numbers, strict=True):
            palette.encode(sample, row, inner)

    def find() -> None:
        look_up(numbers, table, into, inner)

    def find_by_torch() -> None:
        compiled, fast.decode = fast.decode, None
        find()
        fast.decode = compiled

    def stack() -> None:
        torch.stack(samples, 0, out=into)

    found: dict[str, Any] = {"shape": shape}
    calls = {"code": code, "look_up": find, "look_up_by_torch": find_by_torch, "stack": stack}
    for name, call in calls.items():
        times = []
        for _ in range(12):
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
        found[f"{name}_s"] = statistics.median(times)
    told = ", ".join(f"{name} {found[f'{name}_s'] * 1e3:.1f} ms" for name in calls)
    print(f"{'x'.join(map(str, shape))} alone: {told}")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
