"""Fields of a batch that are loaded and never read."""

from __future__ import annotations

import numpy as np

from hotloop.measure.places import Places
from hotloop.measure.spans import Ints, Spans
from hotloop.record.recording import Process
from hotloop.source.loops import unread_parts


def unread_fields(
    process: Process, number: int, spans: Spans, fetch: Ints, places: Places
) -> tuple[str, ...]:
    """Keys that the probe saw nobody read, and positions whose variable the source never reads."""
    noted = [n for n in process.notes.get("unread", ()) if n.get("loader") == number]
    read = {str(key) for n in noted for key in n.get("read") or ()}
    unread = {str(key) for n in noted for key in n.get("unread") or ()} - read
    sites = np.bincount(spans.site[fetch], minlength=1) if len(fetch) else np.zeros(1, np.int64)
    used = [int(site) for site in np.flatnonzero(sites) if site]
    by_source = [_unread_targets(site, places) for site in used]
    if by_source:
        unread |= set.intersection(*by_source)
    return tuple(sorted(unread))


def _unread_targets(site: int, places: Places) -> set[str]:
    """Positions in the batch whose variable is never read in its function: ``for x, y, extra in loader``."""
    stack = places.sites.get(site)
    if stack is None or not stack.frames:
        return set()
    frame = stack.frames[-1]
    code = places.code(frame.file)
    if code is None:
        return set()
    module = frame.func == "<module>"
    function = code.module if module else code.function_at(frame.func, frame.func_line)
    return unread_parts(code, function, frame.line) if function is not None else set()
