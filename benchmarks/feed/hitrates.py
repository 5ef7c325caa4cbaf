"""How often real caches hit over real epochs, for every policy and size, beside the closed forms.

    python benchmarks/feed/hitrates.py [--samples 3000] [--epochs 4] [--only REGEX] [--out FILE]

Hits are counted from outside: readings that did not reach the dataset, from the second epoch on (with
replacement: after the first 3 N draws). Beside the closed form stands what the same order, replayed through a
simulated cache of as many samples, would have hit. c is the fraction of the dataset that the cache held.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import harness
import numpy as np
import replay
import torch
from harness import Target
from torch.utils.data import Dataset

from hotloop.feed import cached, hitrate

FRACTIONS = (0.1, 0.35, 0.5, 0.65, 0.9)
SAMPLE_BYTES = 4096
#: Policy, how samples are drawn, and the policy whose closed form it should reach.
CASES = (
    ("keep", "epochs", "keep"),
    ("cost", "epochs", "keep"),
    ("lru", "epochs", "lru"),
    ("clairvoyant", "epochs", "clairvoyant"),
    ("lru", "replacement", "lru"),
    ("clairvoyant", "replacement", "clairvoyant"),
)
#: With replacement it takes three times N draws until 95 % of the samples were seen.
REPLACEMENT_WARM_UP = 3
#: Policy, how samples are drawn, what it is compared with, and how near it must be: an order of some thousand
#: draws meets its closed form within about 0.01; ``keep`` is exact.
REQUIRED = (
    ("keep", "epochs", "closed_form", 0.002),
    ("lru", "epochs", "closed_form", 0.01),
    ("clairvoyant", "epochs", "closed_form", 0.002),
    ("clairvoyant", "replacement", "replayed", 0.01),
)


class Counting(Dataset[torch.Tensor]):
    """Small samples of one size, and how many were read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.num_reads = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        self.num_reads += 1
        return torch.full((SAMPLE_BYTES,), index % 251, dtype=torch.uint8)


def main() -> int:
    parser = harness.parser(__doc__, num_rounds=1)
    parser.add_argument("--samples", type=int, default=3000)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    result = measure(args.samples, args.epochs, args.only)
    report(result)
    harness.finish({"hitrates": result}, targets(result), args.out)
    return 0


def measure(num_samples: int, num_epochs: int, only: str = "") -> dict[str, Any]:
    """One row for every case and fraction."""
    rows = []
    for policy, sampling, form in CASES:
        if not re.search(only, f"{policy} {sampling}"):
            continue
        for fraction in FRACTIONS:
            row = one(policy, sampling, form, fraction, num_samples, num_epochs)
            harness.say(f"  {policy} {sampling} c={row['fraction']:.3f}: {row['hit_rate']:.4f}")
            rows.append(row)
    return {"samples": num_samples, "epochs": num_epochs, "rows": rows}


def one(
    policy: str, sampling: Any, form: Any, fraction: float, num_samples: int, num_epochs: int
) -> dict[str, Any]:
    """Read a whole run through a cache of about this fraction."""
    dataset = Counting(num_samples)
    limit = int(fraction * num_samples * SAMPLE_BYTES) + overhead_bytes(num_samples)
    through = cached(dataset, max_bytes=limit, policy=policy, shared=False)
    warm_up = 1 if sampling == "epochs" else REPLACEMENT_WARM_UP
    order = replay.draw(num_samples, warm_up + num_epochs, sampling=sampling)
    # Draws with replacement have no epochs: the order is known as a whole.
    stretch = num_samples if sampling == "epochs" else len(order)
    hits = np.zeros(len(order), np.bool_)
    for start in range(0, len(order), stretch):
        ahead = order[start : start + stretch].tolist()
        through.plan_epoch(ahead)
        for position, index in enumerate(ahead, start):
            before = dataset.num_reads
            sample = through[index]
            hits[position] = dataset.num_reads == before
            assert int(sample[0]) == index % 251, "the cache gave another sample"
        through.epoch_end()
    stats = through.stats()
    through.close()
    held = stats.num_items
    warm = warm_up * num_samples
    return {
        "policy": policy,
        "sampling": sampling,
        "fraction": held / num_samples,
        "hit_rate": float(hits[warm:].mean()),
        "closed_form": hitrate.expected_hit_rate(form, held / num_samples, sampling=sampling),
        "replayed": float(replay.simulate(form, order, held)[warm:].mean()),
        "all_counted": float(hits.mean()),
        "all_reported": stats.hit_rate,
    }


def overhead_bytes(num_samples: int) -> int:
    """What a cache takes besides the samples: asked of an empty one."""
    probe = cached(Counting(num_samples), max_bytes="64MB", shared=False)
    taken = probe.stats().resident_bytes
    probe.close()
    return taken


def report(result: Mapping[str, Any]) -> None:
    print(f"\nhit rates, {result['samples']} samples, {result['epochs']} epochs counted once warm")
    print(f"  {'policy':<13}{'drawn':<13}{'c':>7}{'measured':>10}{'formula':>9}{'replayed':>10}")
    for row in result["rows"]:
        print(
            f"  {row['policy']:<13}{row['sampling']:<13}{row['fraction']:>7.3f}{row['hit_rate']:>10.4f}"
            f"{row['closed_form']:>9.4f}{row['replayed']:>10.4f}"
        )


def targets(result: Mapping[str, Any]) -> list[Target]:
    """``keep`` is c; the others are compared with their form, or with the same order replayed."""
    found = []
    for policy, sampling, reference, tolerance in REQUIRED:
        rows = [row for row in result["rows"] if (row["policy"], row["sampling"]) == (policy, sampling)]
        if not rows:
            continue
        off = max((row["hit_rate"] - row[reference] for row in rows), key=abs)
        drawn = "" if sampling == "epochs" else " with replacement"
        word = "its closed form" if reference == "closed_form" else "the optimum of the order"
        name = f"hit rate of {policy}{drawn}: {'c' if policy == 'keep' else word}"
        met = abs(off) <= tolerance
        measured = f"{off:+.4f} at most"
        found.append(Target(name=name, required=f"+- {tolerance:g}", measured=measured, met=met))
    return found


if __name__ == "__main__":
    sys.exit(main())
