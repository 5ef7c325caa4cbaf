"""The modules of a workload, as its script imports them, and its commands, run to their end."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import psutil
import pytest

ROOT = Path(__file__).parents[2]
Modules = dict[str, ModuleType]
#: Two ranks on this machine.
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
#: Runs the script that follows, which finds no hotloop.
WITHOUT_HOTLOOP = (
    "import runpy, sys; sys.modules['hotloop'] = None; sys.argv[:] = sys.argv[1:]; "
    "sys.path.insert(0, sys.argv[0].rpartition('/')[0]); runpy.run_path(sys.argv[0], run_name='__main__')"
)


@contextmanager
def imported(folder: Path, *names: str) -> Iterator[Modules]:
    """The named modules in ``folder``, forgotten afterwards: every workload calls its own alike."""
    sys.path.insert(0, str(folder))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)


def finished(
    command: Sequence[str | Path], *, cwd: Path | None = None, timeout: float = 180
) -> subprocess.CompletedProcess[str]:
    """Run a command with one thread a process; if it takes too long, end all that it started.

    torchrun puts its ranks into sessions of their own: killing it, or its group, would leave them behind.
    """
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [str(part) for part in command], cwd=cwd, env=env, stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
        except BaseException:
            known = psutil.Process(process.pid)
            for one in [known, *known.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


def on_two_ranks(script: Path, data: Path, out: Path, *flags: str) -> tuple[str, int]:
    """What two ranks that train cured print, and the steps that one of them logs."""
    log = out / "steps.jsonl"
    given = ["--scale", "tiny", "--data", data, "--variant", "cured", "--out", out, "--step_log", log]
    done = finished([*TORCHRUN, script, *given, *flags])
    assert done.returncode == 0, done.stderr[-2000:]
    assert (out / "best.pt").exists()
    return done.stdout, len(log.read_text().splitlines())


def losses(rows: list[dict[str, float]]) -> list[float]:
    """The losses of a step log."""
    return [row["loss"] for row in rows]


def train(
    modules: Modules, folder: Path, out: Path, *flags: str, into: str = "--out"
) -> list[dict[str, float]]:
    """The step log of a small training, if one was written."""
    log = out / "steps.jsonl"
    out.mkdir(exist_ok=True)
    command = ["--scale", "tiny", "--data", str(folder), into, str(out), "--step_log", str(log), *flags]
    modules["train"].main(command)
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


# What several workloads are held to: their tests import these.


def test_made_once_and_alike(modules: Modules, folder: Path, tmp_path: Path) -> None:
    again = modules["data"].make_data("tiny", 3, tmp_path)
    files = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    assert all((again / name).read_bytes() == (folder / name).read_bytes() for name in files)
    stamp = (again / files[0]).stat().st_mtime_ns
    assert modules["data"].make_data("tiny", 3, tmp_path) == again
    assert (again / files[0]).stat().st_mtime_ns == stamp


@pytest.mark.parametrize("content", [b"nothing", None])
def test_another_checkpoint_is_refused(
    modules: Modules, folder: Path, tmp_path: Path, content: bytes | None
) -> None:
    other = tmp_path / "other.pt"
    other.write_bytes(content) if content else pytest.importorskip("torch").save({"model": {}}, other)
    with pytest.raises(SystemExit, match=r"other\.pt is no last\.pt of this variant and scale: "):
        train(modules, folder, tmp_path / "out", "--resume", str(other))


def test_psnr_and_ssim_of_pictures(modules: Modules) -> None:
    measure = modules.get("losses") or modules["steps"]
    picture = pytest.importorskip("torch").rand(2, 3, 24, 24)
    assert float(measure.psnr(picture * 0 + 0.5, picture * 0 + 0.4)) == pytest.approx(20, abs=1e-3)
    assert float(measure.ssim(picture, picture)) == pytest.approx(1)
    assert float(measure.ssim(1 - picture, picture)) < 0.1
