"""Every rule finds something in its bad examples, and nothing in its good ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_examples import ALL, Example

from hotloop.audit.audit import audit
from hotloop.audit.program import Machine
from hotloop.audit.rules import RULES


@pytest.mark.parametrize("example", ALL, ids=lambda one: f"{one.rule}-{one.name.replace(' ', '-')}")
def test_an_example(example: Example, tmp_path: Path) -> None:
    script, configs = example.write(tmp_path)
    found = {finding.id for finding in audit([script], configs, Machine(cores=16)).findings}
    assert (example.rule in found) == example.is_bad


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_bad_and_a_good_example(rule: str) -> None:
    assert {example.is_bad for example in ALL if example.rule == rule} == {True, False}
