"""Places inside a nested sample: where an object stands, and the sample with something else there."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from hotloop.feed.tree import Branch, Leaf, Structure, flatten, unflatten

#: Steps from the root: a key, a field's name, or a position.
Place = tuple[Hashable, ...]


def find(tree: Any, wanted: Any) -> list[Place]:
    """Every place where ``wanted`` itself stands, or, if it is a tuple or list, its very elements."""
    if tree is wanted or _same_elements(tree, wanted):
        return [()]
    return [(step, *place) for step, child in _children(tree) for place in find(child, wanted)]


def at(tree: Any, place: Place) -> Any:
    """What stands there."""
    for step in place:
        tree = dict(_children(tree))[step]
    return tree


def put(tree: Any, place: Place, value: Any) -> Any:
    """A copy of the containers on the way to ``place``, with ``value`` there."""
    if not place:
        return value
    children = [
        put(child, place[1:], value) if step == place[0] else child for step, child in _children(tree)
    ]
    branch = _branch(tree)
    assert branch is not None
    return unflatten(branch, children)


def _same_elements(tree: Any, wanted: Any) -> bool:
    return (
        isinstance(wanted, (tuple, list))
        and isinstance(tree, (tuple, list))
        and len(tree) == len(wanted) > 0
        and all(mine is theirs for mine, theirs in zip(tree, wanted, strict=True))
    )


def _branch(tree: Any) -> Structure | None:
    """The structure of the outermost level alone, every child a leaf."""
    structure = flatten(tree)[1]
    if isinstance(structure, Leaf):
        return None
    return Branch(structure.kind, structure.type, structure.names, tuple(Leaf() for _ in structure.children))


def _children(tree: Any) -> list[tuple[Hashable, Any]]:
    branch = _branch(tree)
    if branch is None or isinstance(branch, Leaf):
        return []
    if isinstance(tree, Mapping):
        return list(tree.items())
    if isinstance(tree, (list, tuple)):
        return list(enumerate(tree))
    return [(name, getattr(tree, str(name))) for name in branch.names]
