"""The hit-rate page says what the code computes, and shows a picture that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotloop.feed.hitrate import Policy, Sampling, expected_hit_rate

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "guides" / "hit-rate.md").read_text()


def rows(name: str) -> list[list[str]]:
    table = TEXT.partition(f"<!-- {name} -->")[2].partition("<!-- end -->")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()]
    return cells[2:]


def both(cell: str) -> tuple[float, float]:
    """The figure by formula and the simulated one."""
    match = re.fullmatch(r"([\d.]+) \(([\d.]+)\)", cell)
    assert match, cell
    return float(match[1]), float(match[2])


@pytest.mark.parametrize(
    ("name", "policies"), [("epochs", ("keep", "random", "lru")), ("replacement", ("lru", "clairvoyant"))]
)
def test_the_tables_are_fresh(name: Sampling, policies: tuple[Policy, ...]) -> None:
    assert len(rows(name)) >= 3
    for fraction, *cells in rows(name):
        for policy, cell in zip(policies, cells, strict=True):
            formula, simulated = both(cell)
            expected = expected_hit_rate(policy, float(fraction), sampling=name)
            assert formula == pytest.approx(expected, abs=6e-4)
            assert simulated == pytest.approx(expected, abs=0.005)


def test_the_table_of_shards_is_fresh() -> None:
    assert len(rows("shards")) == 6
    for nodes, fraction, keep, lru, _ in rows("shards"):
        for policy, cell in (("keep", keep), ("lru", lru)):
            formula, simulated = both(cell)
            expected = expected_hit_rate(policy, float(fraction), sampling="shards", num_nodes=int(nodes))
            assert formula == pytest.approx(expected, abs=6e-4)
            assert simulated == pytest.approx(expected, abs=0.005)


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / "docs" / "guides" / target).exists(), target
