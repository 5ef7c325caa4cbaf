"""docs/reference/recording.md says what the files are: its tables are complete and its examples run."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path

import crafted
import numpy as np
import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "recording.md").read_text(
    encoding="utf-8"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    store = crafted.begun(path)
    notes = [{"kind": "loader", "id": 1, "num_workers": 2, "batch_size": 8}]
    pid = crafted.gone_pid()
    crafted.write(store.raw_dir, pid, notes=notes)
    store.take_in(([{"t_ns": 1}], [{"t_ns": 1, "pid": 7.0, "rss_bytes": 1e9}]))
    store.finish(crafted.Ended())
    return path


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("query", examples("sql"))
def test_every_query_runs_and_finds_something(folder: Path, query: str) -> None:
    name = "system" if "FROM process " in query else "rank-0"
    db = sqlite3.connect(folder / f"{name}.sqlite")
    assert db.execute(query).fetchall()
    db.close()


def test_the_unpacking_example_gives_the_rows_back(folder: Path) -> None:
    (code,) = examples("python")
    before = Path.cwd()
    os.chdir(folder)
    try:
        names: dict[str, object] = {}
        exec(code, names)
    finally:
        os.chdir(before)
    rows = names["rows"]
    assert isinstance(rows, np.ndarray)
    assert rows["kind"].tolist() == [kind for kind, _ in crafted.STEP] * 3
    assert rows["start"][0] == 1_000
    names["db"].close()  # type: ignore[attr-defined]


def test_every_table_and_every_key_is_on_the_page(folder: Path) -> None:
    documented = set(re.findall(r"`([a-z_]+)[`(]", PAGE))
    db = sqlite3.connect(folder / "rank-0.sqlite")
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    db.close()
    run = re.findall(r'^ "(\w+)":', (folder / "run.json").read_text(), re.MULTILINE)
    assert {*tables, *run, "machine", "process"} <= documented
