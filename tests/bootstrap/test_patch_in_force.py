"""A patch in force: every process runs as if it had been written, and no file is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.running import environment

from hotloop.fix.in_force import InForce, of
from hotloop.source.text import diff

ENDS = """
import atexit, sys, threading, time
import multiprocessing

def answer():
    return "as it is"

def fail():
    raise ValueError(answer())  # as it is

print(sorted(k for k in globals() if k != "__builtins__"), sys.argv, sys.path[0], __file__, __name__)
print(__spec__ is None, __package__, __cached__, __doc__, type(__loader__).__name__, answer(), flush=True)
if __name__ == "__main__":
    how = sys.argv[1]
    atexit.register(print, "at exit", flush=True)
    if how != "spawn":  # which of the two comes first there depends on the machine
        threading.Thread(target=lambda: (time.sleep(0.2), print("a thread ended", flush=True))).start()
    if how == "exit":
        sys.exit(3)
    if how == "words":
        sys.exit("words")
    if how == "raise":
        fail()
    if how == "chain":
        try:
            fail()
        except ValueError as error:
            raise RuntimeError("no") from error
    if how == "broken":
        exec(compile("1 +", "other.py", "exec"))
    if how == "source":
        import inspect
        print(inspect.getsource(fail))
    if how == "spawn":
        child = multiprocessing.get_context("spawn").Process(target=fail)
        child.start()
        child.join()
        sys.exit(child.exitcode)
"""


def changed(text: str) -> str:
    """With other lines before and within, so that numbers move."""
    return text.replace("\nimport", "\n# one line more\n\nimport", 1).replace("as it is", "as patched")


def patch(folder: Path, files: Mapping[str, str], to: Mapping[str, str]) -> InForce:
    """Write files, and the patch that would make others of them."""
    parts = []
    (folder / "run").mkdir(parents=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        parts.append(diff(name, text.encode(), to.get(name, text).encode()))
    cwd = Path.cwd()
    os.chdir(folder)
    try:
        return of("".join(parts).encode(), [], "fix.patch")
    finally:
        os.chdir(cwd)


def run(
    folder: Path, *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Python under the probe, under what else ``env`` asks for."""
    raw = folder / "run" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd or folder, env=environment(raw, env), capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def both(
    folder: Path, files: Mapping[str, str], to: Mapping[str, str], *words: str
) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    """The command with the patch written, and with it in force; nothing in the folder changes then."""
    one = patch(folder, files, to)
    for name, text in to.items():
        (folder / name).write_text(text)
    written = run(folder, *words)
    for name, text in files.items():
        (folder / name).write_text(text)
    put = one.put(folder / "run")
    before = contents(folder)
    in_force = run(folder, *words, env={**put, "PYTHONDONTWRITEBYTECODE": "1"})
    assert contents(folder) == before
    return written, in_force


def contents(folder: Path) -> dict[Path, bytes]:
    inside = (path for path in folder.rglob("*") if path.is_file() and "run" not in path.parts)
    return {path: path.read_bytes() for path in inside}


def met(folder: Path) -> list[str]:
    marks = folder / "run" / "raw" / "patch-met"
    return sorted({Path(line).name for line in marks.read_text().splitlines()}) if marks.exists() else []


@pytest.mark.parametrize("how", ["", "exit", "words", "raise", "chain", "broken", "source", "spawn"])
def test_the_main_script_ends_as_if_it_were_written(tmp_path: Path, how: str) -> None:
    written, in_force = both(tmp_path, {"train.py": ENDS}, {"train.py": changed(ENDS)}, "train.py", how)
    assert "as patched" in in_force.stdout
    assert in_force.stdout == written.stdout
    assert in_force.stderr == written.stderr
    assert in_force.returncode == written.returncode
    assert met(tmp_path) == ["train.py"]


@pytest.mark.parametrize("words", [("-P", "train.py"), ("link.py",), ("sub/../train.py",), ("-m", "train")])
def test_however_the_script_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.py").symlink_to("train.py")
    if "-P" in words:  # what would be found beside the script is not
        words = (*words[:1], str(tmp_path / "train.py"))
    written, in_force = both(tmp_path, {"train.py": ENDS}, {"train.py": changed(ENDS)}, *words, "raise")
    assert "as patched" in in_force.stdout
    assert (in_force.stdout, in_force.stderr) == (written.stdout, written.stderr)


