"""A training system as found, after its guide, and cured: the same training, taking turns in one run.

    python benchmarks/workloads.py landmarks [--scale cpu] [--rounds 8] [--seconds 4] [--out FILE]
    python benchmarks/workloads.py landmarks --variants as_found cured cured-compact cured+mask_pool

Without ``--out`` the result goes to ``results/NAME-DEVICE-DATE.json`` and into the pages that show it.

Every variant is a process of its own, all of them alive from beginning to end; all but one are stopped
(SIGSTOP, with their workers). A turn is a few seconds; every other round runs backwards, so that drift of
the machine meets all alike. A turn of each before the rounds does not count: caches fill in it. The step in
which a process was stopped does not count, nor do start-up, validation and checkpoints: samples per second
are those of training steps. Ratios are means over rounds of ratios within a round, with a 95 % interval.
``cured-PART`` leaves a part out, ``cured+NAME`` puts a regression or one of the system's levers in.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import psutil
from tqdm import tqdm

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import workload_table  # noqa: E402

import hotloop  # noqa: E402
from hotloop.stats import ratio_interval  # noqa: E402

PHASES = ("data_wait", "h2d", "fwd", "bwd", "opt", "other")
#: Losses of this many steps are compared, and a turn has at least this many steps that count.
COMPARED_STEPS, LEAST_STEPS = 10, 3


@dataclass(frozen=True, kw_only=True)
class Workload:
    """How a system is run so that its variants compute the same, and what its guide promises."""

    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)  # variant -> flags
    same: Sequence[str] = ()  # flags for all, so that losses compare
    warm_steps: Mapping[str, int] = field(default_factory=dict)  # variant -> steps before its first turn
    claims: Sequence[str] = ()
    levers: Mapping[str, Sequence[str]] = field(default_factory=dict)  # what ``variant+NAME`` adds


WORKLOADS = {
    "tcn_state": Workload(
        flags={"guide": ["--cache_data"]},
        claims=["500 samples/s -> 2,000 (4x) -> 4,000 cached (8x), on a GPU"],
    ),
    "landmarks": Workload(same=["--identical_targets"], claims=["5-10x with all six fixes, on an RTX 5090"]),
    "spikevid": Workload(
        # The guide's plans change the model, and grouping the order: variants are compared without.
        same=[
            "--options=MODEL.VRT_DEPTHS=[8,8,8,8,4,4,4,8]",
            "--options=MODEL.WINDOW_SIZE=8",
            "--options=DATA.GROUP_SEQUENCES=0",
            "--options=TRAIN.VAL_EVERY_STEPS=1000000000",
        ],
        # An epoch at cpu scale and a few steps: its cache is filled once.
        warm_steps={"cured": 90},
        claims=[
            "cache of 50 GB: 0.4 -> 1.5-2.5 samples/s (3.75-6.25x), hit rate 82 %",
            "plan B: 1.2 -> 2.5 samples/s (2.1x), forward 1789 -> 800-1000 ms, on a GPU",
        ],
    ),
    "heads": Workload(
        # Four cameras a step, and other Gaussians, are another training: variants are compared without.
        same=[
            *("--cameras_per_step", "1", "--densify_from_iter", "1000000000", "--interval", "1000000000"),
            *("--opacity_reset_interval", "1000000000", "--port", "0"),
        ],
        # An epoch at cpu scale, whatever the cameras a step, and some: its cache of 400 pictures is full.
        warm_steps={"cured": 450},
        claims=[
            "2-3 it/s -> 5-7 (2.3x, 8 cores, RTX 3090), 7-10 (2.5x, RTX 4090), 10-15 (2.8x, A100)",
            "workers +30 %, pinning +5-10 %, evaluation half as often +10-15 %",
        ],
        levers={
            "viewer": ["--viewer"],
            "perceptual": ["--use_vgg_loss", "--lambda_perceptual", "0.05"],
            "densification": ["--densify_from_iter", "5", "--densification_interval", "20"],
            "regions": [
                *("--densify_from_iter", "5", "--densification_interval", "20"),
                *("--use_adaptive_densification", "--adaptive_densify_ratio", "1.5"),
            ],
        },
    ),
    "bev": Workload(
        # The guide compares batch sizes by iterations per second; variants are compared at one size.
        same=[
            "--options",
            "data.samples_per_gpu=4",
            "optimizer.lr=2e-4",
            "lr_config.policy=fixed",
            "data.brightness_delta=0.0",
            "data.contrast=0.0",
            "evaluation.interval=1000000000",
            "checkpoint_config.interval=1000000000",
        ],
        claims=[
            "-51 % it/s from batch 4 to 8, which is -2.3 % in samples/s",
            "5-6 it/s at batch 6: 30-36 samples/s, at most 1.2x",
        ],
    ),
}


class StoppedError(Exception):
    """A training process ended before the benchmark did."""


class Racer:
    """One variant's training process, which runs only in its turns."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.log, self.errors = folder / f"{name}.jsonl", folder / f"{name}.err"
        self.rows: list[dict[str, float]] = []
        self.turns: list[list[dict[str, float]]] = []
        self.left_out: list[dict[str, float]] = []
        self.peak_bytes = 0
        self._read = 0
        path = os.pathsep.join(p for p in (str(ROOT / "src"), os.environ.get("PYTHONPATH", "")) if p)
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*command, "--step_log", str(self.log)],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def warm(self, num_steps: int) -> None:
        """Run until the first steps are done, then stop."""
        while len(self.rows) < num_steps:
            self._look()
        self._stop()

    def turn(self, seconds: float) -> None:
        """Run for some seconds and a few steps, then stop; the step that was interrupted is left out."""
        before = len(self.rows)
        self._signal(signal.SIGCONT)
        begun = time.monotonic()
        while time.monotonic() - begun < seconds or len(self.rows) - before <= LEAST_STEPS:
            self._look()
        self._stop()
        self.turns.append(self.rows[before + 1 :])
        self.peak_bytes = max(self.peak_bytes, held_bytes(self.process.pid))

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._signal(signal.SIGKILL)
        self.process.wait()

    def _stop(self) -> None:
        """Stop, and take in what was logged until then: the next step is the one that was interrupted."""
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._look()

    def _signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def _look(self) -> None:
        """Take in the steps that were logged since; wait a moment if there were none."""
        if self.process.poll() is not None:
            raise StoppedError(f"{self.name} ended:\n{self.errors.read_text(errors='replace')[-1500:]}")
        text = b""
        if self.log.exists():
            with self.log.open("rb") as file:
                file.seek(self._read)
                text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        self.rows += [json.loads(line) for line in whole.splitlines()]
        if not whole:
            time.sleep(0.02)


