"""Nested samples taken apart and put together: same types, same order, names as one would write them."""

from __future__ import annotations

import collections
import pickle
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.feed.tree import LEAF, flatten, paths, unflatten


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True, kw_only=True)
class Sample:
    image: Any
    boxes: Any
    count: int = field(init=False, default=7)


leaves = st.integers() | st.text() | st.none() | st.binary()
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
        st.dictionaries(st.text(max_size=3), inner, max_size=3).map(collections.OrderedDict),
        st.builds(Pair, inner, inner),
        st.builds(lambda a, b: Sample(image=a, boxes=b), inner, inner),
    ),
    max_leaves=12,
)


def shape(tree: Any) -> Any:
    """A tree with its types, for a comparison that tells a tuple from a named one."""
    if isinstance(tree, dict):
        return type(tree), [(key, shape(value)) for key, value in tree.items()]
    if isinstance(tree, list | tuple):
        return type(tree), [shape(value) for value in tree]
    if isinstance(tree, Sample):
        return Sample, shape(tree.image), shape(tree.boxes)
    return type(tree), tree


@settings(deadline=None)
@given(tree=trees)
def test_any_tree_is_put_together_as_it_was(tree: Any) -> None:
    found, structure = flatten(tree)
    assert shape(unflatten(structure, found)) == shape(tree)
    assert len(paths(structure)) == len(found)
    assert hash(structure) == hash(flatten(tree)[1])
    assert pickle.loads(pickle.dumps(structure)) == structure


def test_leaves_are_named_as_one_would_write_them() -> None:
    tree = {"image": 1, "target": [Sample(image=2, boxes=Pair(3, (4,)))], 5: 6}
    found, structure = flatten(tree)
    assert found == [1, 2, 3, 4, 6]
    assert paths(structure) == [
        "image", "target[0].image", "target[0].boxes.left", "target[0].boxes.right[0]", "5",
    ]  # fmt: skip
    assert paths(LEAF) == [""]
