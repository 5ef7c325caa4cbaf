"""The compiled functions of ``_fast.c`` where they were built for this interpreter; None: Python does it.

``HOTLOOP_PURE=1`` leaves them out.
"""

from __future__ import annotations

import os
from typing import Any, Final

Rows: Any = None
Sites: Any = None
gather: Any = None
#: Values as their numbers in a table of 256, and back.
encode: Any = None
decode: Any = None
#: What wrappers do around each call (``_hooks.c``), and whole wrappers.
Hook: Any = None
#: Makes the samples of a batch with a clock between them.
making: Any = None
#: Lets a hook answer the calls of a function of Python that come from C.
attach: Any = None
#: No samples are taken from the one to the other: a fork lies in between.
hold: Any = None
go_on: Any = None
#: ``_fast.FORM`` of the source beside this file: what was compiled from another is left out.
_FORM: Final = 7


class Counts:
    """What ``StepCount`` counts. Where there are hooks, this and what is below is compiled: they share it."""

    __slots__ = (
        "backwards", "batches", "callbacks", "fed_at", "fetched", "next_tick", "opened", "opened_at",
        "opened_site", "rounds", "skip", "updates",
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
    skip: int  # batches that this process makes unobserved from now on


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


class Ticks:
    """The numbers of the sampler."""

    __slots__ = ("_worker", "paused")
    _worker: int  # 1: the main thread is sampled, whichever is recorded
    paused: int  # 1: nothing is written


if os.environ.get("HOTLOOP_PURE", "") in ("", "0"):
    try:
        from hotloop import _fast
    except ImportError:  # another interpreter than hotloop was installed for, or no compiler then
        pass
    else:
        if getattr(_fast, "FORM", 0) == _FORM:
            Rows, Sites, gather = _fast.Rows, _fast.Sites, _fast.gather
            encode, decode = _fast.encode, _fast.decode
            if hasattr(_fast, "Hook"):  # Linux
                Hook, making, Ticks = _fast.Hook, _fast.making, _fast.Ticks  # type: ignore[misc]
                attach, hold, go_on = _fast.attach, _fast.hold, _fast.go_on
                Counts, Entry, Feed = _fast.Counts, _fast.Entry, _fast.Feed  # type: ignore[misc]