def held_bytes(pid: int) -> int:
    """Memory of a process and its children, what they share counted once."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += one.memory_full_info().pss
    return total


def seconds_of(row: Mapping[str, float]) -> float:
    return sum(row[phase] for phase in PHASES)


def samples_per_s(rows: Sequence[Mapping[str, float]]) -> float:
    seconds = sum(map(seconds_of, rows))
    return sum(row["samples_per_s"] * seconds_of(row) for row in rows) / seconds


def command_of(name: str, workload: str, scale: str, folder: Path, more: Sequence[str]) -> list[str]:
    """``variant``, ``variant-PART`` or ``variant+REGRESSION`` as a command line."""
    parts = re.fullmatch(r"(as_found|guide|cured)(?:-(\w+))?(?:\+(\w+))?", name)
    if parts is None:
        raise SystemExit(f"error: no variant {name!r}: as_found, guide, cured, cured-PART, cured+REGRESSION")
    variant, left_out, regression = parts.groups()
    known = WORKLOADS[workload]
    lever = known.levers.get(regression)
    if lever is not None:
        regression = None
    return [
        sys.executable, str(ROOT / "workloads" / workload / "train.py"),
        "--variant", variant, "--scale", scale, "--epochs", "1000000", "--out", str(folder / name),
        *(["--ablate", left_out] if left_out else []), *(["--regression", regression] if regression else []),
        *known.same, *known.flags.get(variant, ()), *(lever or ()), *more,
    ]  # fmt: skip


@contextlib.contextmanager
def racers(options: argparse.Namespace, folder: Path) -> Iterator[list[Racer]]:
    """The processes, warmed up one after the other and stopped."""
    made: list[Racer] = []
    try:
        for name in options.variants:
            command = command_of(name, options.workload, options.scale, folder, options.more)
            made.append(Racer(name, command, folder))
            variant = re.split(r"[-+]", name)[0]
            made[-1].warm(WORKLOADS[options.workload].warm_steps.get(variant, COMPARED_STEPS))
        yield made
    finally:
        for racer in made:
            racer.close()


def race(options: argparse.Namespace) -> list[Racer]:
    with tempfile.TemporaryDirectory() as name, racers(options, Path(name)) as running:
        with tqdm(total=(1 + options.rounds) * len(running), unit="turn", disable=None) as bar:
            for number in range(-1, options.rounds):
                for racer in running if number % 2 == 0 else reversed(running):
                    bar.set_description(racer.name)
                    racer.turn(options.seconds)
                    bar.update()
                    if number < 0:
                        racer.left_out = racer.turns.pop()
        return running


def summarise(racer: Racer, base: Racer) -> dict[str, Any]:
    rates = [samples_per_s(rows) for rows in racer.turns]
    rows = [row for turn in racer.turns for row in turn]
    logs = [math.log(rate / samples_per_s(turn)) for rate, turn in zip(rates, base.turns, strict=True)]
    mean, low, high = ratio_interval(logs)
    quartiles = statistics.quantiles(rates, n=4)
    pairs = zip(racer.rows[:COMPARED_STEPS], base.rows[:COMPARED_STEPS], strict=True)
    return {
        "variant": racer.name,
        "samples_per_s": statistics.median(rates),
        "middle_half": [quartiles[0], quartiles[2]],
        "best_samples_per_s": max(rates),
        "turns": rates,
        "left_out_samples_per_s": samples_per_s(racer.left_out),
        "num_steps": len(rows),
        "ratio": mean,
        "ci95": [low, high],
        "phases_s": {phase: statistics.fmean(row[phase] for row in rows) for phase in PHASES},
        "peak_bytes": racer.peak_bytes,
        "losses": [row["loss"] for row in racer.rows[:COMPARED_STEPS]],
        "largest_loss_difference": max(abs(a["loss"] / b["loss"] - 1) for a, b in pairs),
    }


def commit() -> str:
    """The commit measured, with a + where the tree differs from it; empty outside a repository."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude", "*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": platform.processor() or platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "hotloop": hotloop.__version__,
        "commit": commit(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "load": os.getloadavg(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workload", choices=tuple(WORKLOADS))
    parser.add_argument("--scale", choices=("tiny", "cpu", "full"), default="cpu")
    parser.add_argument("--variants", nargs="+", default=["as_found", "guide", "cured"])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a turn")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/NAME-DEVICE-DATE.json")
    parser.add_argument("more", nargs="*", help="after --: flags for every variant's train.py")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a timeout leaves no variant training
    if options.rounds < 2:
        parser.error(f"--rounds {options.rounds}: at least 2, for an interval")
    try:
        running = race(options)
    except StoppedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    described = machine()
    result = {
        "workload": options.workload,
        "scale": options.scale,
        "date": date.today().isoformat(),
        "machine": described,
        "rounds": options.rounds,
        "turn_s": options.seconds,
        "flags": options.more,
        "claims": list(WORKLOADS[options.workload].claims),
        "variants": [summarise(racer, running[0]) for racer in running],
    }
    print(workload_table.table(result), end="")
    device = "cpu" if described["device"] == "cpu" else "gpu"
    out = options.out or workload_table.RESULTS / f"{options.workload}-{device}-{result['date']}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nwritten to {out}")
    if options.out is None:
        for page, text in workload_table.pages().items():
            page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
