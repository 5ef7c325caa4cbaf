"""The expression that reads a configured value where code stands: from what is in sight there."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from hotloop.fix import config_files
from hotloop.fix.scene import Cannot, Scene
from hotloop.record.recording import Note
from hotloop.source.code import Code
from hotloop.source.nodes import is_of_self
from hotloop.source.values import keys_of, looked_up

Keys = tuple[str, ...]


def expression(scene: Scene, code: Code, at: ast.AST, note: Note) -> str | None:
    """How ``note``'s value is written at a node, None where nothing in sight holds the configuration.

    A chain in the same function that reads a neighbour of the value shows how: ``cfg["data"]["batch_size"]``
    gives ``cfg["data"]["num_workers"]``.
    """
    path, function = tuple(str(note.get("key")).split(".")), code.function_of(at)
    known = {one for one in _known(scene, note) if one != path}
    found: list[tuple[int, str]] = []
    for chain, keys in _chains(code):
        root = keys_of(chain)[0]
        if code.function_of(chain) not in (function, None) or not isinstance(root, ast.Name):
            continue
        bound = code.bindings(at, root.id)
        if any(one.imported for one in bound) or is_of_self(chain) or not (bound or root.id == "self"):
            continue
        neighbour = _path_of(keys, known)
        written = _written(code, chain, keys, neighbour, path) if neighbour else None
        if written is not None:
            found.append((abs(code.span(chain)[0] - code.span(at)[0]), written))
    return min(found)[1] if found else None


def _known(scene: Scene, note: Note) -> Iterator[Keys]:
    """The other keys of the file, or of the parsed arguments, that a value was read from."""
    for other in scene.config:
        if _home(other) == _home(note):
            yield tuple(str(other.get("key")).split("."))
    if _home(note):
        try:
            yield from config_files.paths(scene.text(_home(note)))
        except Cannot:
            return


def _home(note: Note) -> str:
    return "" if note.get("source") == "argparse" and note.get("option") else str(note.get("file") or "")


def _path_of(keys: Keys, known: Collection[Keys]) -> Keys:
    """The one path that ends as a chain of keys does, by as many keys as any."""
    for many in range(len(keys), 0, -1):
        found = [one for one in known if one[-many:] == keys[-many:]]
        if found:
            return found[0] if len(found) == 1 else ()
    return ()


def _written(code: Code, chain: ast.expr, keys: Keys, found: Keys, path: Keys) -> str | None:
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


def _chains(code: Code) -> Iterator[tuple[ast.expr, Keys]]:
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
