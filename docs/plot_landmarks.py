"""The pictures of docs/workloads/landmarks.md: predictions, validation error, time per step.

    python docs/plot_landmarks.py [--result benchmarks/results/landmarks-cpu-DATE.json] [--keep DIR]

Trains as_found and cured at cpu scale (a few minutes; ``--keep`` keeps and uses again what they leave).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

ROOT = Path(__file__).resolve().parents[1]
WORKLOAD = ROOT / "workloads" / "landmarks"
IMAGES = ROOT / "docs" / "images"
COLOURS = {"as_found": "#b3423a", "guide": "#c9963b", "cured": "#2f7d6b"}
PHASES = {
    "data_wait": "data wait", "h2d": "copies", "fwd": "forward, loss", "bwd": "backward", "opt": "optimizer",
    "other": "other",
}  # fmt: skip


def trained(variant: str, folder: Path) -> tuple[list[float], list[float]]:
    """Train a variant unless it was; its validation error in pixels and PCK by epoch."""
    out, printed = folder / variant, folder / f"{variant}.txt"
    if not printed.exists():
        command = [sys.executable, str(WORKLOAD / "train.py"), "--variant", variant, "--out", str(out)]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        text = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
        printed.write_text(text)
    found = re.findall(r"val ([\d.]+) px, PCK ([\d.]+)%", printed.read_text())
    return [float(px) for px, _ in found], [float(pck) for _, pck in found]


def plot_predictions(checkpoint: Path, path: Path) -> None:
    """Six validation pictures: circles are the truth, crosses what the model says."""
    sys.path.insert(0, str(WORKLOAD))
    from data import NpyBatches, make_data  # type: ignore[import-not-found]
    from model import LandmarkNet, decode_predictions, to_pixels  # type: ignore[import-not-found]

    state = torch.load(checkpoint, weights_only=True)
    model = LandmarkNet(**state["model_settings"]).eval()
    model.load_state_dict(state["ema"])
    batch = NpyBatches(make_data("cpu"), "val")[0]
    with torch.no_grad():
        outputs = model(batch["images"][:6])
    truth = to_pixels(batch["cells"], batch["cell_offsets"])[:6]
    figure, axes = plt.subplots(2, 3, figsize=(9, 3.2), layout="constrained")
    for axis, image, points, found in zip(
        axes.flat, batch["images"], truth, decode_predictions(outputs), strict=False
    ):
        axis.imshow(image[:3].permute(1, 2, 0), aspect="equal")
        axis.scatter(*points.T, s=150, facecolors="none", edgecolors="white", linewidths=1.2)
        axis.scatter(*found.T, s=40, marker="x", color="#ff2d55", linewidths=1.5)
        axis.axis("off")
    figure.savefig(path, dpi=55)
    plt.close(figure)


def plot_errors(errors: Mapping[str, Sequence[float]], path: Path) -> None:
    """Validation error by epoch."""
    figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
    for name, values in errors.items():
        label = f"{name}: {'redrawn' if name == 'as_found' else 'stored'} targets"
        axis.plot(range(1, len(values) + 1), values, marker="o", color=COLOURS[name], label=label)
    axis.set(yscale="log", xlabel="epoch", ylabel="validation error, pixels")
    axis.grid(axis="y", alpha=0.3)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def plot_time(result: Mapping[str, Any], path: Path) -> None:
    """Milliseconds of a step by phase, one bar for each variant."""
    figure, axis = plt.subplots(figsize=(7, 2.2), layout="constrained")
    shades = plt.get_cmap("viridis")([0.15, 0.3, 0.5, 0.65, 0.8, 0.95])
    rows = [row for row in result["variants"] if row["variant"] in COLOURS][::-1]
    left = [0.0] * len(rows)
    for shade, (phase, label) in zip(shades, PHASES.items(), strict=True):
        widths = [1e3 * row["phases_s"][phase] for row in rows]
        axis.barh([row["variant"] for row in rows], widths, left=left, color=shade, label=label)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axis.set(xlabel=f"ms per step ({result['machine']['cores']} cores, {result['scale']} scale)")
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", frameon=False, fontsize=7, ncols=len(PHASES))
    figure.savefig(path, dpi=80)
    plt.close(figure)


def main() -> None:
    """Make the three pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    latest = sorted((ROOT / "benchmarks/results").glob("landmarks-cpu-*.json"))
    parser.add_argument("--result", type=Path, default=latest[-1] if latest else None)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    if options.result is None:
        parser.error("no benchmarks/results/landmarks-cpu-*.json: run benchmarks/workloads.py landmarks")
    plot_time(json.loads(options.result.read_text()), IMAGES / "landmarks-time.png")
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        errors = {variant: trained(variant, folder)[0] for variant in ("as_found", "cured")}
        plot_errors(errors, IMAGES / "landmarks-error.png")
        plot_predictions(folder / "cured" / "best.pt", IMAGES / "landmarks-predictions.png")


if __name__ == "__main__":
    main()
