"""What every test module begins with: one thread a process, a temporary folder of its own, no garbage."""

from __future__ import annotations

import gc
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

# Before anything imports torch, and for every process that a test starts: several modules run at once.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Until all is collected: each process of pytest would rewrite the asserts of every file anew.
sys.dont_write_bytecode = False

with suppress(ImportError):
    from hypothesis import HealthCheck, settings

    # The same examples every time, however slow the machine; --hypothesis-profile default looks for others.
    settings.register_profile(
        "suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.register_profile("quick", settings.get_profile("suite"), max_examples=10)
    settings.load_profile("suite")


#: What the interpreter announces before it starts a process.
_STARTS = frozenset(["subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"])


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--quick``: what `make quick` runs."""
    parser.addoption("--quick", action="store_true", help="skip what starts a process")


def pytest_configure(config: pytest.Config) -> None:
    """Under ``--quick`` a test is skipped at the first process that it starts."""
    if not config.getoption("--quick"):
        return
    with suppress(NameError):
        settings.load_profile("quick")
    # What a skipped test had begun is dropped as it is.
    for what in ("PytestUnraisableExceptionWarning", "PytestUnhandledThreadExceptionWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::pytest.{what}")

    def refuse(event: str, _: tuple[Any, ...]) -> None:
        if event in _STARTS and "PYTEST_CURRENT_TEST" in os.environ:
            pytest.skip("starts a process")

    sys.addaudithook(refuse)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only tests that run alone are asked for, files that have none are not imported."""
    if collection_path.suffix != ".py" or not config.getoption("markexpr").startswith("alone and"):
        return None
    return "mark.alone" not in collection_path.read_text() or None


_WORDS = re.compile(r"[a-z]+")
#: Folders of files that take longest: begun first, none of them is what the others wait for at the end.
_LONG = ("remedy", "fix", "whatif", "robustness", "compare")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long files first, else as they come; ``--quick`` without processes that nobody announces."""
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    items.sort(key=lambda item: item.path.parent.name not in _LONG)
    if config.getoption("--quick"):
        items[:] = [one for one in items if not {"spawn", "forkserver"} & set(_WORDS.findall(one.name))]


@pytest.fixture(scope="module", autouse=True)
def no_garbage() -> None:
    """What the module before left holds no file, process or shared memory when this one counts them. What is
    still there stays: the next collection need not walk through a million objects of torch's again.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Meeting places and scratch folders are found by the temporary folder: no module meets another there."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("tmp"))
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield
