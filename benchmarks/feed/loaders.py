"""Samples per second through every loader, first batches, each way in a process of its own.

    python benchmarks/feed/loaders.py [--rounds 5] [--seconds 1.5] [--only REGEX] [--part NAME ...] [--out F]

images: uint8 3 x 224 x 224 that are cached or baked; tiny: 64 bytes each; jpegs: decode and random resized
crop by the same Pillow for everyone (FFCV: by its own); first-fork, first-spawn: seconds to the first batch.
Every batch is copied out into a buffer that is used again, as a copy to a device would.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import harness
import sources
from harness import Target, Way

TORCH = "DataLoader"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One comparison: its ways, the first of which is what the others are compared with."""

    title: str
    ways: tuple[Way, ...]
    mode: str = "throughput"
    unit: str = "samples/s"
    settings: Mapping[str, Any]
    #: Rounds for each one asked for: small differences need more.
    repeat: int = 1


def torch_way(call: str) -> Way:
    return Way(name=TORCH, module="torch_loader", call=call)


def peer(name: str, module: str, call: str, environment: str, *, context: bool = True) -> Way:
    return Way(name=name, module=module, call=call, environment=environment, context=context)


def ceiling(call: str) -> Way:
    """What the machine allows whoever has processes: what every ratio is to be read against."""
    return Way(name="work and copies, no loader", module="ceiling", call=call)


def ours(name: str, call: str, *, context: bool = False) -> Way:
    return Way(name=name, module="hotloop_loader", call=call, context=context)


PARTS = {
    "images": Part(
        title="cached or baked uint8 images, copied out",
        settings={"batch_size": 64, "count": sources.NUM_IMAGES},
        ways=(
            torch_way("images"),
            ceiling("images"),
            ours("Loader", "images", context=True),
            ours("Loader + cached", "images_cached"),
            ours("Loader + Baked", "images_baked"),
            ours("DataLoader + cached", "images_cached_torch", context=True),
            ours("DataLoader + Baked", "images_baked_torch", context=True),
            peer("FFCV raw", "ffcv_loader", "images", "ffcv", context=False),
            peer("FFCV raw, resized", "ffcv_loader", "images_resized", "ffcv"),
            peer("SPDL threads", "spdl_loader", "images", "spdl"),
            peer("SPDL processes", "spdl_loader", "images_in_processes", "spdl"),
            peer("grain", "grain_loader", "images", "grain"),
            peer("dataloader-rs", "dataloader_rs_loader", "images", "dataloader-rs"),
            peer("DataLoader, Python 3.13", "torch_loader", "images", "dataloader-rs"),
            peer("webdataset", "webdataset_loader", "images", "webdataset"),
            peer("DataLoader + stocaching", "stocaching_cache", "images", "stocaching"),
            peer("DataLoader + lmdb", "lmdb_store", "images", "lmdb"),
            peer("DataLoader + tensordict", "tensordict_store", "images", "tensordict"),
        ),
    ),
    "jpegs": Part(
        title="JPEG files decoded and cropped, copied out",
        repeat=2,
        settings={"batch_size": 64, "count": sources.NUM_JPEGS},
        ways=(
            torch_way("jpegs"),
            ceiling("jpegs"),
            ours("Loader", "jpegs"),
            peer("FFCV jpg (own decoder)", "ffcv_loader", "jpegs", "ffcv"),
            peer("SPDL threads", "spdl_loader", "jpegs", "spdl"),
            peer("grain", "grain_loader", "jpegs", "grain"),
            peer("dataloader-rs", "dataloader_rs_loader", "jpegs", "dataloader-rs"),
            peer("datago (own decoder)", "datago_loader", "jpegs", "datago"),
            peer("webdataset", "webdataset_loader", "jpegs", "webdataset"),
        ),
    ),
    "tiny": Part(
        title="samples of 64 bytes in batches of 32",
        settings={"batch_size": 32, "count": sources.NUM_TINY},
        ways=(
            torch_way("tiny"),
            ceiling("tiny"),
            ours("Loader", "tiny"),
            peer("SPDL threads", "spdl_loader", "tiny", "spdl"),
            peer("grain", "grain_loader", "tiny", "grain"),
            peer("dataloader-rs", "dataloader_rs_loader", "tiny", "dataloader-rs"),
        ),
    ),
    "first-fork": Part(
        title="first batch, fork",
        mode="first_batch",
        unit="s",
        settings={"batch_size": 32, "start": "fork", "repeats": 9},
        ways=(torch_way("tiny"), ours("Loader", "tiny")),
    ),
    "first-spawn": Part(
        title="first batch, spawn",
        mode="first_batch",
        unit="s",
        settings={"batch_size": 32, "start": "spawn", "repeats": 1},
        ways=(torch_way("tiny"), ours("Loader", "tiny")),
    ),
}


def main() -> int:
    parser = harness.parser(__doc__, num_rounds=5)
    parser.add_argument("--part", nargs="*", default=list(PARTS), choices=list(PARTS))
    args = parser.parse_args()
    result = measure(args.part, args.rounds, args.seconds, args.workers, args.only)
    report(result)
    harness.finish({"loaders": result}, targets(result), args.out)
    return 0


def measure(
    parts: Sequence[str], num_rounds: int, seconds: float, workers: int, only: str = ""
) -> dict[str, Any]:
    """Rows of every part asked for."""
    result = {}
    for name in parts:
        part = PARTS[name]
        harness.say(part.title)
        settings = {"workers": workers, "seconds": seconds, **part.settings}
        ways = harness.chosen(part.ways, only, base=TORCH)
        seen = harness.rounds(
            ways,
            mode=part.mode,
            num_rounds=num_rounds * part.repeat,
            settings=settings,
            context_every=2 * part.repeat,
        )
        result[name] = {
            "title": part.title,
            "unit": part.unit,
            "settings": settings,
            "rows": harness.summarise(seen, TORCH),
        }
    return result


def report(result: Mapping[str, Any]) -> None:
    for part in result.values():
        harness.print_rows(part["title"], part["unit"], part["rows"], TORCH)


def targets(result: Mapping[str, Any]) -> list[Target]:
    """The issue's numbers that these parts answer."""
    rows = {name: result[name]["rows"] for name in result}
    found = []
    if "images" in rows:
        for way in [f"Loader + {kind}{how}" for how in ("", ", beside") for kind in ("cached", "Baked")]:
            against_torch = harness.ratio(rows["images"], way, TORCH)
            found.append(harness.at_least(f"uint8 224: {way} against {TORCH}", 5.0, against_torch))
            against_ffcv = harness.ratio(rows["images"], way, "FFCV raw")
            found.append(harness.at_least(f"uint8 224: {way} against FFCV raw", 2.0, against_ffcv))
    if "jpegs" in rows:
        decoding = harness.ratio(rows["jpegs"], "Loader", TORCH)
        found.append(harness.at_least("JPEG decode path against DataLoader", 1.1, decoding))
    if "tiny" in rows:
        tiny = harness.ratio(rows["tiny"], "Loader", TORCH)
        found.append(harness.at_least("tiny samples against DataLoader", 1.0, tiny))
    for start in ("fork", "spawn"):
        if f"first-{start}" in rows:
            times = harness.ratio(rows[f"first-{start}"], "Loader", TORCH)
            found.append(harness.at_most(f"first batch, {start}, against DataLoader", 1.3, times))
    return found


if __name__ == "__main__":
    sys.exit(main())
