"""``--patch``: what applies is in force, what does not is refused before anything starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import running

from hotloop.errors import UsageError
from hotloop.fix.in_force import of
from hotloop.source.text import diff

TEXT = st.lists(
    st.sampled_from(["a", "b", "", " ", "\ta", "--- a", "+++ b", "@@ -1 +1 @@", "\x0c", "x\r"]), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(before=TEXT, after=TEXT, end=st.sampled_from(["", "\n"]), other=st.sampled_from(["", "\n"]))
def test_a_diff_is_read_back_as_what_it_was_made_from(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], after: list[str], end: str, other: str
) -> None:
    folder = tmp_path_factory.mktemp("diff")
    old, new = (("\n".join(lines) + last).encode() for lines, last in ((before, end), (after, other)))
    if not diff("a b.py", old, new):
        return
    (folder / "a b.py").write_bytes(old)
    here = Path.cwd()
    os.chdir(folder)
    try:
        one = of(diff("a b.py", old, new).encode(), [], "fix.patch")
    finally:
        os.chdir(here)
    assert one.files == {folder.resolve() / "a b.py": new}


GOOD = diff("train.py", b"a = 1\nb = 2\n", b"a = 1\nb = 3\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no change"),
        ("diff --git a/x b/x\n", "holds no change"),
        (GOOD.replace("b = 2", "b = 4"), "train.py differs from line 1 on"),
        (GOOD.replace("train", "other"), "other.py is not there"),
        (GOOD.replace("train.py", "../train.py"), "lies outside"),
        (GOOD.replace("a/train.py", "/x/train.py").replace("b/train.py", "/x/train.py"), "lies outside"),
        (GOOD.replace("train.py", "conf.yaml"), "conf.yaml, which is not Python"),
        (GOOD.rpartition("-b")[0], "cut short"),
        (GOOD + GOOD, "changes a file twice"),
        (f"diff --git a/train.py b/train.py\nnew file mode 100644\n{GOOD}", "does more than change text"),
        (GOOD.replace("--- a/train.py", "--- /dev/null"), "makes or deletes a file"),
    ],
)
def test_a_patch_that_cannot_be_in_force_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("a = 1\nb = 2\n")
    (tmp_path / "conf.yaml").write_text("a = 1\nb = 2\n")
    with pytest.raises(UsageError, match=words):
        of(text.encode(), [], "fix.patch")


def test_paths_are_those_of_the_work_tree_or_of_the_folder_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "tree" / "sub"
    inside.mkdir(parents=True)
    (tmp_path / "tree" / ".git").mkdir()
    script = tmp_path / "tree" / "train.py"
    script.write_text("a = 1\nb = 2\n")
    monkeypatch.chdir(inside)
    assert of(GOOD.encode(), ["python", "../train.py"], "").files.keys() == {script.resolve()}
    assert of(GOOD.encode(), ["python", "-m", "train"], "").files.keys() == {script.resolve()}
    monkeypatch.chdir(tmp_path)
    assert of(GOOD.encode(), ["python", "tree/train.py"], "").files.keys() == {script.resolve()}
    with pytest.raises(UsageError):
        of(GOOD.encode(), ["python", "-m", "train"], "")


@pytest.mark.parametrize(
    "text",
    [
        f"From 1234\nSubject: mend\n\nrename nothing\ncopy that\n---\n{GOOD}",
        GOOD.replace("a/train.py", "i/train.py").replace("b/train.py", "w/train.py"),
    ],
)
def test_patches_of_gits_other_shapes_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("a = 1\nb = 2\n")
    command = ["bash", "-c", "python train.py " + "--much " * 100]
    assert list(of(text.encode(), command, "").files.values()) == [b"a = 1\nb = 3\n"]


TRAINS = """
import torch
from data import SIZE

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    optimizer.zero_grad()
    model(torch.ones(SIZE, 4)).sum().backward()
    optimizer.step()
print(SIZE)
"""


def hotloop(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return running.hotloop(*words, folder=folder)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {"train.py": TRAINS, "data.py": "SIZE = 2\n", "never.py": "X = 1\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    to = {"data.py": "SIZE = 3\n", "never.py": "X = 2\n"}
    for name in to:
        (tmp_path / f"{name}.diff").write_text(diff(name, files[name].encode(), to[name].encode()))
    return tmp_path


def test_a_run_tells_of_its_patch_and_fix_refuses_the_run(project: Path) -> None:
    both = "".join((project / f"{name}.diff").read_text() for name in ("data.py", "never.py"))
    (project / "both.diff").write_text(both)
    done = hotloop(project, "run", "--out", "r", "--patch", "both.diff", "--", sys.executable, "train.py")
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    assert "patch in force: data.py" in done.stderr
    assert "The patch was not met: never.py was not imported" in " ".join(done.stderr.split())
    report = json.loads((project / "r" / "report.json").read_text())
    assert report["patch"] == {"met": ["data.py"], "missed": ["never.py"]}
    assert (project / "r" / "patched" / "patch.diff").read_text() == both
    assert "With a patch in force" in (project / "r" / "report.html").read_text()
    assert (project / "data.py").read_text() == "SIZE = 2\n"
    fix = hotloop(project, "fix", "r")
    assert fix.returncode == 2
    assert "a patch was in force" in fix.stderr


@pytest.mark.nightly
def test_verify_with_a_patch_in_force_in_the_candidate(project: Path) -> None:
    command = (sys.executable, "train.py")
    done = hotloop(project, "verify", "--patch", "data.py.diff", "--out", "v", "--json", "--", *command)
    found = json.loads(done.stdout)
    items = {item["name"]: item for item in found["items"]}
    assert done.returncode == 1, done.stderr  # other samples
    assert items["patch"]["status"] == "passed"
    done = hotloop(project, "verify", "--patch", "never.py.diff", "--json", "--", *command)
    items = {item["name"]: item for item in json.loads(done.stdout)["items"]}
    assert items["patch"]["status"] == "failed"


def test_a_patch_that_does_not_apply_starts_nothing(project: Path) -> None:
    (project / "data.py").write_text("SIZE = 4\n")
    done = hotloop(project, "run", "--out", "r", "--patch", "data.py.diff", "--", sys.executable, "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "data.py.diff does not apply: data.py differs from line 1 on" in done.stderr
    assert not (project / "r").exists()
    gone = hotloop(project, "run", "--out", "r", "--patch", "gone.diff", "--", "true")
    assert gone.returncode == 2
    assert "gone.diff cannot be read" in gone.stderr
    nothing = hotloop(project, "run", "--out", "r", "--patch", "never.py.diff", "--", "no-such-command")
    assert nothing.returncode == 2
    assert not (project / "r").exists()
