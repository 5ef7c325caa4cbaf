"""What a dataset holds that a read could change, and how it is put back."""

from __future__ import annotations

import functools
import operator
import pickle
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from hotloop.feed.randomness import generator_state, is_generator, set_generator_state

#: The walk is bounded: a guard must not cost more than the reads it guards.
MAX_DEPTH = 8
MAX_OBJECTS = 5_000
MAX_CHILDREN = 64
#: Containers and arrays up to this size are put back as they were.
MAX_ITEMS = 10_000
MAX_BYTES = 2**20

_ENDS = (
    *(bool, int, float, str, bytes, bytearray, complex, type, type(None)),
    *(types.ModuleType, np.ndarray, torch.Tensor),
)


def held_generators(dataset: Any) -> dict[str, bytes]:
    """The states of the random generators it holds, by path (``dataset.transform.rng``)."""
    return {
        path: pickle.dumps(generator_state(value)) for path, value in _walk(dataset) if is_generator(value)
    }


def _walk(dataset: Any) -> Iterator[tuple[str, Any]]:
    """Every object reached from the dataset with its path, each once."""
    seen: dict[int, Any] = {}
    waiting: list[tuple[str, Any, int]] = [("dataset", dataset, 0)]
    while waiting and len(seen) < MAX_OBJECTS:
        path, value, depth = waiting.pop()
        if isinstance(value, _ENDS) or id(value) in seen:
            continue
        # Kept, so that no other object gets its id meanwhile.
        seen[id(value)] = value
        yield path, value
        if depth < MAX_DEPTH and not is_generator(value):
            waiting += [(name, child, depth + 1) for name, child in _children(path, value)]


@contextmanager
def left_as_it_was(dataset: Any) -> Iterator[None]:
    """What reading changes of the dataset is put back: generators, attributes, small containers and arrays.

    Not seen: what is changed in place in large containers and arrays.
    """
    with ExitStack() as after:
        for _, value in _walk(dataset):
            for undo in _undoing(value):
                after.callback(undo)
        yield


def _undoing(value: Any) -> Iterator[Callable[[], None]]:
    if is_generator(value):
        yield functools.partial(set_generator_state, value, generator_state(value))
    held = getattr(value, "__dict__", None)
    if type(held) is dict:
        yield functools.partial(_put_back, held, dict(held))
        for array in held.values():
            if type(array) is np.ndarray and array.nbytes <= MAX_BYTES and array.flags.writeable:
                yield functools.partial(np.copyto, array, array.copy())
    if type(value) in (list, dict, set) and len(value) <= MAX_ITEMS:
        yield functools.partial(_put_back, value, value.copy())


def _put_back(container: Any, before: Any) -> None:
    now, then = _parts(container), _parts(before)
    if len(now) != len(then) or not all(map(operator.is_, now, then)):
        container.clear()
        container.extend(before) if isinstance(container, list) else container.update(before)


def _parts(container: Any) -> list[Any]:
    return [*container, *container.values()] if isinstance(container, dict) else [*container]


def _children(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (list, tuple)):
        if len(value) <= MAX_CHILDREN:
            yield from ((f"{path}[{k}]", child) for k, child in enumerate(value))
    elif isinstance(value, dict):
        if len(value) <= MAX_CHILDREN:
            yield from ((f"{path}[{key!r}]", child) for key, child in list(value.items()))
    elif isinstance(value, functools.partial):
        yield f"{path}.func", value.func
        yield f"{path}.args", value.args
        yield f"{path}.keywords", value.keywords
    elif isinstance(value, types.MethodType):
        yield f"{path}.__self__", value.__self__
    elif isinstance(value, types.FunctionType):
        yield from _of_function(path, value)
    else:
        yield from ((f"{path}.{name}", child) for name, child in list(getattr(value, "__dict__", {}).items()))
        for name in ("__getitem__", "__call__", "forward"):
            method = getattr(type(value), name, None)
            if isinstance(method, types.FunctionType):
                yield f"{path}.{name}", method


def _of_function(path: str, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function closes over, and the random generators among the globals it names."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f"{path}:{name}", cell.cell_contents
        except ValueError:
            continue
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if is_generator(value):
            yield f"{path}:{name}", value
