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


def _numbers(*names: str) -> Any:
    """A class of numbers that compiled hooks share with Python where there are hooks."""
    return type("Numbers", (), {"__slots__": names})


Counts: Any = _numbers(
    "backwards", "batches", "rounds", "fed_at", "fetched", "updates", "callbacks", "next_tick", "opened",
    "opened_at", "opened_site",
)  # fmt: skip
Entry: Any = _numbers("id", "flags", "noted")
Feed: Any = _numbers("id", "flags", "full", "num_batches", "before", "yielded")

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
            Counts, Entry, Feed = _fast.Counts, _fast.Entry, _fast.Feed
