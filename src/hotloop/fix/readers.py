"""Who else reads a value that was followed to where it is written."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from hotloop.fix.scene import Scene
from hotloop.source.code import Code
from hotloop.source.values import keys_of, looked_up

Keys = tuple[str, ...]
#: An expression on the way of a value, and the keys that were still to be read of it.
Step = tuple[Code, ast.expr, Keys]


def readers(
    scene: Scene, way: Sequence[Step], keys: Keys, code: Code, inside: ast.AST
) -> list[tuple[str, int]]:
    """File and line of what reads or sets the value besides the way itself and the expression ``inside``.

    ``keys`` are those of the configured value, where the way ends at one.
    """
    steps = {node for _, node, _ in way}
    # What the way ends in may be an expression that reads the value and is followed no further.
    for where, under in ((code, inside), *((where, node) for where, node, _ in way[-1:])):
        steps |= set(where.under(under))  # type: ignore[arg-type]
    found: set[tuple[str, int]] = set()
    for where, node in _reads(scene, way, keys):
        above = where.parents.get(node)
        if isinstance(above, ast.Assign) and node in above.targets:  # set anew, unless to what was followed
            node = above.value
        if node not in steps:
            found.add((str(where.path), where.line(node)))
    return sorted(found)


def _reads(scene: Scene, way: Sequence[Step], keys: Keys) -> Iterator[tuple[Code, ast.expr]]:
    by_last: dict[str, Keys] = {keys[-1]: keys} if keys else {}
    for code, node, rest in way:
        path = (*keys_of(node)[1], *rest)
        if path and len(path) > len(by_last.get(path[-1], ())):
            by_last[path[-1]] = path
        if isinstance(node, ast.Name) and not rest:
            yield from _of_name(scene, code, node)
    for last, whole in by_last.items():
        for code in scene.codes(last):
            for chain, mine in chains(code):
                shared = min(len(mine), len(whole))
                if mine[-shared:] == whole[-shared:]:
                    yield code, chain


def _of_name(scene: Scene, code: Code, node: ast.Name) -> Iterator[tuple[Code, ast.expr]]:
    """What reads the same variable, in other files too where it is one of a module."""
    bound = code.bindings(node, node.id)
    for one in bound[:1]:
        yield from ((code, read) for read in code.references(one))
    if all(code.function_of(one.node) is not None for one in bound):
        return
    mine = code.qualified(node)
    home = scene.module(mine.lstrip(".").rpartition(".")[0], code.path)
    for other in scene.codes(node.id):
        for one in other.global_names(node.id)[:1] if other.path == home else ():
            yield from ((other, read) for read in other.references(one))
        for read in other.nodes((ast.Name, ast.Attribute)):
            whole = other.qualified(read)
            if whole.rpartition(".")[2] == node.id and (other is not code or whole == mine):
                yield other, read


def chains(code: Code) -> Iterator[tuple[ast.expr, Keys]]:
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
