"""A finding id has one home and one page, and what the home names is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotloop.audit.rules import RULES
from hotloop.diagnose import evidence as running
from hotloop.findings import ENTRIES, about_batches, about_computing, pages
from hotloop.remedy import catalogue

PAGES = Path(__file__).resolve().parents[2] / "docs" / "rules"
#: What no snippet answers: the finding names the place to look at.
IN_WORDS = {"device/hot-module", "device/low-intensity", "distributed/straggler"}
#: What only other people's records are given.
OF_RECORDS = {"input/data-wait"}


def test_an_id_has_one_home() -> None:
    assert not about_batches.ENTRIES.keys() & about_computing.ENTRIES.keys()


def test_every_rule_and_every_page_has_a_home_and_no_other_is_there() -> None:
    rules = set(RULES) | {rule.id for rule in running.rules()}
    assert rules | OF_RECORDS == set(ENTRIES)
    assert {f"{path.parent.name}/{path.stem}" for path in PAGES.glob("*/*.md")} == set(ENTRIES)


@pytest.mark.parametrize("finding", ENTRIES)
def test_a_home_is_complete(finding: str) -> None:
    entry = ENTRIES[finding]
    known = {remedy.id for remedy in catalogue.remedies()}
    assert set(entry.remedies) <= known, "a remedy that is not there"
    assert pages.page(finding).startswith(f"# {finding}\n")
    assert ".md)" not in pages.page(finding)  # a report has no other page beside it
    assert entry.title.endswith(".") and entry.advice.endswith(".")
    assert ("```" in pages.what_to_do(finding)) != (finding in IN_WORDS)


def test_what_to_do_has_the_examples_for_the_code() -> None:
    counted, scored = (pages.what_to_do("host/python-in-step", code) for code in ("n += 1", "auc(y, p)"))
    assert "bincount" in counted and "has 8 more" in counted and "<!--" not in counted
    assert "roc_auc_score" in scored and "bincount" not in scored
