"""What loadtune 0.3.0 and Lightning's tuner make of the slow loader and of the respawned workers.

    python benchmarks/recovery/peers.py [--peers DIR] [--out FILE [--resume]]

Both need the dataset, model and step as objects of theirs: ``peer_workloads.py`` takes them from the planted
cases. The case is launched with what they propose (``hotloop run --throw-away``), and that rate
stands beside as found. Their environment is made once, outside the project's; needs a package index.
``--out`` is the file of ``run.py``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results import Results
from run import HERE, ROOT, launch

sys.path.insert(0, str(HERE.parent))
from peer_environment import CASES

PACKAGES = ("loadtune==0.3.0", "lightning==2.6.6")
#: Case, and the text of its DataLoader call that a proposal replaces.
SUBJECTS = {
    "slow_loader": (HERE / "cases" / "slow_loader.py", "shuffle=True)"),
    "input_respawned_short_epochs": (
        HERE.parent / "accuracy" / "cases" / "input_respawned_short_epochs.py",
        "num_workers=2)",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=Path, default=ROOT / ".bench" / "tuners", help="their environment")
    parser.add_argument("--out", type=Path, help="the results, as JSON; goes on where it exists")
    parser.add_argument("--resume", action="store_true", help="skip rows of other versions too")
    args = parser.parse_args()
    python, results = environment(args.peers.resolve()), Results(args.out)
    for name in SUBJECTS:
        for peer in ("loadtune", "lightning"):
            if results.has("peers", f"{peer} {name}", any_version=args.resume):
                continue
            row = one(python, name, peer)
            results.put("peers", f"{peer} {name}", row)
            print(json.dumps(row), flush=True)
    return 0


def environment(folder: Path) -> Path:
    """The python of their environment, created where there is none."""
    python, ready = folder / "bin" / "python", folder / ".tuners"
    if not ready.exists():
        print(f"making the tuners' environment in {folder} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        constraints = ["--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([*install, *constraints, "torch", *PACKAGES, *CASES], check=True)
        ready.touch()
    return python


def one(python: Path, name: str, peer: str) -> dict[str, Any]:
    """What a peer proposes, what it took, and what the case gains by it."""
    path, call = SUBJECTS[name]
    begun_s = time.monotonic()
    done = subprocess.run(
        [str(python), str(HERE / "peer_workloads.py"), peer, str(path)],
        capture_output=True, text=True, timeout=600, check=False, cwd=tempfile.gettempdir(),
    )  # fmt: skip
    row: dict[str, Any] = {"case": name, "peer": peer, "seconds": time.monotonic() - begun_s, "failures": []}
    lines = [line for line in done.stdout.splitlines() if line.startswith("proposed ")]
    if not lines:
        row["failures"].append(done.stderr.strip()[-300:])
        return row
    row["proposed"] = proposed = json.loads(lines[-1].removeprefix("proposed "))
    settings = {key: value for key, value in proposed.items() if key in ("num_workers", "prefetch_factor")}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        words = ", ".join(f"{key}={value}" for key, value in settings.items() if value is not None)
        tuned = folder / path.name
        kept = "shuffle=True, " if call.startswith("shuffle") else ""
        tuned.write_text(path.read_text().replace(call, f"{kept}{words})") if words else path.read_text())
        row["found_per_s"] = launch([sys.executable, str(path)], (), folder / "found", row)
        row["tuned_per_s"] = launch([sys.executable, str(tuned)], (), folder / "tuned", row)
    return row


if __name__ == "__main__":
    sys.exit(main())
