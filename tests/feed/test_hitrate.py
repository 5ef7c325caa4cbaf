"""The closed forms against a simulation, and the page against the closed forms."""

from __future__ import annotations

import re
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from hotloop.feed.throughput import Policy, expected_hit_rate

NUM_SAMPLES = 4_000
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "hit-rate.md").read_text()


def simulated(policy: Policy, fraction: float) -> float:
    """The hit rate of the last three of six shuffled epochs."""
    random = np.random.default_rng(7)
    capacity, hits = int(fraction * NUM_SAMPLES), 0
    cache: OrderedDict[int, None] = OrderedDict()
    for epoch in range(6):
        for sample in random.permutation(NUM_SAMPLES).tolist():
            hit = sample in cache
            hits += hit and epoch >= 3
            if policy == "lru":
                cache[sample] = None
                cache.move_to_end(sample)
                if len(cache) > capacity:
                    cache.popitem(last=False)
            elif len(cache) < capacity:
                cache[sample] = None
    return hits / (3 * NUM_SAMPLES)


@pytest.mark.parametrize("policy", ["keep", "lru"])
@pytest.mark.parametrize("fraction", [0.1, 0.35, 0.65, 0.9])
def test_closed_forms(policy: Policy, fraction: float) -> None:
    assert simulated(policy, fraction) == pytest.approx(expected_hit_rate(policy, fraction), abs=0.012)


def test_the_figures_of_the_page() -> None:
    rows = re.findall(r"^\| (0\.\d+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, flags=re.M)
    assert len(rows) >= 6
    for c, keep, lru in rows:
        assert float(keep) == pytest.approx(expected_hit_rate("keep", float(c)), abs=6e-4)
        assert float(lru) == pytest.approx(expected_hit_rate("lru", float(c)), abs=6e-4)
