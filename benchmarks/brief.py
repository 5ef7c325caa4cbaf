"""From the brief to the proof on planted cases whose rewriter is gone: what the recipe says, applied by hand.

    python benchmarks/brief.py [--only REGEX] [--out FILE]

Each case is recorded, its brief is printed into the working folder, the edit below is made as the recipe of
the brief says it, and `hotloop verify` and `hotloop compare` judge it with the commands of the brief.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CASES = HERE / "accuracy" / "cases"
SRC = HERE.parent / "src"


@dataclass(frozen=True, kw_only=True)
class Edit:
    """What a person writes after reading the brief of a finding."""

    case: str
    finding: str
    effect: str
    before: str
    after: str


EDITS = (
    Edit(
        case="device_optimizer_in_a_loop",
        finding="device/optimizer-not-fused",
        effect="numeric",
        before="optimizer = MyAdamW(model.parameters())",
        after="optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)",
    ),
    Edit(
        case="input_collate_in_workers",
        finding="input/slow-collate",
        effect="exact",
        before="""    offset = 0
    for x, edges, _ in graphs:
        for a, b in edges.tolist():
            adj[offset + a, offset + b] = 1.0
            adj[offset + b, offset + a] = 1.0
""",
        after="""    offset, view = 0, adj.numpy()
    for x, edges, _ in graphs:
        a, b = edges.T + offset
        view[a, b] = view[b, a] = 1.0
""",
    ),
    Edit(
        case="device_recompute_on_cpu",
        finding="device/recompute-checkpointing",
        effect="numeric",
        before="x = checkpoint(block, x, use_reentrant=False)",
        after="x = block(x)",
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="only cases whose name matches this regular expression")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args()
    rows = []
    for edit in EDITS:
        if re.search(args.only, edit.case):
            with tempfile.TemporaryDirectory() as folder:
                row = judged(edit, Path(folder))
            print(f"{row['case']:28} {row['finding']:32} verify {row['verify']}  {row['speed']}", flush=True)
            rows.append(row)
    if args.out:
        args.out.write_text(json.dumps({"cases": rows}, indent=1) + "\n")
    return 0


def judged(edit: Edit, folder: Path) -> dict[str, Any]:
    """Record, read the brief, edit, record again, verify, compare."""
    script = folder / f"{edit.case}.py"
    shutil.copy(CASES / script.name, script)
    command = ["--", sys.executable, script.name]
    hotloop(folder, "run", "--evidence", "--out", "base", *command)
    brief = hotloop(folder, "brief", "base", edit.finding).stdout
    text = script.read_text()
    assert text.count(edit.before) == 1, edit.case
    script.write_text(text.replace(edit.before, edit.after))
    hotloop(folder, "run", "--evidence", "--out", "changed", *command)
    verify = hotloop(folder, "verify", "--effect", edit.effect, "base", "changed")
    compare = hotloop(folder, "compare", "base", "changed", "--json")
    found = json.loads(compare.stdout)["comparisons"][0]
    low, high = found["ci95"]
    return {
        "case": edit.case,
        "finding": edit.finding,
        "recipe": re.search(r"## What to write\n(.*?)\n## ", brief, re.S)[1].strip(),  # type: ignore[index]
        "verify": {0: "passed", 1: "failed"}.get(verify.returncode, verify.stderr),
        "verify_says": verify.stdout,
        "ratio": found["ratio"],
        "ci95": found["ci95"],
        "speed": f"{found['ratio']:.2f}x ({low:.2f} - {high:.2f})",
    }


def hotloop(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    return subprocess.run(
        [sys.executable, "-m", "hotloop", *words], cwd=folder, env=env, capture_output=True, text=True
    )


if __name__ == "__main__":
    raise SystemExit(main())
