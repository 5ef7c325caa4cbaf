"""What loaders started is gone some time after their end, on a crowded machine later than on a quiet one."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from multiprocessing import active_children

import psutil
import pytest


def running() -> set[int]:
    """Pids of child processes that run, multiprocessing's own helper left out."""
    active_children()  # reaps
    return {child.pid for child in psutil.Process().children() if _runs(child)}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    own = running()
    yield
    gc.collect()
    wait_until(lambda: running() <= own)


def _runs(child: psutil.Process) -> bool:
    try:
        return child.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in " ".join(child.cmdline())
    except psutil.NoSuchProcess:  # it ended between the two looks; a zombie is one too
        return False


def wait_until(true: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Fails where it is not true in time."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
