"""``hotloop demo``: the whole chain on a bundled training system."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hotloop.cli import arguments
from hotloop.errors import UsageError

#: The systems that are bundled so far.
WORKLOADS = ("tcn_state", "landmarks", "bev")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop demo``."""
    parser.add_argument(
        "workload",
        metavar="WORKLOAD",
        nargs="?",
        default=WORKLOADS[0],
        help=f"one of: {', '.join(WORKLOADS)}",
    )
    parser.add_argument("--variant", choices=("as_found", "guide", "cured"), default="as_found")
    parser.add_argument("--scale", choices=("tiny", "cpu", "full"), default="cpu")
    arguments.add_out(parser)
    arguments.add_json(parser, "report.json")


def main(options: argparse.Namespace) -> int:
    """Runs the workload under hotloop; returns its exit code."""
    if options.workload not in WORKLOADS:
        raise UsageError(f"no workload named {options.workload!r}", hint=f"there is: {', '.join(WORKLOADS)}")
    script = _workloads_folder() / options.workload / "train.py"
    if not script.is_file():
        raise UsageError(
            f"{script} is not there: the workloads travel with the source tree, not with the wheel",
            hint="run the demo from a checkout: make demo",
        )
    from hotloop.cli import run

    asked = ["--out", str(options.out)] if options.out else []
    asked += ["--json"] if options.json else []
    asked += ["--", sys.executable, str(script), "--variant", options.variant, "--scale", options.scale]
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    return run.main(parser.parse_args(asked))


def _workloads_folder() -> Path:
    here = Path.cwd() / "workloads"
    return here if here.is_dir() else Path(__file__).resolve().parents[3] / "workloads"
