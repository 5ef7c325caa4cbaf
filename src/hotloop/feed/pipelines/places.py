"""Places inside a nested sample: where an object stands, and the sample with something else there."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from hotloop.feed.tree import Leaf, Structure, flatten, unflatten

#: Steps from the root: a key, a field's name, or a position.
Place = tuple[Hashable, ...]


def find(tree: Any, wanted: Any) -> list[Place]:
    """Every place where ``wanted`` itself stands."""
    if tree is wanted:
        return [()]
    return [(step, *place) for step, child in _level(tree)[0] for place in find(child, wanted)]


def at(tree: Any, place: Place) -> Any:
    """What stands there."""
    for step in place:
        tree = dict(_level(tree)[0])[step]
    return tree


def put(tree: Any, place: Place, value: Any) -> Any:
    """A copy of the containers on the way to ``place``, with ``value`` there."""
    if not place:
        return value
    children, structure = _level(tree)
    found = [put(child, place[1:], value) if step == place[0] else child for step, child in children]
    return unflatten(structure, found)


def _level(tree: Any) -> tuple[list[tuple[Hashable, Any]], Structure]:
    """The steps from here with what they lead to, and the structure of the outermost level alone."""
    children, structure = flatten(tree, lambda one: one is not tree)
    if isinstance(structure, Leaf):
        return [], structure
    return list(zip(structure.names or range(len(children)), children, strict=True)), structure
