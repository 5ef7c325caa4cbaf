"""Installing the probe into a process, right after torch was imported."""

from __future__ import annotations

import atexit
import importlib
import os
from typing import Any

from hotloop.clock import now_ns
from hotloop.hooks.registry import keep_out
from hotloop.probe import process
from hotloop.probe.observers import OBSERVERS
from hotloop.probe.probe import Probe

_installed: Probe | None = None


def install(torch: Any, raw_dir: str, *, start_ns: int, import_start_ns: int) -> Probe:
    """Observe this process from now on. A second call changes nothing."""
    global _installed
    if _installed is not None:
        return _installed
    end_ns = now_ns()
    probe = _installed = Probe(torch, raw_dir, start_ns=start_ns)
    if process.is_helper():
        probe.role = "helper"
    else:
        os.environ[process.MAIN_PID] = str(os.getpid())
    probe.note("import", module="torch", start_ns=import_start_ns, end_ns=end_ns)
    atexit.register(probe.finish)
    os.register_at_fork(after_in_child=probe.after_fork)
    keep_out(probe.hooks)
    for name in OBSERVERS:
        probe.hooks.guard(name, _install_observer)(name, probe)
    probe.note("import", module="hotloop", start_ns=end_ns, end_ns=now_ns())
    return probe


def uninstall() -> None:
    """Observe this process no longer: close the files, take every patch back."""
    global _installed
    if _installed is not None:
        probe, _installed = _installed, None
        probe.finish()
        atexit.unregister(probe.finish)
        probe.hooks.undo()
        os.environ.pop(process.MAIN_PID, None)


def current() -> Probe | None:
    """The probe of this process, if one was installed."""
    return _installed


def _install_observer(name: str, probe: Probe) -> None:
    module = importlib.import_module(f"hotloop.probe.{name}")
    module.install(probe)
