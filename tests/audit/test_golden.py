"""Golden sources found by folder: every ``bad*.py`` has the finding its folder names, no ``good*.py`` has it.

A configuration beside a case (same name, ``.yaml``, or ``.config`` for mmcv-style Python) is given with it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hotloop.audit.audit import audit
from hotloop.audit.discovery import rules
from hotloop.audit.tree import Machine

GOLDEN = Path(__file__).parent / "golden"
IDS = [rule.id for rule in rules()]
CASES = sorted(GOLDEN.glob("*/*.py"))


def found(case: Path, tmp_path: Path) -> list[str]:
    configs = []
    if case.with_suffix(".yaml").exists():
        configs.append(case.with_suffix(".yaml"))
    if case.with_suffix(".config").exists():
        configs.append(Path(shutil.copy(case.with_suffix(".config"), tmp_path / "config.py")))
    return [finding.id for finding in audit([case], configs, Machine(cores=16)).findings]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.stem}")
def test_golden_source(case: Path, tmp_path: Path) -> None:
    rule = next(name for name in IDS if name.replace("/", "-", 1) == case.parent.name)
    assert (rule in found(case, tmp_path)) == case.stem.startswith("bad")


@pytest.mark.parametrize("rule", IDS)
def test_every_rule_has_a_bad_and_a_good_example(rule: str) -> None:
    folder = GOLDEN / rule.replace("/", "-", 1)
    assert list(folder.glob("bad*.py"))
    assert list(folder.glob("good*.py"))
