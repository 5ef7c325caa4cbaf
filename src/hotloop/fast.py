"""The compiled functions of ``_fast.c`` where they were built for this interpreter; None: Python does it.

``HOTLOOP_PURE=1`` leaves them out.
"""

from __future__ import annotations

import os
from typing import Any

Rows: Any = None
Sites: Any = None
gather: Any = None
#: What wrappers do behind each call (``_hooks.c``), and how they begin.
Hook: Any = None
begin: Any = None


class Counts:
    """What ``StepCount`` counts. Where there are hooks, this and what is below is compiled: they share it."""

    __slots__ = (
        "backwards", "batches", "callbacks", "fed_at", "fetched", "next_tick", "opened", "opened_at",
        "opened_site", "rounds", "updates",
    )  # fmt: skip
    backwards: int
    batches: int
    rounds: int
    fed_at: int  # rounds when training followed a batch last
    fetched: int  # 1: a batch was handed out since the last backward
    updates: int  # outermost steps of optimizers
    callbacks: int  # how many wait for the end of an update
    next_tick: int  # when slow housekeeping is due
    opened: int  # id of the optimizer that steps, 0 none
    opened_at: int
    opened_site: int


class Entry:
    """The numbers of a module."""

    __slots__ = ("flags", "id", "noted")
    id: int
    flags: int
    noted: int  # 1: its note is written


class Feed:
    """The numbers of a running iterator of a DataLoader."""

    __slots__ = ("before", "flags", "full", "id", "num_batches", "yielded")
    id: int
    flags: int  # FETCH_WORKERS where worker processes feed it
    full: int  # samples in a full batch, 0 unknown
    num_batches: int  # 0 unknown
    before: int  # batches of the loader before this iteration
    yielded: int  # since iter()


if os.environ.get("HOTLOOP_PURE", "") in ("", "0"):
    try:
        from hotloop import _fast
    except ImportError:  # another interpreter than hotloop was installed for, or no compiler then
        pass
    else:
        Rows, Sites = _fast.Rows, _fast.Sites
        gather = getattr(_fast, "gather", None)  # compiled before there was one
        if hasattr(_fast, "Hook"):  # Linux
            Hook, begin = _fast.Hook, _fast.begin
            Counts, Entry, Feed = _fast.Counts, _fast.Entry, _fast.Feed  # type: ignore[misc]
