"""A recording that somebody else made: nothing that it names is run, and its words stay words."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing, redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.robustness.whole import script
from tests.running import hotloop

from hotloop.cli.main import main

#: Every command that reads a run, as words with RUN in them.
READERS = (
    "report RUN", "report RUN --html page.html --perfetto trace.json", "brief RUN 1", "compare RUN RUN",
    "verify RUN RUN", "memory RUN", "plan RUN", "audit --run RUN", "fix RUN --apply num-workers=2",
)  # fmt: skip
#: Fields that name a program, a module or something of one.
NAMES = ("executable", "python", "module", "inner_module", "class", "inner_class", "dataset", "collate_fn")
NASTY = "\x1b[2J\x1b]0;x\x07\u202e\u2066\r\nFORGED: all is well \x9b1m"

EDGES = (
    10**400, 1 << 63, 1 << 61, -1, 1e308, float("nan"), float("inf"), "a\0b", "\ud800", "\x1b[2J",
)  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(EDGES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)

Change = Callable[[str, dict[str, Any]], dict[str, Any]]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    guarded = "if __name__ == '__main__':\n    for _ in range(3):\n        epoch()\n"
    script(folder, guarded + "        torch.save(model.state_dict(), 'model.pt')\n")
    done = hotloop(
        "run", "--evidence", "--out", "run", "--", sys.executable, "train.py", folder=folder, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return folder / "run"


def spoiled(run: Path, to: Path, change: Change) -> Path:
    """A copy of a run; ``change`` is given the kind of each note, "run" for run.json, and its fields."""
    shutil.copytree(run, to)
    facts = json.loads((to / "run.json").read_text())
    (to / "run.json").write_text(json.dumps(change("run", facts)))
    for file in to.glob("rank-*.sqlite"):
        with sqlite3.connect(file) as db:
            for row, kind, text in db.execute("SELECT rowid, kind, json FROM notes").fetchall():
                changed = json.dumps(change(kind, json.loads(text)))
                db.execute("UPDATE notes SET json=? WHERE rowid=?", (changed, row))
        db.close()
    return to


def test_nothing_is_executed_that_a_recording_names(own: Path, tmp_path: Path) -> None:
    """The interpreter, the command, and whatever else could be: they would leave a file."""
    proof = tmp_path / "executed"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {proof}\n")
    program.chmod(0o755)
    (tmp_path / "evil.py").write_text(f"open({str(proof)!r}, 'w')\n")

    def named(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        if kind == "run":
            return {**fields, "command": [str(program), "train.py"], "cwd": str(tmp_path)}
        names = {
            name: str(program) if name == "executable" else "evil:Data" for name in NAMES if name in fields
        }
        return {**fields, **names, **({"cwd": str(tmp_path)} if "cwd" in fields else {})}

    run = spoiled(own, tmp_path / "run", named)
    said = {}
    for words in READERS:
        done = hotloop(*words.replace("RUN", str(run)).split(), folder=tmp_path, timeout=60)
        said[words] = done.stdout + done.stderr
        assert not proof.exists(), words
        assert done.returncode in (0, 1, 2), said[words]
        assert "Traceback" not in done.stderr, words
    assert re.search(
        r"not checked: \S+ names a command .* --trust runs it", " ".join(said[READERS[-1]].split())
    )
    assert "--python PATH loads it" in " ".join(said["verify RUN RUN"].split())


def test_words_of_a_recording_move_no_cursor_and_forge_no_line(own: Path, tmp_path: Path) -> None:
    def nasty(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: nasty(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [nasty(one, name) for one in value]
        kept = ("note", "role", "text", "sha256", "reason", "schema", "mark")
        return f"{value}{NASTY}" if isinstance(value, str) and name not in kept else value

    run = spoiled(own, tmp_path / f"run{NASTY}", lambda _, fields: nasty(fields))
    (tmp_path / f"source{NASTY}.py").write_text((own.parent / "train.py").read_text())
    (tmp_path / f"log{NASTY}.txt").write_text(
        "".join(f"step {n} loss{NASTY[2:]} {1 / (n + 1)} time {0.1 + n % 2}\n" for n in range(300))
    )
    others = (
        "audit .",
        f"analyze log{NASTY}.txt",
        "report nowhereRUN",
        "fix RUN nowhereRUN",
        "run -- nowhereRUN",
    )
    for words in (*READERS, *others):
        split = [word.replace("RUN", str(run)) for word in words.split(" ", 1 if NASTY in words else -1)]
        done = hotloop(*split, folder=tmp_path, timeout=60)
        shown = done.stdout + done.stderr
        assert not re.search(r"[^\n\t -~\u00a0-\u2029\u202f-\u2065\u206a-\U0010ffff]", shown), (
            f"{words}: {shown!r}"
        )
        assert not re.search(r"(?m)^\W*FORGED", shown), f"{words}: {shown}"
    page = (tmp_path / "page.html").read_text()
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)


@pytest.mark.parametrize(
    "become", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["fifo", "device"]
)
def test_a_source_that_became_something_else_is_not_read(own: Path, become: Callable[[Path], None]) -> None:
    source = own.parent / "train.py"
    source.rename(kept := source.with_name("kept"))
    try:
        become(source)
        for words in ("fix run --apply num-workers=2", "brief run 1", "audit --run run", "audit train.py"):
            done = hotloop(*words.split(), folder=own.parent, timeout=20)
            assert done.returncode in (0, 1, 2), done.stderr
            assert "Traceback" not in done.stderr
            assert not words.startswith("fix") or "train.py cannot be read: not a regular file" in done.stderr
    finally:
        kept.replace(source)


def mutated(draw: Any, value: Any) -> Any:
    """The value with one thing in it replaced."""
    if not isinstance(value, dict | list) or not value or draw(st.booleans()):
        return draw(ANYTHING)
    if isinstance(value, dict):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: mutated(draw, value[key])}
    at = draw(st.integers(0, len(value) - 1))
    return [*value[:at], mutated(draw, value[at]), *value[at + 1 :]]


def mutated_fields(draw: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """One field, with something else in it."""
    key = draw(st.sampled_from(sorted(fields)))
    return {key: mutated(draw, fields[key])}


@pytest.mark.nightly
@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # shrinking has no budget
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_any_field_may_hold_anything(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    monkeypatch.chdir(tmp_path)
    it = tmp_path / "it"
    shutil.rmtree(it, ignore_errors=True)
    shutil.copytree(own, it)
    facts = json.loads((it / "run.json").read_text())
    if data.draw(st.booleans()):
        (it / "run.json").write_text(json.dumps({**facts, **mutated_fields(data.draw, facts)}))
    with closing(sqlite3.connect(it / "rank-0.sqlite")) as db:
        notes = db.execute("SELECT rowid, json FROM notes").fetchall()
        for row, text in data.draw(st.lists(st.sampled_from(notes), max_size=4)):
            note = json.loads(text)
            changed = json.dumps({**note, **mutated_fields(data.draw, note)})
            db.execute("UPDATE notes SET json=? WHERE rowid=?", (changed, row))
        db.commit()
    for words in data.draw(st.lists(st.sampled_from(READERS), min_size=2, max_size=2)):
        with redirect_stdout(TextIOWrapper(BytesIO())), redirect_stderr(StringIO()) as said:
            code = main([*words.replace("RUN", str(it)).split(), *(["--no-check"] if "fix" in words else [])])
        assert code in (0, 1, 2), f"{words}: {said.getvalue()}"
