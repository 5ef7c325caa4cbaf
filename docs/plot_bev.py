"""The pictures of docs/workloads/bev.md: maps and what a model says of them, time per step, loss.

    python docs/plot_bev.py [--checkpoint best.pt --scale cpu] [--result FILE] [--keep DIR]

Without a checkpoint the maps stay as they are. Trains as_found and cured at tiny scale for the losses (a
minute; ``--keep`` keeps and uses again what they leave).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from plot_landmarks import COLOURS, IMAGES, ROOT, plot_time

sys.path.insert(0, str(ROOT / "workloads" / "bev"))

from data import (  # type: ignore[import-not-found]
    HIDDEN_BIT,
    NUM_CLASSES,
    CompactDataset,
    make_data,
)
from model import BevNet  # type: ignore[import-not-found]

#: What makes the losses of the variants comparable, and how long they train.
OPTIONS = (
    "lr_config.policy=fixed", "optimizer.lr=2e-4", "data.samples_per_gpu=4", "data.brightness_delta=0.0",
    "data.contrast=0.0", "runner.max_iters=200", "evaluation.interval=200", "checkpoint_config.interval=200",
)  # fmt: skip


def coloured(labels: Any) -> Any:
    """Labels (196, 200) with a class in each bit as (196, 200, 3), far away on top; hidden cells are dim."""
    colours = plt.get_cmap("tab20")(np.arange(NUM_CLASSES))[:, :3]
    picture = np.ones((*labels.shape, 3))
    for k in range(NUM_CLASSES):
        picture[(labels >> k) & 1 > 0] = colours[k]
    picture[(labels >> HIDDEN_BIT) & 1 > 0] *= 0.45
    return picture[::-1]


def predicted(checkpoint: Path, scale: str, count: int) -> list[tuple[Any, Any, Any]]:
    """Pictures, labels and predictions of the first validation samples."""
    state = torch.load(checkpoint, weights_only=True)
    size = state["config"]["data"]["img_scale"]
    mean, std = (np.array(state["config"]["data"][key]) for key in ("mean", "std"))
    model = BevNet(size, **state["config"]["model"]).eval()
    model.load_state_dict(state["model"])
    files = CompactDataset(make_data(scale), "val", size)
    rows = []
    for index in range(count):
        picture, labels = files.picture(index), files.labels(index)
        image = torch.from_numpy((picture - mean) / std).float().permute(2, 0, 1)[None]
        with torch.no_grad():
            found = model(image, files.calibs[files.kinds[index]][None])[0] > 0
        bits = sum(found[k].numpy().astype(np.int32) << k for k in range(NUM_CLASSES))
        rows.append((picture, labels, bits | labels & 1 << HIDDEN_BIT))
    return rows


def plot_scenes(rows: Sequence[tuple[Any, Any, Any]], path: Path) -> None:
    """A column for each sample: the picture, its map, the map that a model made."""
    figure, axes = plt.subplots(3, len(rows), figsize=(7, 6.9), layout="constrained")
    for column, shown in enumerate(rows):
        titles = ("camera", "map", "predicted")
        for row, (axis, what, title) in enumerate(zip(axes[:, column], shown, titles, strict=True)):
            axis.imshow(what if row == 0 else coloured(what))
            axis.axis("off")
            axis.set_title(title, fontsize=8) if column == 0 else None
    figure.savefig(path, dpi=60)
    plt.close(figure)


def trained(variant: str, folder: Path) -> list[float]:
    """Train a variant unless it was; its loss at each iteration."""
    log = folder / f"{variant}.jsonl"
    if not (folder / variant / "last.pt").exists():
        flags = [
            "--variant",
            variant,
            "--scale",
            "tiny",
            "--out",
            str(folder / variant),
            "--step_log",
            str(log),
        ]
        command = [sys.executable, str(ROOT / "workloads/bev/train.py"), *flags, "--options", *OPTIONS]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True)
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]


def plot_losses(losses: Mapping[str, Sequence[float]], path: Path) -> None:
    """The loss by iteration; the second is dashed, for it lies on the first."""
    figure, axis = plt.subplots(figsize=(6, 2.8), layout="constrained")
    for (name, values), style in zip(losses.items(), ("-", "--"), strict=True):
        axis.plot(range(1, len(values) + 1), values, style, color=COLOURS[name], label=name, linewidth=1.2)
    axis.set(xlabel="iteration", ylabel="loss")
    axis.grid(axis="y", alpha=0.3)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, help="best.pt of a run")
    parser.add_argument("--scale", default="cpu")
    latest = sorted((ROOT / "benchmarks/results").glob("bev-cpu-*.json"))
    parser.add_argument("--result", type=Path, default=latest[-1] if latest else None)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    if options.result is None:
        parser.error("no benchmarks/results/bev-cpu-*.json: run benchmarks/workloads.py bev")
    if options.checkpoint:
        plot_scenes(predicted(options.checkpoint, options.scale, 3), IMAGES / "bev-scenes.png")
    plot_time(json.loads(options.result.read_text()), IMAGES / "bev-time.png")
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        plot_losses({name: trained(name, folder) for name in ("as_found", "cured")}, IMAGES / "bev-loss.png")


if __name__ == "__main__":
    main()
