"""Who else reads a value that was followed to where it is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from hotloop.remedy.source.code import Code
from hotloop.remedy.source.scene import Scene
from hotloop.remedy.source.values import chain_of, looked_up

Keys = tuple[str, ...]
#: An expression on the way of a value, and the keys that were still to be read of it.
Step = tuple[Code, cst.BaseExpression, Keys]


def readers(
    scene: Scene, way: Sequence[Step], keys: Keys, code: Code, inside: cst.CSTNode
) -> list[tuple[str, int]]:
    """File and line of what reads or sets the value besides the way itself and the expression ``inside``.

    ``keys`` are those of the configured value, where the way ends at one.
    """
    steps = {id(node) for _, node, _ in way}
    # What the way ends in may be an expression that reads the value and is followed no further.
    for where, under in ((code, inside), *((where, node) for where, node, _ in way[-1:])):
        steps |= {id(node) for node in where.nodes(cst.CSTNode, under)}  # type: ignore[type-abstract]
    found: dict[tuple[str, int], None] = {}
    for where, node in _reads(scene, way, keys):
        above = where.parents.get(node)
        if isinstance(above, cst.AssignTarget):  # set anew, unless to what was followed
            assign = where.parents[above]
            node = assign.value if isinstance(assign, cst.Assign) else node
        if id(node) not in steps:
            found[str(where.path), where.line(node)] = None
    return sorted(found)


def _reads(scene: Scene, way: Sequence[Step], keys: Keys) -> Iterator[tuple[Code, cst.CSTNode]]:
    chains: dict[str, Keys] = {keys[-1]: keys} if keys else {}
    for code, node, rest in way:
        path = (*chain_of(node)[1], *rest)
        if path and len(path) > len(chains.get(path[-1], ())):
            chains[path[-1]] = path
        if isinstance(node, cst.Name) and not rest:
            yield from _of_name(scene, code, node)
    for last, whole in chains.items():
        for code in scene.codes(last):
            for chain in _chains(code):
                mine = chain_of(chain)[1]
                shared = min(len(mine), len(whole))
                if shared and mine[-shared:] == whole[-shared:]:
                    yield code, chain


def _of_name(scene: Scene, code: Code, node: cst.Name) -> Iterator[tuple[Code, cst.CSTNode]]:
    """What reads the same variable, in other files too where it is one of a module."""
    bound = code.assignments(node, node.value)
    for one in bound:
        yield from ((code, access.node) for access in one.references)
    if all(code.function_of(one.node) is not None for one in bound):
        return
    mine = code.qualified(node)
    home = scene.module(mine.lstrip(".").rpartition(".")[0], code.path)
    for other in scene.codes(node.value):
        if other.path == home:
            for one in other.global_names(node.value):
                yield from ((other, access.node) for access in one.references)
        for kind in (cst.Name, cst.Attribute):
            for read in other.nodes(kind):
                above = other.parents.get(read)
                whole = other.qualified(read)
                named = whole.rpartition(".")[2] == node.value and (other is not code or whole == mine)
                if named and not isinstance(above, cst.ImportAlias | cst.Attribute):
                    yield other, read


def _chains(code: Code) -> Iterator[cst.BaseExpression]:
    """Every longest chain of keys."""
    for node in code.nodes(cst.BaseExpression):  # type: ignore[type-abstract]
        if not isinstance(node, cst.Attribute | cst.Subscript | cst.Call):
            continue
        if isinstance(node, cst.Call) and looked_up(node) is None:
            continue
        above = code.parents.get(node)
        longer = isinstance(above, cst.Attribute | cst.Subscript) and above.value is node
        called = isinstance(above, cst.Call) and above.func is node
        if not (longer or called):
            yield node
