"""The picture of docs/workloads/spikevid.md: frames before and after deblurring, beside what was to be found.

    python docs/plot_spikevid.py [--checkpoint best.pt]

Without a checkpoint one is trained at tiny scale (two minutes on a core).
"""

from __future__ import annotations

import argparse
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

ROOT = Path(__file__).resolve().parents[1]
WORKLOAD = ROOT / "workloads" / "spikevid"
sys.path[:0] = [str(WORKLOAD), str(ROOT / "src")]

from data import Frames, make_data  # type: ignore[import-not-found]  # noqa: E402
from loaders import FloatClips  # type: ignore[import-not-found]  # noqa: E402
from model import SpikeVRT  # type: ignore[import-not-found]  # noqa: E402
from steps import psnr  # type: ignore[import-not-found]  # noqa: E402

SENSOR, CROP = (10, 66, 80), 128
#: What is shown of a frame; decibels are those of all of it.
SHOWN = slice(24, 88)
OPTIONS = (
    "OPTIM.LR=3.0e-3", "MODEL.EMBED_DIM=16", "TRAIN.BATCH_SIZE=2", "DATALOADER.TOTAL_WORKERS=0",
)  # fmt: skip


def trained(folder: Path, epochs: int) -> Path:
    """Train the cured variant; its best checkpoint."""
    command = [sys.executable, str(WORKLOAD / "train.py"), "--variant", "cured", "--scale", "tiny"]
    command += ["--epochs", str(epochs), "--out", str(folder)]
    command += [word for option in OPTIONS for word in ("--options", option)]
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True, stdout=subprocess.DEVNULL)
    return folder / "best.pt"


def restored(checkpoint: Path) -> list[tuple[dict[str, Any], Any]]:
    """Every validation clip (T, ...) and what the model makes of it."""
    state = torch.load(checkpoint, weights_only=True)
    model = SpikeVRT(**state["model_settings"]).eval()
    model.load_state_dict(state["model"])
    clips = FloatClips(Frames(make_data("tiny"), "val", SENSOR), 5, CROP)
    found = []
    with torch.no_grad():
        for number in range(len(clips)):
            clip = clips[number, 16]
            found.append((clip, model(clip["blur"][None], clip["voxel"][None])[0]))
    return found


def main() -> None:
    """Make the picture, of two frames of the last clip; print what all clips gained."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, help="best.pt of a run at tiny scale")
    parser.add_argument("--epochs", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        clips = restored(options.checkpoint or trained(Path(name), options.epochs))
    before, after = (
        sum(float(psnr(which(clip, found), clip["sharp"])) for clip, found in clips) / len(clips)
        for which in (lambda clip, found: clip["blur"], lambda clip, found: found)
    )
    print(f"{len(clips)} validation clips: {before:.2f} dB blurred, {after:.2f} dB restored")
    clip, found = clips[-1]
    columns = {
        "blurred": clip["blur"],
        "spikes": clip["voxel"].sum(1, keepdim=True) / SENSOR[0],
        "restored": found,
        "sharp": clip["sharp"],
    }
    figure, axes = plt.subplots(2, len(columns), figsize=(8, 4.4), layout="constrained")
    for row, number in zip(axes, (1, 3), strict=True):
        for axis, (title, pictures) in zip(row, columns.items(), strict=True):
            picture = pictures[number].clamp(0, 1)
            axis.imshow(picture[:, SHOWN, SHOWN].permute(1, 2, 0).squeeze(), cmap="gray", vmin=0, vmax=1)
            axis.axis("off")
            if title in ("blurred", "restored"):
                title += f", {float(psnr(picture[None], clip['sharp'][number][None])):.1f} dB"
            axis.set_title(title, fontsize=8)
    path = ROOT / "docs" / "images" / "spikevid-frames.png"
    figure.savefig(path, dpi=60)
    plt.close(figure)
    print(path)


if __name__ == "__main__":
    main()
