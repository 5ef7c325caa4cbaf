"""The pictures of docs/workloads/heads.md: views of the avatar, its loss, and where a step's time goes.

    python docs/plot_heads.py [--result benchmarks/results/heads-cpu-DATE.json] [--keep DIR]

The time comes from what ``benchmarks/workloads.py heads`` wrote last; for the rest as_found and cured are
trained at cpu scale, alike: the same pictures one by one, in the same order (some minutes; ``--keep`` keeps
and uses again what they leave).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from plot_landmarks import COLOURS, IMAGES, ROOT, plot_time

WORKLOAD = ROOT / "workloads" / "heads"


def trained(variant: str, folder: Path) -> tuple[Path, list[float]]:
    """Train a variant unless it was; where it is and its loss by picture seen."""
    out, log = folder / variant, folder / f"{variant}.jsonl"
    if not (out / "last.pt").exists():
        command = [sys.executable, str(WORKLOAD / "train.py"), "--variant", variant, "-m", str(out)]
        alike = ["--epochs", "2", "--cameras_per_step", "1", "-r", "8"]
        more = [*alike, "--step_log", str(log), "--port", "0", "--no-tensorboard"]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        subprocess.run([*command, *more], env=env, check=True)
    return out, [json.loads(line)["loss"] for line in log.read_text().splitlines()]


def rendered(outs: list[Path], places: list[int]) -> list[list[Any]]:
    """The truth and each training's avatar as (H, W, 3) of test pictures, four times as large as trained."""
    sys.path.insert(0, str(WORKLOAD))
    from data import Heads, make_data, views_of  # type: ignore[import-not-found]
    from flags import parse_args  # type: ignore[import-not-found]
    from trainer import Trainer  # type: ignore[import-not-found]

    folder = make_data(scale="cpu")
    trainers = []
    for out in outs:
        resumed = ["-r", "8", "--variant", "cured", "--resume", str(out / "last.pt")]
        args = parse_args([*resumed, "--ablate", "byte_cache"])
        trainers.append(Trainer(args, folder, torch.device("cpu")))
        trainers[-1].start()
    height, width = (4 * side for side in trainers[0].feed.size)
    test = Heads(folder, "test", height, width, white_background=True)
    columns = []
    for place in places:
        frame = test.frames[place]
        views = views_of([frame], height, width)
        with torch.no_grad():
            found = [trainer.view(frame.timestep, views).images[0].clamp(0, 1) for trainer in trainers]
        columns.append([picture.permute(1, 2, 0) for picture in (test[place]["image"], *found)])
    return columns


def plot_views(columns: list[list[Any]], names: list[str], path: Path) -> None:
    """Cameras above, avatars at the same time and place below."""
    figure, axes = plt.subplots(
        len(names), len(columns), figsize=(1.6 * len(columns), 2.4 * len(names)), layout="constrained"
    )
    for number, pictures in enumerate(columns):
        for axis, picture, name in zip(axes[:, number], pictures, names, strict=True):
            axis.imshow(picture)
            axis.set(xticks=[], yticks=[], ylabel=name if number == 0 else "")
            axis.spines[:].set_visible(False)
    figure.savefig(path, dpi=75)
    plt.close(figure)


def plot_losses(losses: dict[str, list[float]], path: Path) -> None:
    """Loss by pictures seen, means of 40; the second line lies on the first where they train alike."""
    figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
    for number, (name, values) in enumerate(losses.items()):
        means = [sum(values[at : at + 40]) / 40 for at in range(0, len(values) - 39, 40)]
        style = {"color": COLOURS[name], "label": name, "linewidth": 4 - 2.5 * number}
        axis.plot([40 * (n + 1) for n in range(len(means))], means, **style)
    axis.set(yscale="log", xlabel="pictures seen", ylabel="loss")
    axis.grid(axis="y", alpha=0.3)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def main() -> None:
    """Make the three pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    latest = sorted((ROOT / "benchmarks/results").glob("heads-cpu-20*.json"))
    parser.add_argument("--result", type=Path, default=latest[-1] if latest else None)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    if options.result is not None:
        plot_time(json.loads(options.result.read_text()), IMAGES / "heads-time.png")
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        found = {variant: trained(variant, folder) for variant in ("as_found", "cured")}
        plot_losses({name: losses for name, (_, losses) in found.items()}, IMAGES / "heads-loss.png")
        columns = rendered([out for out, _ in found.values()], [0, 11, 22, 33, 44, 55])
        plot_views(columns, ["camera", *found], IMAGES / "heads-views.png")


if __name__ == "__main__":
    main()
