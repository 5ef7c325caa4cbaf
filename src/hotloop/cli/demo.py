"""``hotloop demo``: the whole chain on a bundled training system."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path

from hotloop.cli import arguments
from hotloop.cli.output import say
from hotloop.errors import HotloopError, UsageError

#: The systems that are bundled so far.
WORKLOADS = ("tcn_state", "landmarks", "bev")
#: What they import beside the standard library.
_NEEDS = ("torch", "numpy", "h5py", "sklearn", "yaml", "tqdm", "PIL", "tensorboard")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop demo``."""
    words = f"one of: {', '.join(WORKLOADS)}"
    parser.add_argument("workload", metavar="WORKLOAD", nargs="?", default=WORKLOADS[0], help=words)
    parser.add_argument("--variant", choices=("as_found", "guide", "cured"), default="as_found")
    parser.add_argument("--scale", choices=("tiny", "cpu", "full"), default="cpu")
    arguments.add_out(parser)
    arguments.add_json(parser, "report.json")


def main(options: argparse.Namespace) -> int:
    """Runs the workload under hotloop; returns its exit code."""
    if options.workload not in WORKLOADS:
        raise UsageError(f"no workload named {options.workload!r}", hint=f"there is: {', '.join(WORKLOADS)}")
    if lacks := [name for name in _NEEDS if importlib.util.find_spec(name) is None]:
        raise UsageError(
            f"the demo trains a system that needs {', '.join(lacks)}",
            hint="pip install 'hotloop[workloads]'",
        )
    folder, copied = _workloads_folder()
    script = folder / options.workload / "train.py"
    from hotloop.cli import run

    out = options.out or (folder.parent / "run" if copied else None)
    asked = ["--out", str(out)] if out else []
    asked += ["--json"] if options.json else []
    asked += ["--", sys.executable, str(script), "--variant", options.variant, "--scale", options.scale]
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    try:
        return run.main(parser.parse_args(asked))
    except HotloopError:
        if copied:
            shutil.rmtree(folder.parent, ignore_errors=True)
        raise


def _workloads_folder() -> tuple[Path, bool]:
    """Of this checkout, or a copy of what came with the package, and whether it is one: the systems write
    beside themselves.
    """
    own = Path(__file__).resolve().parents[3] / "workloads"
    for folder in (Path.cwd() / "workloads", own):
        if (folder / WORKLOADS[0] / "train.py").is_file():
            return folder, False
    copy = Path(tempfile.mkdtemp(prefix="hotloop-demo-")) / "workloads"
    shutil.copytree(Path(__file__).resolve().parents[1] / "workloads", copy)
    say(f"the systems are in {copy}, and the run beside them, but for --out: delete it when you like")
    return copy, True
