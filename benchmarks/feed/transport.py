"""Bytes per second from a worker to the main process, against plain copies in the same process.

    python benchmarks/feed/transport.py [--rounds 5] [--seconds 1.5] [--only REGEX] [--out FILE]

Eight ready tensors are collated (one copy) and carried. It is compared with one thread's copies between two
ordinary arrays of the batch's size, in the same process before and after. SPDL's arena gets a ready batch.
«work and copies, no loader»: processes that copy into a slot and say so with a byte: what the machine allows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import harness
from harness import Target, Way

SIZES_MB = (1, 10, 40)
#: Bytes of one epoch: enough batches that its beginning does not count.
EPOCH_BYTES = 800_000_000
TORCH, OURS = "DataLoader", "Loader"
REQUIRED_BYTES_S, REQUIRED_SHARE = 20e9, 0.8


def ways(worker_counts: Sequence[int]) -> list[Way]:
    """Every loader with every number of workers; SPDL's arena has one process."""
    found = []
    for count in worker_counts:
        options = {"workers": count}
        found.append(Way(name=f"{TORCH} x{count}", module="torch_loader", call="blocks", options=options))
        found.append(Way(name=f"{OURS} x{count}", module="hotloop_loader", call="blocks", options=options))
        name = f"work and copies, no loader x{count}"
        found.append(Way(name=name, module="ceiling", call="blocks", options=options))
    arena = Way(name="SPDL arena x1", module="spdl_loader", call="blocks", environment="spdl")
    return [*found, arena]


def main() -> int:
    args = harness.parser(__doc__, num_rounds=5).parse_args()
    result = measure(args.rounds, args.seconds, args.workers, args.only)
    report(result)
    harness.finish({"transport": result}, targets(result), args.out)
    return 0


def measure(num_rounds: int, seconds: float, workers: int, only: str = "") -> dict[str, Any]:
    """Rows for every size of a batch."""
    result = {}
    for size_mb in SIZES_MB:
        harness.say(f"transport of {size_mb} MB batches")
        num_bytes = size_mb * (1 << 20)
        settings = {"seconds": seconds, "num_bytes": num_bytes, "count": EPOCH_BYTES // num_bytes}
        base = f"{TORCH} x1"
        chosen = harness.chosen(ways(sorted({1, workers})), only, base=base)
        seen = harness.rounds(chosen, mode="transport", num_rounds=num_rounds, settings=settings)
        rows = harness.summarise(seen, base)
        for row in rows:
            results = seen[row["way"]]["results"]
            if results:
                row["share"] = harness.spread([one["share"] for one in results])
                for key in ("memcpy", "memcpy_in_turn"):
                    row[key] = harness.spread([one[key] for one in results])
        result[f"{size_mb} MB"] = {"settings": settings, "rows": rows}
    return result


def report(result: Mapping[str, Any]) -> None:
    for size, part in result.items():
        harness.print_rows(f"transport, {size} batches", "bytes/s", part["rows"], f"{TORCH} x1")
        for row in part["rows"]:
            if "share" in row:
                share, memcpy = row["share"]["median"], row["memcpy"]["median"]
                in_turn = row["memcpy_in_turn"]["median"]
                text = f"{share:>6.0%} of memcpy ({memcpy / 1e9:.1f} GB/s"
                print(f"    {row['way']:<26}{text}; {in_turn / 1e9:.1f} into five targets in turn)")


def targets(result: Mapping[str, Any]) -> list[Target]:
    """The best number of workers, for every size."""
    found = []
    for size, part in result.items():
        rows = [row for row in part["rows"] if row["way"].startswith(f"{OURS} ") and "share" in row]
        name = f"transport of {size} batches"
        required = f">= 20 GB/s or {REQUIRED_SHARE:.0%} memcpy"
        if not rows:
            found.append(Target(name=name, required=required, measured="did not run", met=None))
            continue
        best = max(rows, key=lambda row: float(row["median"]))
        rate, share = best["median"], best["share"]["median"]
        text = f"{rate / 1e9:.1f} GB/s, {share:.0%} ({best['way']})"
        met = rate >= REQUIRED_BYTES_S or share >= REQUIRED_SHARE
        found.append(Target(name=name, required=required, measured=text, met=met))
    return found


if __name__ == "__main__":
    sys.exit(main())
