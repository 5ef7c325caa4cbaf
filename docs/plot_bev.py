"""The picture of docs/workloads/bev.md: what the camera sees, the map from above, what a model says.

    python docs/plot_bev.py [--checkpoint best.pt --scale cpu]

Without a checkpoint the last column is left out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workloads" / "bev"))

from data import (  # type: ignore[import-not-found]  # noqa: E402
    HIDDEN_BIT,
    NUM_CLASSES,
    CompactDataset,
    draw_scene,
    intrinsics,
    make_data,
)
from model import BevNet  # type: ignore[import-not-found]  # noqa: E402


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


def drawn(count: int) -> list[tuple[Any, Any]]:
    """Scenes of the generator, at the size of the tiny scale but sharper."""
    calib = intrinsics(0, 800, 450)
    return [draw_scene(np.random.default_rng([0, 0, index]), calib, 800, 450) for index in range(count)]


def main() -> None:
    """Make the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, help="best.pt of a run")
    parser.add_argument("--scale", default="cpu")
    options = parser.parse_args()
    rows = predicted(options.checkpoint, options.scale, 3) if options.checkpoint else drawn(3)
    titles = ("camera", "map", "predicted")
    figure, axes = plt.subplots(len(rows[0]), 3, figsize=(7, 2.3 * len(rows[0])), layout="constrained")
    for column, shown in enumerate(rows):
        for row, (axis, what) in enumerate(zip(axes[:, column], shown, strict=True)):
            axis.imshow(what if row == 0 else coloured(what))
            axis.axis("off")
            axis.set_title(titles[row], fontsize=8) if column == 0 else None
    path = ROOT / "docs" / "images" / "bev-scenes.png"
    figure.savefig(path, dpi=60)
    plt.close(figure)
    print(path)


if __name__ == "__main__":
    main()
