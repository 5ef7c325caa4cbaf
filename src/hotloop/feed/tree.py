"""Nested samples and batches taken apart and put together again.

Dictionaries (and other mappings that can be built from one), lists, tuples, named tuples and dataclasses are
structure; everything else is a leaf. The structure is plain, hashable, picklable data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple


class Leaf(NamedTuple):
    """The structure of what has none."""


class Branch(NamedTuple):
    """One level: how to build it, the names of its children where they have some, and their structures."""

    kind: str
    type: type
    names: tuple[Hashable, ...]
    children: tuple[Structure, ...]


Structure = Leaf | Branch
LEAF = Leaf()


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Structure]:
    """Leaves in order, depth first, and the structure that :func:`unflatten` needs.

    What ``is_leaf`` says yes to is not taken apart, whatever it is.
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, is_leaf)


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    """The tree of ``structure`` with these leaves, in the order :func:`flatten` gave them."""
    return _unflatten(structure, iter(leaves).__next__)


def paths(structure: Structure, prefix: str = "") -> list[str]:
    """A name for every leaf, as one would write it: ``image``, ``target[0].boxes``; empty for a lone leaf."""
    if isinstance(structure, Leaf):
        return [prefix]
    found = []
    for position, child in enumerate(structure.children):
        if structure.kind in ("list", "tuple"):
            name = f"{prefix}[{position}]"
        else:
            name = f"{prefix}.{structure.names[position]}" if prefix else str(structure.names[position])
        found += paths(child, name)
    return found


def _flatten(tree: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> Structure:
    if is_leaf is not None and is_leaf(tree):
        leaves.append(tree)
        return LEAF
    kind = type(tree)
    if kind is tuple or kind is list:
        name = "tuple" if kind is tuple else "list"
        return Branch(name, kind, (), tuple([_flatten(child, leaves, is_leaf) for child in tree]))
    if kind is dict or isinstance(tree, Mapping):
        return Branch(
            "mapping", kind, tuple(tree), tuple([_flatten(child, leaves, is_leaf) for child in tree.values()])
        )
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return Branch(
            "namedtuple", kind, tree._fields, tuple([_flatten(child, leaves, is_leaf) for child in tree])
        )
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = tuple(field.name for field in dataclasses.fields(tree) if field.init)
        children = tuple([_flatten(getattr(tree, name), leaves, is_leaf) for name in names])
        return Branch("dataclass", kind, names, children)
    leaves.append(tree)
    return LEAF


def _unflatten(structure: Structure, take: Callable[[], Any]) -> Any:
    if isinstance(structure, Leaf):
        return take()
    children = [_unflatten(child, take) for child in structure.children]
    if structure.kind == "list":
        return children
    if structure.kind == "tuple":
        return tuple(children)
    if structure.kind == "namedtuple":
        return structure.type(*children)
    if structure.kind == "dataclass":
        return structure.type(**dict(zip(map(str, structure.names), children, strict=True)))
    named = dict(zip(structure.names, children, strict=True))
    if structure.type is dict:
        return named
    try:
        return structure.type(named)
    except TypeError:  # a mapping that is built in another way (defaultdict): as torch's collate does
        return named
