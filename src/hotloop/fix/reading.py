"""The expression that reads a configured value where code stands: from what is in sight there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.fix.follow import Follower
from hotloop.record.recording import Note
from hotloop.source.code import Code
from hotloop.source.values import keys_of, looked_up


def expression(code: Code, at: ast.AST, follower: Follower, note: Note) -> str | None:
    """How ``note``'s value is written at a node, None where nothing in sight holds the configuration.

    A chain in the same function that reads a neighbour of the value shows how: ``cfg["data"]["batch_size"]``
    gives ``cfg["data"]["num_workers"]``.
    """
    source = "argparse" if note.get("source") == "argparse" and note.get("option") else "file"
    path = tuple(str(note.get("key")).split("."))
    function = code.function_of(at)
    best: tuple[int, str] | None = None
    for chain, keys in _chains(code):
        root = keys_of(chain)[0]
        if code.function_of(chain) not in (function, None) or not isinstance(root, ast.Name):
            continue
        if function is not None and root.id != "self" and not code.bindings(at, root.id):
            continue
        found = follower.loaded(code, chain, None)
        if found is None or found.source != source or found.keys == path:
            continue
        written = _neighbour(code, chain, keys, found.keys, path)
        distance = abs(code.span(chain)[0] - code.span(at)[0])
        if written is not None and (best is None or distance < best[0]):
            best = distance, written
    return best[1] if best else None


def _neighbour(
    code: Code, chain: ast.expr, keys: tuple[str, ...], found: tuple[str, ...], path: tuple[str, ...]
) -> str | None:
    """The chain cut back to the keys that it shares with a path, and the rest of the path behind it."""
    shared = 0
    while shared < min(len(found), len(path)) - 1 and found[shared] == path[shared]:
        shared += 1
    drop = len(found) - shared
    if drop > len(keys):
        return None
    node = chain
    for _ in range(drop):
        if isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            return None
    subscript = not isinstance(chain, ast.Attribute)
    quote = '"' if "'" not in code.source(chain) else "'"
    tail = "".join(f"[{quote}{key}{quote}]" if subscript else f".{key}" for key in path[shared:])
    return code.source(node) + tail


def _chains(code: Code) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
    """Every longest chain of keys, with these: ``cfg["data"]["root"]``."""
    for node in code.nodes((ast.Attribute, ast.Subscript, ast.Call)):
        if isinstance(node, ast.Call) and looked_up(node) is None:
            continue
        above = code.parents.get(node)
        longer = isinstance(above, ast.Attribute | ast.Subscript) and above.value is node
        called = isinstance(above, ast.Call) and above.func is node
        keys = keys_of(node)[1]
        if keys and not longer and not called:
            yield node, keys
