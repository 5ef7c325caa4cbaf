"""A tracked batch is a dict in all that can be done with it, and remembers what was read."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data._utils.collate import default_convert
from torch.utils.data._utils.pin_memory import pin_memory

from hotloop.probe.observers.unread import ALL, TrackedBatch, register_with_pytree


def tracked(batch: dict[Any, Any]) -> tuple[TrackedBatch, list[Any]]:
    read: list[Any] = []
    return TrackedBatch.of(batch, read.append), read


def double_star(**fields: Any) -> dict[str, Any]:
    return fields


def matched(batch: Any) -> Any:
    match batch:
        case {"a": found}:
            return found
    return None


WHOLE: list[Callable[[Any], Any]] = [
    dict, list, sorted, copy.copy, copy.deepcopy, json.dumps, repr, lambda b: double_star(**b),
    lambda b: {**b}, lambda b: {"z": 1} | b, lambda b: b | {"z": 1}, lambda b: {}.update(b),
    lambda b: list(b.items()), lambda b: list(b.values()), lambda b: {key: b[key] for key in b},
    lambda b: pickle.loads(pickle.dumps(b)), lambda b: b == {"a": 1, "b": 2}, lambda b: b.copy(),
    lambda b: list(reversed(b)),
]  # fmt: skip


@pytest.mark.parametrize("use", WHOLE)
def test_a_wholesale_use_is_the_dicts_and_reads_everything(use: Callable[[Any], Any]) -> None:
    batch, read = tracked({"a": 1, "b": 2})
    assert use(batch) == use({"a": 1, "b": 2})
    assert ALL in read or {"a", "b"} <= set(read)


@pytest.mark.parametrize(
    "use",
    [
        lambda b: b["a"],
        lambda b: b.get("a"),
        lambda b: b.pop("a"),
        lambda b: operator.itemgetter("a")(b),
        lambda b: b.setdefault("a", 3),
        matched,
    ],
)
def test_reading_one_key_reads_one_key(use: Callable[[Any], Any]) -> None:
    batch, read = tracked({"a": 1, "b": 2})
    assert use(batch) == 1
    assert set(read) == {"a"}


def test_asking_what_is_there_reads_nothing() -> None:
    batch, read = tracked({"a": 1, "b": 2})
    assert "a" in batch
    assert len(batch) == 2
    assert bool(batch)
    batch["c"] = 3
    del batch["b"]
    assert isinstance(batch, dict)
    assert read == []


@pytest.mark.parametrize(
    "use", [copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b)), lambda b: b | {}]
)
def test_copies_and_pickles_are_plain_dictionaries(use: Callable[[Any], Any]) -> None:
    assert type(use(tracked({"a": 1})[0])) is dict


def test_missing_keys_raise_as_in_a_dict() -> None:
    batch, _ = tracked({"a": 1})
    with pytest.raises(KeyError, match="'z'"):
        batch["z"]
    with pytest.raises(TypeError):
        hash(batch)


def test_torch_treats_it_as_a_dict() -> None:
    batch, _ = tracked({"a": torch.ones(2), "b": [torch.zeros(1)]})
    register_with_pytree(pytree)
    register_with_pytree(pytree)
    doubled = pytree.tree_map(lambda t: t * 2, batch)
    assert type(doubled) is dict
    assert doubled["a"].tolist() == [2, 2]
    assert set(default_convert(batch)) == {"a", "b"}
    if torch.cuda.is_available():
        assert pin_memory(batch)["a"].is_pinned()


@given(st.dictionaries(st.text(max_size=3), st.integers(), min_size=1), st.data())
def test_any_sequence_of_changes_leaves_what_a_dict_would_hold(
    start: dict[str, int], data: st.DataObject
) -> None:
    plain, (batch, _) = dict(start), tracked(dict(start))
    for _ in range(data.draw(st.integers(0, 5))):
        key = data.draw(st.sampled_from([*start, "new"]))
        change = data.draw(st.sampled_from(["set", "pop", "get", "update", "default"]))
        for target in (plain, batch):
            if change == "set":
                target[key] = 7
            elif change == "pop":
                target.pop(key, None)
            elif change == "get":
                target.get(key)
            elif change == "update":
                target.update({key: 9})
            else:
                target.setdefault(key, 5)
    assert dict(batch) == plain
    assert list(batch) == list(plain)
