"""The expression that reads a configured value where code stands: from what is in sight there."""

from __future__ import annotations

import libcst as cst

from hotloop.record.recording import Note
from hotloop.remedy.source.code import Code
from hotloop.remedy.source.follow import Follower, Loaded
from hotloop.remedy.source.values import chains


def expression(code: Code, at: cst.CSTNode, follower: Follower, note: Note) -> str | None:
    """How ``note``'s value is written at a node, None where nothing in sight holds the configuration.

    A chain in the same function that reads a neighbour of the value shows how: ``cfg["data"]["batch_size"]``
    gives ``cfg["data"]["num_workers"]``.
    """
    source = "argparse" if note.get("source") == "argparse" and note.get("option") else "file"
    path = tuple(str(note.get("key")).split("."))
    function = code.function_of(at)
    limit = code.span(at)[0]
    best: tuple[int, str] | None = None
    for chain, keys in chains(code, function):
        root = _root_name(chain)
        if not root or not keys:
            continue
        if function is not None and not _in_sight(code, at, root):
            continue
        found = follower.loaded(code, chain, None)
        if found is None or found.source != source or found.keys == path:
            continue
        shared = _shared(found, path)
        if shared is None:
            continue
        written = _neighbour(code, chain, keys, found.keys, path, shared)
        distance = abs(code.span(chain)[0] - limit)
        if written is not None and (best is None or distance < best[0]):
            best = distance, written
    return best[1] if best else None


def _shared(found: Loaded, path: tuple[str, ...]) -> int | None:
    """How many keys the neighbour's path and the wanted one begin with together; None for no neighbour."""
    shared = 0
    while shared < min(len(found.keys), len(path)) - 1 and found.keys[shared] == path[shared]:
        shared += 1
    return shared


def _neighbour(
    code: Code,
    chain: cst.BaseExpression,
    keys: tuple[str, ...],
    found: tuple[str, ...],
    path: tuple[str, ...],
    shared: int,
) -> str | None:
    """The chain cut back to what is shared, with the rest of the wanted path behind it."""
    drop = len(found) - shared
    if drop > len(keys):
        return None
    node = chain
    for _ in range(drop):
        if isinstance(node, cst.Attribute | cst.Subscript):
            node = node.value
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            node = node.func.value
        else:
            return None
    subscript = not isinstance(chain, cst.Attribute)
    quote = '"' if "'" not in code.source(chain) else "'"
    tail = "".join(f"[{quote}{key}{quote}]" if subscript else f".{key}" for key in path[shared:])
    return code.source(node) + tail


def _root_name(node: cst.BaseExpression) -> str:
    while not isinstance(node, cst.Name):
        if isinstance(node, cst.Attribute | cst.Subscript):
            node = node.value
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            node = node.func.value
        else:
            return ""
    return node.value


def _in_sight(code: Code, at: cst.CSTNode, name: str) -> bool:
    return name == "self" or bool(code.assignments(at, name))
