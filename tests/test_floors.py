"""Imports run downhill; the user's process and the reading of recordings have their walls."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src"
PACKAGE = SRC / "hotloop"

FLOORS = {
    "_fast": -1,  # compiled
    "errors": 0, "stats": 0, "phases": 0, "units": 0, "clock": 0, "fast": 0, "torch_facts": 0, "cgroups": 0,
    "foreign": 0, "language": 0.5,
    "record": 1, "hooks": 1, "launch": 1, "findings": 0, "source": 1, "state": 1,
    "probe": 2, "measure": 2, "logs": 2, "feed": 2,
    "model": 2.5,
    "diagnose": 3, "audit": 3, "compare": 3, "doctor": 3,
    "footprint": 3.5,
    "integrations": 3,
    "remedy": 4,
    "whatif": 5, "fix": 5,
    "tune": 6,
    "report": 7,
    "flow": 8, "monitor": 8, "mcp": 8,
    "cli": 9, "bootstrap": 9, "__main__": 10,
}  # fmt: skip

#: The files that may be loaded into the user's process, by folder. They import no others of hotloop's.
IN_PROCESS = {
    "bootstrap": """
        __init__ start
    """,
    "hooks": """
        __init__ imports registry wrapping
    """,
    "state": """
        __init__ code generators identity modules snapshot stored
    """,
    "probe": """
        __init__ batches counting draws ending install kept marking places probe process sampler window
    """,
    "probe/observers": """
        __init__ anomaly autograd bars calls compiling configs datasets device evidence growth
        loader_construction loader_facts loaders memory modules open_files
        optimizers profile settings sockets transfers unread untrained workers
    """,
    "probe/evidence": """
        __init__ fingerprint handed inputs logged losses perturbed trained_state
    """,
    "remedy/live": """
        __init__ applying arguments autocast checkpoint checkpointing collecting compiled
        flags form loader memoize optimizer packed persistent results ring rows
        throttled transfer trial
    """,
    "whatif/live": """
        __init__ arms blocks feeder schedule session sibling
    """,
    "record": "__init__ rows writer",
    "": "__init__ clock errors fast phases stats torch_facts",
}

#: Lies beside sitecustomize and is found as that is.
BESIDE = {"hotloop_patch"}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "inject" not in path.parts)


def imports(path: Path) -> list[tuple[str, int]]:
    """Every imported module name with its line, `from x import y` as x.y where that is a module."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def room(dotted: str) -> str:
    return dotted.split(".")[1] if "." in dotted else ""


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_downhill(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    own = relative.parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for name, line in imports(path):
        if not name.startswith("hotloop."):
            continue
        other = room(name)
        if other in (own, "__version__"):
            continue
        assert other in FLOORS, f"{path}:{line}: {other} has no floor"
        assert FLOORS[other] < FLOORS[own], (
            f"{path}:{line}: {own} (floor {FLOORS[own]}) imports {other} (floor {FLOORS[other]})"
        )


def in_process_modules() -> list[Path]:
    return [PACKAGE / folder / f"{name}.py" for folder, names in IN_PROCESS.items() for name in names.split()]


def test_every_file_of_a_room_in_the_users_process_is_on_the_list() -> None:
    listed = set(in_process_modules())
    rooms = (PACKAGE / folder for folder in IN_PROCESS if folder not in ("", "record"))
    assert {path for room in rooms for path in room.glob("*.py")} <= listed
    assert all(path.is_file() for path in listed)


@pytest.mark.parametrize("path", in_process_modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_in_process_code_uses_the_standard_library_and_torch_only(path: Path) -> None:
    listed = (str(one.relative_to(PACKAGE).with_suffix("")) for one in in_process_modules())
    allowed = {one.replace("/", ".") for one in listed if not one.endswith("__init__")}
    allowed |= {"_fast", "probe.observers.OBSERVERS"}
    for name, line in imports(path):
        top = name.split(".")[0]
        if top == "hotloop":
            inner = name.removeprefix("hotloop.")
            assert any(inner == ok or inner.startswith(ok + ".") for ok in allowed), f"{path}:{line}: {name}"
        else:
            assert top in {"torch", *BESIDE, *sys.stdlib_module_names}, f"{path}:{line}: {name}"
            assert top not in {"sqlite3", "threading", "asyncio"} or top == "threading", (
                f"{path}:{line}: {name}"
            )


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; sys.path.insert(0, {str(SRC)!r}); {statement}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_reading_measuring_diagnosing_and_reporting_never_import_torch() -> None:
    loaded = loaded_by(
        "import hotloop.flow.examine, hotloop.flow.observe, hotloop.report.terminal, "
        "hotloop.report.perfetto, hotloop.cli.main"
    )
    assert "torch" not in loaded
    assert "libcst" not in loaded


def test_what_the_probe_loads_into_the_users_process_is_light() -> None:
    first = "import torch; " if _has_torch() else ""
    new = loaded_by(
        f"{first}have = {{*sys.modules}}; import hotloop.bootstrap.start, hotloop.probe.install; "
        "[sys.modules.pop(name) for name in have - {'sys'}]"
    )
    forbidden = {"numpy", "rich", "psutil", "sqlite3", "pynvml", "libcst", "asyncio", "multiprocessing"}
    assert "hotloop" in new and not {name.split(".")[0] for name in new} & forbidden


def _has_torch() -> bool:
    import importlib.util

    return importlib.util.find_spec("torch") is not None
