"""Compiles ``src/hotloop/_fast.c`` where there is a C compiler; else hotloop does the same in Python."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Compile(BuildHookInterface[Any]):
    """Puts the compiled functions beside their source, and into a wheel with the tag of this interpreter."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it gathers the files; ``version`` is "standard" or "editable"."""
        if self.target_name != "wheel":
            return
        name = f"_fast{sysconfig.get_config_var('EXT_SUFFIX')}"
        folder = Path(self.root) / "src" / "hotloop"
        problem = compiled(folder / "_fast.c", folder / name)
        if problem:
            self.app.display_warning(f"hotloop: _fast.c is left out, Python does its work: {problem}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append(f"src/hotloop/{name}")


def compiled(source: Path, target: Path) -> str:
    """Compile a module beside its source; why it could not be done, "" where it was."""
    if os.name != "posix" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "not for this platform"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    linking = (
        ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared", "-fno-plt"]
    )
    scratch = target.with_name(f".{os.getpid()}-{target.name}")
    command = [
        compiler[0], "-O2", "-fPIC", *linking, f"-I{sysconfig.get_paths()['include']}",
        str(source), "-o", str(scratch),
    ]  # fmt: skip
    try:
        for without in ([], ["-DNO_FRAMES"]):  # an interpreter's own headers may not compile everywhere
            done = subprocess.run(
                [*command, *without], capture_output=True, text=True, timeout=120, check=False
            )
            if not done.returncode:
                break
        else:
            return (done.stderr.strip().splitlines() or ["the compiler failed"])[0]
        scratch.replace(target)  # whole or not at all: other processes may be loading it
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    finally:
        scratch.unlink(missing_ok=True)
    return ""
