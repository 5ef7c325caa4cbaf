"""Files that are damaged, or made to harm: words that name the file, exit code 0, 1 or 2, within seconds."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.record import crafted
from tests.running import hotloop

SECONDS = 20
READERS = ("report it", "memory it", "plan it", "audit --run it")


def edited(**fields: Any) -> Callable[[Path], None]:
    """Other fields in run.json."""

    def spoil(it: Path) -> None:
        file = it / "run.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))

    return spoil


def instead(name: str, put: Callable[[Path], object]) -> Callable[[Path], None]:
    """Something else in the place of a file of the run."""

    def spoil(it: Path) -> None:
        path = it / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        put(path)

    return spoil


def text(content: str | bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


def to(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


def deep(it: Path) -> None:
    """A file 2,000 folders down; its path is longer than a path may be for some of the way."""
    shutil.rmtree(it)
    it.mkdir()
    before = Path.cwd()
    try:
        os.chdir(it)
        for _ in range(2000):
            os.mkdir("ff")  # noqa: PTH102
            os.chdir("ff")
        Path("train.py").write_text("import torch\n")
    finally:
        os.chdir(before)


def loops(it: Path) -> None:
    shutil.rmtree(it)
    it.mkdir()
    (it / "train.py").write_text("import torch\n")
    (it / "again").symlink_to(it)
    (it / "one.py").symlink_to("two.py")
    (it / "two.py").symlink_to("one.py")


def trace(device: object = 0, **odd: object) -> Callable[[Path], None]:
    """A profiler's trace, and an event and a device that are odd."""
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 0, "dur": 5}
    events = [{**event, "ts": n * 10} for n in range(300)] + [{**event, **odd}] * 3
    properties = [{"id": 0, "computeMajor": device, "totalGlobalMem": device}, device]
    listed = {"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events}
    return instead("t.json", text(json.dumps(listed)))


MERGES = "a0: &a0 {data_wait: '< 1 ms'}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)
)
LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
#: What stands in a checklist, by its ending.
LISTS = {
    "deep.yaml": "[" * 20_000, "merges.yaml": MERGES, "laughs.yaml": LAUGHS, "itself.yaml": "a: &a [*a]\n",
    "date.yaml": "speedup: 2024-13-45\n", "deep.toml": f"a = {'[' * 20_000}",
    "date.toml": "speedup = 2024-13-45\n", "huge.toml": f"speedup = {'9' * 5000}\n",
    "inf.toml": "speedup = inf\n",
}  # fmt: skip

#: What, how, and which commands are to say something about it.
DAMAGE: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "row counts": (
        edited(machine={"ram_bytes": 10**12, "cpu_count": 10**12, "storage": {"x": 10**30}}),
        READERS,
    ),
    "huge numbers": (
        edited(start_ns=10**25, wall_s=1e308, exit_code=10**12, start_unix_s=1e300),
        READERS[:3],
    ),
    "huge pids": (
        instead("raw/999999999999999999-5.notes", text('{"note":"process","pid":1}\n')),
        READERS[:1],
    ),
    "no device": (instead("run.json", to("/dev/zero")), READERS[:1]),
    "a database that is a device": (instead("rank-0.sqlite", to("/dev/zero")), READERS[:1]),
    "deep json": (instead("run.json", text("[" * 100_000)), READERS[:1]),
    "links to each other": (loops, ("audit it",)),
    "deep folders": (deep, ("audit it", "analyze it", "report it")),
    "a log that is a fifo": (
        instead("log.txt", os.mkfifo),
        ("analyze it/log.txt", "verify it it --log it/log.txt"),
    ),
    "a configuration that is a device": (
        instead("c.yaml", to("/dev/zero")),
        ("audit it --config it/c.yaml",),
    ),
    "a bomb": (
        lambda it: (it / "log.gz").write_bytes(gzip.compress(bytes(1 << 24)) * 20),
        ("analyze it/log.gz",),
    ),
    "infinite times": (trace(ts=1e308, dur=float("inf")), ("analyze it/t.json",)),
    "10^25": (trace("x", ts=10**25, dur=10**25, pid=10**25, tid=10**25), ("analyze it/t.json",)),
    "numbers of 5,000 digits": (
        instead("n.log", text(f"step {'9' * 5000} loss {'9' * 5000} eta {'9' * 5000}:00\n" * 300)),
        ("analyze it/n.log",),
    ),
    "impossible dates": (
        instead("d.log", text("".join(f"2024-13-45 25:61:{n} step {n} loss 1.0\n" for n in range(300)))),
        ("analyze it/d.log",),
    ),
    **{
        name: (
            lambda it, name=name: (it / name).write_text(LISTS[name]),
            (f"verify it it --effect semantic --expect it/{name}", f"audit it --config it/{name}"),
        )
        for name in LISTS
    },
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return crafted.finished(tmp_path_factory.mktemp("whole") / "it", steps=300)


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_ends_in_words(name: str, whole: Path, tmp_path: Path) -> None:
    spoil, commands = DAMAGE[name]
    shutil.copytree(whole, tmp_path / "it")
    spoil(tmp_path / "it")
    try:
        for words in commands:
            done = hotloop(*words.split(), folder=tmp_path, timeout=SECONDS)
            assert done.returncode in (0, 1, 2), f"{words}: {done.returncode} {done.stderr[-2000:]}"
            assert "Traceback" not in done.stderr + done.stdout, words
            assert done.returncode == 0 or "it" in done.stderr + done.stdout, (
                f"{words} names no file: {done.stderr}"
            )
    finally:
        if name == "deep folders":
            subprocess.run(["rm", "-rf", str(tmp_path / "it")], check=True)
