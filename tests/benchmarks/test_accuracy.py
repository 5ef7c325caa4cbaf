"""The accuracy benchmark: its cases say what is true about them, and its judge can say no."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.workloads.scripts import imported

from hotloop.diagnose.evidence import rules

FOLDER = Path(__file__).parents[2] / "benchmarks" / "accuracy"


@pytest.fixture(scope="module")
def case() -> Iterator[ModuleType]:
    with imported(FOLDER, "case") as found:
        yield found["case"]


def public_ids() -> set[str]:
    return {rule.id for rule in rules()}


def finding(
    id: str = "input/slow-sample", line: int = 2, severity: str = "high", file: str = "c.py"
) -> dict[str, Any]:
    where = {"file": f"/somewhere/{file}", "line": line, "function": ""}
    return {"id": id, "severity": severity, "where": where, "message": "slow", "evidence": []}


def report(*findings: dict[str, Any], bottleneck: str = "input", accounted: float = 1.0) -> dict[str, Any]:
    return {"findings": list(findings), "bottleneck": bottleneck, "accounted_ratio": accounted}


@pytest.fixture
def planted(case: ModuleType, tmp_path: Path) -> Any:
    path = tmp_path / "c.py"
    path.write_text(
        "# truth: input/slow-sample | input/single-process\n# bottleneck: input\n# line: decode\n"
        "# not: input/too-few-workers\n# args: --n 2\nx = decode()\ny = 1\n"
    )
    return case.read(path)


def test_there_are_enough_cases_and_every_header_parses(case: ModuleType) -> None:
    cases = case.load(FOLDER / "cases")
    assert len(cases) >= 50
    assert sum(c.healthy for c in cases) >= 8
    assert all(c.bottleneck for c in cases)
    assert len(case.load(FOLDER / "cases_gpu")) >= 6


def test_headers_name_only_findings_that_exist(case: ModuleType) -> None:
    known = public_ids()
    for c in [*case.load(FOLDER / "cases"), *case.load(FOLDER / "cases_gpu")]:
        assert {*c.truth, *c.has, *c.never} <= known, c.name


def test_every_finding_has_a_case_or_a_reason(case: ModuleType) -> None:
    cases = [*case.load(FOLDER / "cases"), *case.load(FOLDER / "cases_gpu")]
    planted = {id for c in cases for id in (*c.truth, *c.has)}
    excused = set(re.findall(r"^\| `([a-z]+/[a-z0-9-]+)` \|", (FOLDER / "README.md").read_text(), re.M))
    assert public_ids() - planted == excused


def test_a_line_pattern_matches_a_line_of_its_case(case: ModuleType) -> None:
    for c in [*case.load(FOLDER / "cases"), *case.load(FOLDER / "cases_gpu")]:
        code = [line for line in c.path.read_text().splitlines() if not line.startswith("#")]
        assert not c.line or any(re.search(c.line, line) for line in code), c.name


def test_no_case_knows_the_tool(case: ModuleType) -> None:
    for c in [*case.load(FOLDER / "cases"), *case.load(FOLDER / "cases_gpu")]:
        assert "hotloop" not in c.path.read_text(), c.name


def test_a_right_report_passes(case: ModuleType, planted: Any) -> None:
    verdict = case.judge(planted, report(finding(line=6)))
    assert verdict.failures == ()
    assert verdict.right_line is True
    assert planted.command("python") == ["python", str(planted.path), "--n", "2"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (report(finding("host/python-in-step", line=6)), "first finding host/python-in-step"),
        (report(finding(line=6), bottleneck="device"), "bottleneck device"),
        (report(finding(line=7)), "line c.py:7"),
        (report(finding(line=6, file="other.py")), "line other.py:6"),
        (report(finding(line=6), accounted=0.97), "accounted 0.970"),
        (report(finding(line=6), finding("input/too-few-workers")), "says input/too-few-workers"),
        (report(), "first finding none"),
        (report(finding(line=6, severity="info")), "first finding none"),
    ],
)
def test_a_wrong_report_fails(case: ModuleType, planted: Any, wrong: dict[str, Any], said: str) -> None:
    assert said in case.judge(planted, wrong).failures


def test_a_line_may_be_named_in_the_evidence(case: ModuleType, planted: Any) -> None:
    single = {**finding("input/single-process", line=7), "evidence": ["the line at c.py:6 takes 90 %"]}
    assert case.judge(planted, report(single)).failures == ()


def test_healthy_means_nothing_above_info(case: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "h.py"
    path.write_text("# healthy\n# bottleneck: device\n")
    healthy = case.read(path)
    assert case.judge(healthy, report(finding(severity="info"), bottleneck="device")).failures == ()
    assert case.judge(healthy, report(finding(severity="low"), bottleneck="device")).failures != ()


def test_a_case_without_truth_is_refused(case: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "nothing.py"
    path.write_text("import torch\n")
    with pytest.raises(ValueError, match="header must say"):
        case.read(path)
