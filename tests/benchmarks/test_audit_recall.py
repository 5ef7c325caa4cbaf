"""The audit's figures: planted faults are found, clean scripts are left alone, and big trees take seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.workloads.scripts import imported

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def benchmark() -> Iterator[ModuleType]:
    with imported(ROOT / "benchmarks", "audit") as found:
        yield found["audit"]


def test_planted_faults_are_found(benchmark: ModuleType) -> None:
    by_rule = benchmark.recall(benchmark.hosts()[::3])
    planted = sum(count for count, _, _ in by_rule.values())
    found = sum(seen for _, seen, _ in by_rule.values())
    assert planted > 250
    assert found >= benchmark.LIMIT_RECALL * planted, by_rule
    assert len(by_rule) == len({plant.rule for plant in benchmark.PLANTS})
