"""Documentation is proven: generated pages are fresh, every finding has its page and its planted case."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from tests.workloads.scripts import imported

from hotloop.audit.rules import RULES
from hotloop.cli.main import VERBS
from hotloop.diagnose import evidence as running
from hotloop.findings import ENTRIES

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "docs" / "project" / "requirements.md"
PAGES = ROOT / "docs" / "rules"


IDS = sorted(ENTRIES)
SHARED = sorted(set(RULES) & {rule.id for rule in running.rules()})


def generator() -> ModuleType:
    with imported(ROOT / "docs", "generate") as found:
        return found["generate"]


def test_generated_pages_are_fresh() -> None:
    for path, text in generator().pages().items():
        assert path.read_text() == text, f"{path.relative_to(ROOT)} is stale: run 'make docs'"
    for path, data in generator().catalogues().items():
        assert path.read_bytes() == data, f"{path.relative_to(ROOT)} is stale: run 'make docs'"


@pytest.mark.parametrize("finding", IDS)
def test_every_finding_has_a_page_that_says_what_to_do(finding: str) -> None:
    page = PAGES / f"{finding}.md"
    text = page.read_text()
    assert finding in text
    for heading in ("How it is found", "What it costs", "What to do", "When it is wrong"):
        section = re.search(rf"^## {heading}\n+(.+)", text, flags=re.M)
        assert section, f"{page}: no «{heading}»"


@pytest.mark.parametrize("finding", SHARED)
def test_a_finding_of_a_run_and_of_the_source_says_how_the_source_shows_it(finding: str) -> None:
    text = (PAGES / f"{finding}.md").read_text()
    assert re.search(r"^## In the source\n+`hotloop audit` ", text, flags=re.M)


def test_every_requirement_keeps_its_row() -> None:
    rows = re.findall(r"^\| (S\d-\d+|X\d+) \|", REQUIREMENTS.read_text(), flags=re.M)
    counts = {"S0": 64, "S1": 72, "S2": 27, "S3": 29, "S4": 33}
    wanted = [f"{guide}-{n}" for guide, count in counts.items() for n in range(1, count + 1)]
    wanted += [f"X{n}" for n in range(1, 30)]
    assert sorted(rows) == sorted(wanted)


def names_nothing(cell: str) -> list[str]:
    """What of a row's last cell does not exist: files, tests, commands, pages."""
    makefile = (ROOT / "Makefile").read_text()
    missing = [
        link for link in re.findall(r"\]\(([^)#]+)", cell) if not (REQUIREMENTS.parent / link).exists()
    ]
    for words in (code.split() for code in re.findall(r"`([^`]+)`", cell)):
        if words[0] == "hotloop":
            known = words[1] in VERBS
        elif words[0] == "make":
            known = re.search(rf"^{words[1]}:", makefile, flags=re.M) is not None
        elif words[0].startswith("test_"):
            tests = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
            known = any(f"def {words[0]}(" in text for text in tests)
        else:
            known = "/" not in words[0] or (ROOT / words[0]).exists()
        missing += [] if known else [" ".join(words)]
    return missing


def test_every_requirement_names_a_test_or_a_command_that_exists() -> None:
    lines = REQUIREMENTS.read_text().splitlines()
    rows = [line.strip(" |").split(" | ") for line in lines if re.match(r"\| (S\d-\d+|X\d+) \|", line)]
    shown = {row[0]: row[-1] for row in rows}
    assert {name: lacks for name, cell in shown.items() if (lacks := names_nothing(cell))} == {}
    assert [name for name, cell in shown.items() if not re.search(r"`|\]\(|not yet run on a GPU", cell)] == []
