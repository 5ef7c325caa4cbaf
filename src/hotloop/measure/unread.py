"""Fields of a batch that are loaded and never read."""

from __future__ import annotations

import ast

import numpy as np

from hotloop.measure.loop import Loop
from hotloop.measure.places import Places
from hotloop.measure.spans import Ints, Spans
from hotloop.record.recording import Process


def unread_fields(
    process: Process, number: int, spans: Spans, fetch: Ints, loop: Loop, places: Places
) -> tuple[str, ...]:
    """Keys that the probe saw nobody read, and positions whose variable the source never reads."""
    noted = [n for n in process.notes.get("unread", ()) if n.get("loader") == number]
    read = {str(key) for n in noted for key in n.get("read") or ()}
    unread = {str(key) for n in noted for key in n.get("unread") or ()} - read
    sites = np.bincount(spans.site[fetch], minlength=1) if len(fetch) else np.zeros(1, np.int64)
    used = [int(site) for site in np.flatnonzero(sites) if site]
    by_source = [_unread_targets(site, loop, places) for site in used]
    if by_source:
        unread |= set.intersection(*by_source)
    return tuple(sorted(unread))


def _unread_targets(site: int, loop: Loop, places: Places) -> set[str]:
    """Positions in the batch whose variable is never read in its function: ``for x, y, extra in loader``."""
    stack = places.sites.get(site)
    if stack is None or not stack.frames:
        return set()
    frame = stack.frames[-1]
    source = loop.source(frame.file)
    node = source.function(frame.func, frame.func_line) if source else None
    if node is None or (frame.func == "<module>" and source is None):
        return set()
    heads = [
        n
        for n in ast.walk(node)
        if isinstance(n, ast.For) and n.lineno <= frame.line <= (n.iter.end_lineno or 0)
    ]
    if not heads:
        return set()
    loaded = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    if loaded & {"locals", "vars", "globals", "eval", "exec"}:
        return set()
    target = _unpacked(heads[-1], _batch_target(heads[-1]))
    if not isinstance(target, ast.Tuple | ast.List) or any(isinstance(e, ast.Starred) for e in target.elts):
        return set()
    return {str(i) for i, e in enumerate(target.elts) if isinstance(e, ast.Name) and e.id not in loaded}


def _batch_target(head: ast.For) -> ast.expr | None:
    """The variable that takes the batch: inside ``enumerate`` the second; None where unclear."""
    iterated = head.iter
    if isinstance(iterated, ast.Call):
        name = iterated.func.id if isinstance(iterated.func, ast.Name) else ""
        if name == "enumerate":
            target = head.target
            return target.elts[1] if isinstance(target, ast.Tuple) and len(target.elts) == 2 else None
        if name == "zip":
            return None
    return head.target


def _unpacked(head: ast.For, target: ast.expr | None) -> ast.expr | None:
    """``a, b, c`` of ``a, b, c = batch`` where that is all that is done with the loop variable."""
    if not isinstance(target, ast.Name):
        return target
    name = target.id
    uses = [n for part in head.body for n in ast.walk(part) if isinstance(n, ast.Name) and n.id == name]
    unpackings = [
        n
        for part in head.body
        for n in ast.walk(part)
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Name) and n.value.id == name
    ]
    if len(uses) != 1 or len(unpackings) != 1 or len(unpackings[0].targets) != 1:
        return None
    return unpackings[0].targets[0]
