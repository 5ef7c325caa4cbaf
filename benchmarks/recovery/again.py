"""Predictions made again, by today's model, from the recordings that ``run.py --keep`` left.

    python benchmarks/recovery/again.py FILE --keep DIR [--out FILE]

For each row the winner's gain over the run as found, from the first run, and whether the
measured interval of the row holds it. Nothing is launched.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]

from table import table  # noqa: E402

from hotloop.diagnose.evidence import evidence_of  # noqa: E402
from hotloop.diagnose.limits import Limits  # noqa: E402
from hotloop.flow.examine import examine, read  # noqa: E402
from hotloop.model import gain  # noqa: E402
from hotloop.record.publish import write_text_atomic  # noqa: E402
from hotloop.remedy import catalogue  # noqa: E402
from hotloop.report.ranks import lead  # noqa: E402
from hotloop.tune.by_model import in_one_pass, pipeline_of, setup_for  # noqa: E402
from hotloop.tune.launching import epoch_of  # noqa: E402
from hotloop.tune.trial import Examined  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--keep", type=Path, required=True, help="what run.py --keep was given")
    parser.add_argument("--out", type=Path, help="the results with these predictions, as JSON")
    args = parser.parse_args()
    sections = json.loads(args.file.read_text())
    for name, row in sections["cases"].items():
        told = predicted(row, args.keep / name)
        if told is not None:
            low, high = row["measured"][1:]
            inside, meets = low <= told[0] <= high, told[1] <= high and low <= told[2]
            row.update(predicted=told[0], predicted_ci95=list(told[1:]), inside=inside, meets=meets)
    print("\n".join(table(sections)))
    if args.out:
        write_text_atomic(args.out, json.dumps(sections, indent=1) + "\n")
    return 0


def predicted(row: Mapping[str, Any], folder: Path) -> tuple[float, float, float] | None:
    """(ratio, low, high) of the winner; None where no model speaks of it, or nothing was kept."""
    if not row.get("measured") or not (folder / "first").exists():
        return None
    found = examine(read(folder / "first"))
    steps = lead(found.ranks)
    if steps is None:
        return None
    evidence = evidence_of(found.recording, steps, found.ranks, Limits())
    stopped = next(one["more"].get("stopped") for one in row["trials"] if one["key"] == "first")
    pipeline, loader = pipeline_of(evidence), steps.train_loader()
    epoch = epoch_of(Examined(evidence=evidence, findings=found.findings, applied={}))
    if pipeline and loader and loader.num_iterators == 1 and steps.num_steps <= epoch and not stopped:
        pipeline = in_one_pass(pipeline)
    setup = setup_for(tuple(map(catalogue.parse, row["remedies"])), (), pipeline)
    return gain(pipeline, setup) if pipeline is not None and setup is not None else None


if __name__ == "__main__":
    sys.exit(main())
