"""What drawing a head costs: `heads`' tile rasterizer forward and backward, cameras together and one by one.

    python benchmarks/rasterizer.py [--seconds 20] [--threads 1 2] [--out FILE]

Gaussians lie on a sphere that fills three quarters of the picture, as on a head's mesh: «trained», half a
face wide and of any opacity, or «new», a face wide and faint, as training begins with. Cases take turns,
every other round backwards. Times are medians with the quartiles; the gain of drawing cameras together is a
median over rounds of the ratio within a round.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "workloads" / "heads"))

import raster  # noqa: E402

#: Gaussians and pixels along an edge; the first prototype's milliseconds.
SIZES = ((600, 48, 4.4), (1200, 64, 8.1), (2500, 96, 16.6), (5000, 128, 23.9))
#: What is drawn with several cameras, and how many.
BATCHED, CAMERAS = (1200, 64), (2, 4, 8)
WARM_UP_ROUNDS = 2


@dataclass(frozen=True, kw_only=True)
class Case:
    """A picture size, a state of training and a number of cameras, drawn together or one after the other."""

    number: int
    pixels: int
    state: str = "trained"
    cameras: int = 1
    together: bool = True

    def prepared(self) -> Any:
        """A function that draws all cameras and goes backward once."""
        values, views = scene(self)
        targets = torch.rand(self.cameras, 3, self.pixels, self.pixels)
        white = torch.ones(3)
        cameras = slice(0, self.cameras)
        turns = [cameras] if self.together else [slice(c, c + 1) for c in range(self.cameras)]

        def step() -> None:
            for value in values:
                value.grad = None
            for turn in turns:
                some = raster.Views(
                    world_to_camera=views.world_to_camera[turn], intrinsics=views.intrinsics[turn],
                    height=self.pixels, width=self.pixels,
                )  # fmt: skip
                seen = raster.rasterize(*values[:4], values[4][turn], some, white)
                seen.means2d.retain_grad()
                torch.nn.functional.l1_loss(seen.images, targets[turn]).backward()

        return step


def scene(case: Case) -> tuple[list[Any], Any]:
    draw = torch.Generator().manual_seed(0)
    number, cameras = case.number, case.cameras
    trained = case.state == "trained"
    edge = math.sqrt(4 * math.pi / number / 0.433)  # of an equilateral triangle of the sphere's area per face
    means = torch.nn.functional.normalize(torch.randn(number, 3, generator=draw), dim=1)
    scales = (0.5 if trained else 1) * 0.93 * edge * torch.ones(number, 3)
    if trained:
        scales = scales * torch.exp(0.4 * torch.randn(number, 3, generator=draw))
    opacities = 0.05 + 0.95 * torch.rand(number, generator=draw) if trained else torch.full((number,), 0.1)
    quaternions = torch.randn(number, 4, generator=draw)
    colors = torch.rand(cameras, number, 3, generator=draw)
    poses = torch.eye(4).repeat(cameras, 1, 1)
    angles = 0.3 * torch.arange(cameras)
    poses[:, 0, 0] = poses[:, 2, 2] = angles.cos()
    poses[:, 0, 2], poses[:, 2, 0] = angles.sin(), -angles.sin()
    poses[:, 2, 3] = 4
    focal = 0.75 / 2 * case.pixels * math.sqrt(4**2 - 1)
    middle = case.pixels / 2
    lens = torch.tensor([[focal, 0, middle], [0, focal, middle], [0, 0, 1]])
    views = raster.Views(
        world_to_camera=poses, intrinsics=lens.repeat(cameras, 1, 1), height=case.pixels, width=case.pixels
    )
    return [value.requires_grad_() for value in (means, quaternions, scales, opacities, colors)], views


def measured(cases: list[Case], seconds: float) -> dict[Case, list[float]]:
    """Milliseconds per picture of each case, one number for every round."""
    steps = [(case, case.prepared()) for case in cases]
    times: dict[Case, list[float]] = {case: [] for case in cases}
    began = time.perf_counter()
    with tqdm(total=round(seconds), unit="s", bar_format="{l_bar}{bar}|", disable=None) as bar:
        rounds = 0
        while rounds < WARM_UP_ROUNDS + 5 or time.perf_counter() - began < seconds:
            for case, step in steps if rounds % 2 else reversed(steps):
                start = time.perf_counter()
                step()
                took = (time.perf_counter() - start) * 1e3
                if rounds >= WARM_UP_ROUNDS:
                    times[case].append(took / case.cameras)
            rounds += 1
            bar.update(min(bar.total, time.perf_counter() - began) - bar.n)
    return times


def spread(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to measure, with each number")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="torch's, one after the other")
    parser.add_argument("--out", type=Path, help="write all numbers as JSON")
    args = parser.parse_args()
    runs = [measured_with(threads, args.seconds) for threads in args.threads]
    if args.out:
        args.out.write_text(json.dumps(runs, indent=1) + "\n")


def measured_with(threads: int, seconds: float) -> dict[str, Any]:
    """Measure all cases with a number of threads and print them; the numbers."""
    torch.set_num_threads(threads)
    number, pixels = BATCHED
    sizes = [Case(number=n, pixels=p, state=state) for state in ("trained", "new") for n, p, _ in SIZES]
    pairs = [
        (
            Case(number=number, pixels=pixels, cameras=c),
            Case(number=number, pixels=pixels, cameras=c, together=False),
        )
        for c in CAMERAS
    ]
    times = measured([*sizes, *(case for pair in pairs for case in pair)], seconds)
    rounds = len(times[sizes[0]])

    words = "1 thread" if threads == 1 else f"{threads} threads"
    machine = f"{os.cpu_count()} cores {platform.machine()}, {words}, torch {torch.__version__}"
    print(f"forward and backward, ms per picture: median (quartiles) of {rounds} rounds\n{machine}\n")
    first = {(n, p): ms for n, p, ms in SIZES}
    print(f"{'Gaussians':>9}  {'pixels':>7}  {'state':7}  {'ms':>6}  {'quartiles':>13}  first prototype")
    for case in sizes:
        middle, low, high = spread(times[case])
        before = first[case.number, case.pixels]
        print(
            f"{case.number:9,}  {case.pixels:>3}x{case.pixels:<3}  {case.state:7}  {middle:6.2f}  "
            f"{low:5.2f} - {high:5.2f}  {before:6.1f}"
        )
    print(f"\n{number:,} Gaussians at {pixels}x{pixels}, per picture")
    print(f"{'cameras':>9}  {'one by one':>10}  {'together':>8}  gain (quartiles)")
    for together, alone in pairs:
        gains = [one / all_ for one, all_ in zip(times[alone], times[together], strict=True)]
        middle, low, high = spread(gains)
        print(
            f"{together.cameras:9}  {statistics.median(times[alone]):10.2f}  "
            f"{statistics.median(times[together]):8.2f}  {middle:.2f}x ({low:.2f} - {high:.2f})"
        )
    print()
    return {"machine": machine, "rows": [{**vars(case), "ms": values} for case, values in times.items()]}


if __name__ == "__main__":
    main()
