"""`hotloop analyze --html`: the parts of a run's page, made of other people's records."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from test_html import Page
from tests import running


def analyzed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return running.hotloop("analyze", *words, folder=folder)


def a_log(slow: bool = True) -> str:
    seconds = [0.25] * 50 + [1.0 if slow else 0.25] * 50
    return "".join(
        f"step {i * 10} loss 2.1 time {s + i % 3 / 1000:.3f}s data_time {s - 0.2:.3f}s\n"
        for i, s in enumerate(seconds, start=1)
    )


def test_throughput_changes_shares_and_findings_are_on_one_page(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(a_log())
    (tmp_path / "even<b>.log").write_text(a_log(slow=False))
    done = analyzed(tmp_path, "--html", "page.html", "run.log", "even<b>.log")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    page = Page((tmp_path / "page.html").read_text())
    assert page.wrong == [] and page.open == []
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids)) and {"time", "findings", "charts", "files"} <= set(ids)
    assert "src" not in {name for _, attributes in page.elements for name in attributes}
    words = page.words()
    assert "trend/throughput-decay" in words and "3.98 to 1.00 steps/s" in words and "run.log:51" in words
    assert "even<b>.log" in words
    run, even = json.loads(page.scripts[0])["charts"]
    assert run["unit"] == "steps/s" and len(run["lines"][0]["values"]) == 100
    assert [line["label"] for line in even["lines"]] == ["rate"]


def test_a_file_that_tells_nothing_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "odd.log").write_bytes(os.urandom(5000))
    done = analyzed(tmp_path, "--html", "page.html", "--json", "odd.log")
    assert json.loads(done.stdout)["schema"] == 1
    assert "odd.log" in Page((tmp_path / "page.html").read_text()).words()


def test_a_page_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(a_log())
    done = analyzed(tmp_path, "--html", "no/such/page.html", "run.log")
    assert done.returncode == 2 and "cannot write no/such/page.html" in done.stderr
    assert "Traceback" not in done.stderr
