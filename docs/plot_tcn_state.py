"""The pictures of docs/workloads/tcn_state.md: predictions, loss, the throughput line, time per step.

    python docs/plot_tcn_state.py [--result benchmarks/results/tcn_state-cpu-DATE.json] [--keep DIR]

Trains the three variants at cpu scale (a few minutes; ``--keep`` keeps and uses again what they leave).
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
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from plot_landmarks import COLOURS, IMAGES, ROOT, plot_time

WORKLOAD = ROOT / "workloads" / "tcn_state"


@dataclass(frozen=True, kw_only=True)
class Course:
    """What a training printed at the end of each epoch, and what its steps really had."""

    losses: Sequence[float]  # of each step
    printed: Sequence[float]  # samples/s
    measured: Sequence[float]  # samples/s


def trained(variant: str, folder: Path) -> Course:
    """Train a variant unless it was."""
    out, printed, log = folder / variant, folder / f"{variant}.txt", folder / f"{variant}.jsonl"
    if not printed.exists():
        flags = ["--variant", variant, "--epochs", "8", "--out", str(out), "--step_log", str(log)]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, str(WORKLOAD / "train.py"), *flags]
        text = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
        printed.write_text(text)
    found = re.findall(r"Throughput: (\d+)", printed.read_text())
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    seconds = [sum(row[p] for p in ("data_wait", "h2d", "fwd", "bwd", "opt", "other")) for row in rows]
    samples = [row["samples_per_s"] * s for row, s in zip(rows, seconds, strict=True)]
    each = len(rows) // len(found)
    return Course(
        losses=[row["loss"] for row in rows],
        printed=[float(rate) for rate in found],
        measured=[
            sum(samples[i : i + each]) / sum(seconds[i : i + each]) for i in range(0, each * len(found), each)
        ],
    )


def plot_predictions(checkpoint: Path, path: Path) -> None:
    """The five quantities along a layer that was not trained on: the truth, and what the model says."""
    sys.path.insert(0, str(WORKLOAD))
    from train import SCALES  # type: ignore[import-not-found]

    from data import (  # type: ignore[import-not-found]
        QUALITY,
        GatheredDataset,
        find_files,
        fit_scaler,
        make_data,
    )
    from model import ImplicitStateTCN  # type: ignore[import-not-found]

    files = find_files(make_data("cpu") / "data_simulation_*")
    layer = GatheredDataset(files[:1], fit_scaler(files[3:]))
    batch = layer.__getitems__(range(len(layer)))
    names = ("channels", "hidden", "time_stride")
    model = ImplicitStateTCN(**{name: SCALES["cpu"][name] for name in names}).eval()
    model.load_state_dict(torch.load(checkpoint, weights_only=True))
    with torch.no_grad():
        outputs = model(batch["input_features"])
    seconds = layer.starts / 100
    figure, axes = plt.subplots(1, len(QUALITY), figsize=(11, 2.1), layout="constrained")
    for axis, name, truth in zip(axes, QUALITY, batch["quality_targets"].T, strict=True):
        axis.plot(seconds, truth, color="#888888", linewidth=1, label="simulated")
        axis.plot(seconds, outputs[name], color=COLOURS["cured"], linewidth=1, label="predicted")
        axis.set_title(name, fontsize=8)
        axis.tick_params(labelsize=6)
    axes[0].legend(frameon=False, fontsize=6)
    axes[2].set_xlabel("seconds within the layer", fontsize=7)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def plot_losses(courses: Mapping[str, Course], path: Path) -> None:
    """Training loss by step; the later ones are thinner and dashed, for they lie on the first."""
    figure, axis = plt.subplots(figsize=(6, 2.8), layout="constrained")
    styles = (("-", 2.5), ("--", 1.8), (":", 1.2))
    for (name, course), (style, width) in zip(courses.items(), styles, strict=True):
        steps = range(1, len(course.losses) + 1)
        axis.plot(steps, course.losses, style, color=COLOURS[name], label=name, linewidth=width)
    axis.set(yscale="log", xlabel="step", ylabel="training loss")
    axis.grid(axis="y", alpha=0.3)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def plot_throughput(course: Course, path: Path) -> None:
    """What as_found prints as its throughput, and what its steps have."""
    figure, axis = plt.subplots(figsize=(6, 2.8), layout="constrained")
    epochs = range(1, len(course.printed) + 1)
    axis.plot(epochs, course.measured, color=COLOURS["cured"], marker="o", markersize=3, label="measured")
    axis.plot(epochs, course.printed, color=COLOURS["as_found"], marker="o", markersize=3, label="printed")
    axis.set(xlabel="epoch", ylabel="samples/s", ylim=(0, None))
    axis.grid(axis="y", alpha=0.3)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def main() -> None:
    """Make the four pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    latest = sorted((ROOT / "benchmarks/results").glob("tcn_state-cpu-*.json"))
    parser.add_argument("--result", type=Path, default=latest[-1] if latest else None)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    if options.result is None:
        parser.error("no benchmarks/results/tcn_state-cpu-*.json: run benchmarks/workloads.py tcn_state")
    plot_time(json.loads(options.result.read_text()), IMAGES / "tcn_state-time.png")
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        courses = {variant: trained(variant, folder) for variant in ("as_found", "guide", "cured")}
        plot_losses(courses, IMAGES / "tcn_state-loss.png")
        plot_throughput(courses["as_found"], IMAGES / "tcn_state-throughput.png")
        plot_predictions(folder / "cured" / "best.pt", IMAGES / "tcn_state-predictions.png")


if __name__ == "__main__":
    main()
