"""What is uploaded: the wheel and the source distribution, as `make dist` writes them."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


def needed(*names: str) -> set[str]:
    """These distributions and what they need, without extras."""
    asked = [Requirement(line) for name in names for line in distribution(name).requires or ()]
    asked = [one.name for one in asked if one.marker is None or one.marker.evaluate({"extra": ""})]
    return {*names, *(needed(*asked) if asked else ())}


def test_wheel_and_source_run_on_the_dependencies_that_they_declare(tmp_path: Path) -> None:
    options = ["READY=", f"BIN={Path(sys.executable).parent}", f"DIST={tmp_path / 'dist'}"]
    done = subprocess.run(["make", "-C", str(ROOT), "dist", *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    source, wheel = sorted((tmp_path / "dist").iterdir(), key=lambda file: file.suffix)
    assert "manylinux" in wheel.name
    declared = needed("hotloop") - {"hotloop"}
    _installs_and_runs(wheel, declared, tmp_path / "wheel")
    build = needed("hatchling", "hatch-fancy-pypi-readme")
    _installs_and_runs(source, declared | build, tmp_path / "source")


def _installs_and_runs(file: Path, present: set[str], folder: Path) -> None:
    """In an environment that has only these distributions; no torch, and no network."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    place, python = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)})), folder / "bin/python"
    for name in present:
        for part in {path.parts[0] for path in distribution(name).files or ()} - {"..", "__pycache__"}:
            (place / part).symlink_to(distribution(name).locate_file(part))
    install = ["--python", str(python), "install", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([sys.executable, "-m", "pip", *install, file], check=True)
    subprocess.run([python, "-c", "from hotloop import fast; assert fast.Hook"], check=True, cwd=folder)
    [metadata] = place.glob("hotloop-*.dist-info/METADATA")
    assert not re.findall(r"\]\((?!https?:|#)[^)]*\)", metadata.read_text())
    assert (folder / "share/man/man1/hotloop.1").is_file()
    for words, expected in {
        "--version": f"0 hotloop {distribution('hotloop').version}\n",
        "docs tune": "0 ",
        "demo": "2 error: the demo trains a system that needs torch",
    }.items():
        command = [folder / "bin" / "hotloop", *words.split()]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert f"{done.returncode} {done.stdout}{done.stderr}".startswith(expected)
