"""Every expert's cure still fits its planted case."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path[:0] = [str(ROOT / "recovery")]

from cures import CURES, cured  # noqa: E402


@pytest.mark.parametrize("name", CURES)
def test_a_cure_changes_its_case_into_a_script(name: str, tmp_path: Path) -> None:
    folders = (ROOT / "recovery" / "cases", ROOT / "accuracy" / "cases")
    case = next(path for folder in folders if (path := folder / f"{name}.py").exists())
    made = cured(case, tmp_path)
    assert made.read_text() != case.read_text()
    ast.parse(made.read_text())


def test_a_cure_for_another_script_is_refused() -> None:
    with pytest.raises(ValueError, match="is there 0 times"):
        CURES["slow_loader"].applied("print()")