PACKAGE = {
    "pkg/__init__.py": "",
    "pkg/train.py": "import sys\n"
    "from pkg.data import size\n\ndef main():\n    print(size(), sys.argv[1:])\n\n"
    "if __name__ == '__main__':\n    main()\n",
    "pkg/data.py": "def size():\n    return 1\n",
    "tool": "#!/usr/bin/env python\nfrom pkg.train import main\nmain()\n",
}


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "pkg.train"),
        ("tool",),
        ("-c", "from pkg.train import main; main()"),
        ("-m", "cProfile", "-m", "pkg.train"),
    ],
)
def test_modules_of_a_package(tmp_path: Path, words: tuple[str, ...]) -> None:
    to = {
        "pkg/data.py": "def size():\n    return 2\n",
        "pkg/train.py": PACKAGE["pkg/train.py"].replace("size()", "size() + 10"),
    }
    written, in_force = both(tmp_path, PACKAGE, to, *words)
    assert written.stdout.startswith("12 ")
    assert in_force.stdout.splitlines()[0] == written.stdout.splitlines()[0]
    assert met(tmp_path) == ["data.py", "train.py"]


def test_a_script_that_another_program_reads(tmp_path: Path) -> None:
    _, in_force = both(
        tmp_path, {"train.py": ENDS}, {"train.py": changed(ENDS)}, "-m", "cProfile", "train.py", "exit"
    )
    assert "as patched" in in_force.stdout


def test_compiled_files_are_neither_believed_nor_written(tmp_path: Path) -> None:
    compiling = "import sys, py_compile; sys.argv[1:] and py_compile.compile('data.py')"
    files = {"train.py": f"import data; print(data.X)\n{compiling}\n", "data.py": "X = 1\n"}
    one = patch(tmp_path, files, {"data.py": "X = 2\n"})
    compiles = {"PYTHONDONTWRITEBYTECODE": ""}
    assert run(tmp_path, "train.py", env=compiles).stdout == "1\n"
    before = contents(tmp_path)
    assert any(path.suffix == ".pyc" for path in before)
    put = {**one.put(tmp_path / "run"), **compiles}
    assert run(tmp_path, "train.py", env=put).stdout == "2\n"
    assert contents(tmp_path) == before
    for path in before:
        if path.suffix == ".pyc":
            path.unlink()
    assert run(tmp_path, "train.py", env=put).stdout == "2\n"
    assert not [path for path in contents(tmp_path) if path.suffix == ".pyc"]
    assert run(tmp_path, "train.py", "compile", env=put).stdout == "2\n"
    assert [path for path in contents(tmp_path) if path.suffix == ".pyc"]
    assert run(tmp_path, "train.py").stdout == "1\n"


def test_a_process_that_cannot_read_the_patch_says_so_and_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ran')\n")
    done = run(tmp_path, "train.py", env={"HOTLOOP_PATCH": str(tmp_path / "gone")})
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "the patch is not in force in this process" in done.stderr


TRAINS = """
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.full((4,), 1.0)

if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in DataLoader(Numbers(), batch_size=4, num_workers=1, multiprocessing_context="spawn"):
        print(x.sum().item())
        model(x).sum().backward()
        optimizer.step()
"""


@pytest.mark.nightly
def test_workers_that_are_spawned_have_it_too(tmp_path: Path) -> None:
    one = patch(tmp_path, {"train.py": TRAINS}, {"train.py": TRAINS.replace("1.0)", "2.0)")})
    done = run(tmp_path, "train.py", env=one.put(tmp_path / "run"))
    assert (done.returncode, done.stdout) == (0, "32.0\n32.0\n"), done.stderr
    notes = "".join(path.read_text() for path in (tmp_path / "run" / "raw").glob("*.notes"))
    assert "(4,), 2.0)" in notes  # the source that ran
