"""Telling one process from another that got its number later, and a live one from a dead one."""

from __future__ import annotations

import os
from pathlib import Path


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 if there is none (a zombie counts as none)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2]
    except OSError:
        return 0
    parts = fields.split()
    return 0 if parts[0] in "ZX" else int(parts[19])


def is_alive(pid: int, start: int) -> bool:
    """Is the process that had this number and this start still running?"""
    return pid > 0 and start_ticks(pid) == start != 0


def own_start() -> int:
    """When this process started, as :func:`start_ticks` says it."""
    return start_ticks(os.getpid())
