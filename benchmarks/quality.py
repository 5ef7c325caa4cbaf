"""What a variant or a plan costs in quality: as many updates, in the same order, and validation afterwards.

    python benchmarks/quality.py spikevid|heads [--only ROW] [--seeds 0 1] [--out FILE]

Each row is one training by ``workloads/NAME/train.py``; its PSNR is the last that it prints. A seed decides
what a training begins with and its order; the data, made by earlier runs at cpu scale, is one. What the
result of today has already is kept, so that it can be made piece by piece. The milliseconds are a
step's own work (forward to optimizer), the median; samples per second are ``benchmarks/workloads.py``'s.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import workload_table

from workloads import ROOT, machine

PSNR = re.compile(r"val PSNR ([\d.]+) dB|Evaluating test:.* PSNR ([\d.]+)")
PLAN = "workloads/spikevid/configs/deblur/vrt_spike_{}.yaml"
#: Two blocks where the original has eight, so that the plans' depths differ; one clip in every update.
CLIPS = [
    "--scale", "cpu", "--data", "workloads/spikevid/data/cpu-seed0", "--epochs", "2",
    *(f"--options={key}" for key in (
        "MODEL.DEPTH_DIVISOR=4", "OPTIM.LR=3.0e-3", "DATA.CROP_SIZE=32", "TRAIN.BATCH_SIZE=1",
        "LOG.ENABLE_TIMING_LOG=false",
    )),
]  # fmt: skip
LIVE = [
    "--options=DATA.TRAIN_CROP_SIZE=32", "--options=DATA.GROUP_SEQUENCES=0",
    "--options=TRAIN.GRADIENT_ACCUMULATION_STEPS=1",
]  # fmt: skip
PICTURES = [
    "--scale", "cpu", "--data", "workloads/heads/data/cpu-seed0", "--iterations", "1200", "--interval",
    "1200", "--port", "0", "--no-tensorboard",
]  # fmt: skip
EXAMPLE_1 = [
    "--lambda_perceptual", "0.05", "--use_vgg_loss", "--use_adaptive_densification",
    "--adaptive_densify_ratio", "1.5", "--use_temporal_consistency", "--lambda_temporal", "0.01",
]  # fmt: skip
ROWS: dict[str, dict[str, list[str]]] = {
    "spikevid": {
        "cured, baseline's model": ["--variant", "cured", *CLIPS, *LIVE],
        "plan A's model": ["--variant", "cured", "--config", PLAN.format("opt"), *CLIPS, *LIVE],
        "plan B's model": ["--variant", "cured", "--config", PLAN.format("fast"), *CLIPS, *LIVE],
        "as_found": ["--variant", "as_found", *CLIPS],
    },
    "heads": {
        "as_found": ["--variant", "as_found", *PICTURES],
        "cured, one camera": ["--variant", "cured", "--cameras_per_step", "1", *PICTURES],
        "cured, four cameras": ["--variant", "cured", *PICTURES],
        "guide, example 1's losses": ["--variant", "guide", *EXAMPLE_1, *PICTURES],
    },
}


def trained(workload: str, flags: Sequence[str], seed: int) -> dict[str, float]:
    """One training: its updates, its last PSNR in dB, milliseconds of a step."""
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "steps.jsonl"
        command = [sys.executable, f"workloads/{workload}/train.py", *flags, "--seed", str(seed)]
        command += ["--out", name, "--step_log", str(log)]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        found = ["".join(groups) for groups in PSNR.findall(done.stdout + done.stderr)]
        if done.returncode or not found:
            raise SystemExit(f"error: {' '.join(command)}:\n{done.stderr[-1500:]}")
        steps = [json.loads(line) for line in log.read_text().splitlines()]
    work = [1e3 * sum(step[phase] for phase in ("fwd", "bwd", "opt")) for step in steps]
    return {"steps": len(steps), "psnr_db": float(found[-1]), "ms": statistics.median(work)}


def continued(parser: argparse.ArgumentParser, before: dict[str, Any]) -> dict[str, Any]:
    """The rows of a result, each with its date; a result of another kind of machine is left alone."""
    here = machine()
    other = [name for name in ("cores", "cpu", "device", "torch") if before["machine"][name] != here[name]]
    if other:
        parser.error(f"the newest result is of another {', '.join(other)}: begin one of its own with --out")
    rows: dict[str, dict[str, dict[str, Any]]] = before["quality"]
    return {row: {k: {"date": before["date"], **v} for k, v in found.items()} for row, found in rows.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workload", choices=tuple(ROWS))
    parser.add_argument("--only", help="one row, by its name")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument(
        "--out", type=Path, help="default: quality-NAME-cpu-DATE.json, from the newest one on"
    )
    options = parser.parse_args()
    rows, today = ROWS[options.workload], date.today().isoformat()
    if options.only not in (None, *rows):
        parser.error(f"--only {options.only}: the rows are {'; '.join(rows)}")
    out = options.out or workload_table.RESULTS / f"quality-{options.workload}-cpu-{today}.json"
    before = json.loads(out.read_text()) if out.exists() else None
    if options.out is None:
        before = workload_table.newest(f"quality-{options.workload}-cpu")
    kept, whole = continued(parser, before) if before else {}, before
    for seed in options.seeds:
        for name in [options.only] if options.only else rows:
            if str(seed) in kept.get(name, {}):
                continue
            found = trained(options.workload, rows[name], seed)
            kept.setdefault(name, {})[str(seed)] = {**found, "date": today}
            print(f"{name}, seed {seed}: {found}", flush=True)
            described: dict[str, Any] = {"workload": options.workload, "date": today, "machine": machine()}
            whole = {**described, "quality": {row: kept[row] for row in rows if row in kept}}
            out.write_text(json.dumps(whole, indent=1) + "\n")
    assert whole is not None
    print(workload_table.table(whole), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
