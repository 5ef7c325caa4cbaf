"""A dataset as stages one after the other, and the forms that need no looking: whole, a subset."""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch.utils.data import Subset

from hotloop.feed.tree import Leaf, Structure, flatten, unflatten

#: Called after each stage with its name and what it gave.
Observer = Callable[[str, Any], None]
#: What follows a cut: takes the index and the value at the cut, gives the dataset's sample.
Remaining = Callable[[int, Any], Any]

WHOLE = "__getitem__"


class Pipeline:
    """A dataset as stages one after the other; the last stage's output is the dataset's sample.

    This one has a single stage: ``why_whole`` says why it is not taken apart.
    """

    names: tuple[str, ...]
    why_whole: str = ""

    def __init__(self, dataset: Any, why: str = "") -> None:
        self.dataset = dataset
        self.names = (WHOLE,)
        self.why_whole = why

    def run(self, index: int, after: Observer) -> Any:
        """Read one sample, calling ``after`` after every stage; the sample."""
        value = self.dataset[index]
        after(WHOLE, value)
        return value

    def prefix(self, cut: int) -> Any:
        """A map-style dataset of what stage number ``cut`` gives; picklable if the dataset is."""
        return self.dataset

    def remaining(self, cut: int) -> Remaining:
        """What follows stage number ``cut``; picklable if the dataset is."""
        return as_it_is


def as_it_is(index: int, value: Any) -> Any:
    """What remains after the last stage: nothing."""
    return value


class SubsetPipeline(Pipeline):
    """The stages of the dataset under a ``torch.utils.data.Subset``."""

    def __init__(self, inner: Pipeline, indices: Sequence[int]) -> None:
        self.inner = inner
        self.indices = indices
        self.names = inner.names

    def run(self, index: int, after: Observer) -> Any:
        """Read the sample of the dataset beneath."""
        return self.inner.run(self.indices[index], after)

    def prefix(self, cut: int) -> Any:
        """The same subset of the prefix beneath."""
        return Subset(self.inner.prefix(cut), self.indices)

    def remaining(self, cut: int) -> Remaining:
        """What follows beneath, for the index beneath."""
        return functools.partial(_beneath, self.inner.remaining(cut), self.indices)


def _beneath(remaining: Remaining, indices: Sequence[int], index: int, value: Any) -> Any:
    return remaining(indices[index], value)


def numbered(names: Sequence[str]) -> tuple[str, ...]:
    """The names with ``#1``, ``#2`` behind those that come more than once."""
    counts, seen = Counter(names), Counter[str]()
    found = []
    for name in names:
        seen[name] += 1
        found.append(f"{name}#{seen[name]}" if counts[name] > 1 else name)
    return tuple(found)


# Transforms in one another


SOURCE = "source"

#: Attributes that hold a transform by convention.
SLOTS = ("transform", "transforms")

_PLAIN = (int, float, str, bytes, type(None))


def chain(transforms: Sequence[Callable[[Any], Any]], value: Any) -> Any:
    """What the last transform gives, of those one after the other."""
    for transform in transforms:
        value = transform(value)
    return value


class ComposedPipeline(Pipeline):
    """``source``, then the parts of the transform in ``slot``; what it gives stands at ``place``."""

    def __init__(self, dataset: Any, slot: str, parts: Sequence[Callable[[Any], Any]], place: Place) -> None:
        self.dataset = dataset
        self.slot = slot
        self.parts = list(parts)
        self.place = place
        self.names = numbered([SOURCE, *(_name(part) for part in parts)])
        # One copy for all reads, so that files it opens on first use are opened once.
        self._watched = _Watched(self.names, self.parts)
        self._twin = _with_slot(dataset, slot, self._watched)

    def run(self, index: int, after: Observer) -> Any:
        """Read the sample with the parts applied one by one."""
        self._watched.after = after
        sample = self._twin[index]
        after(self.names[-1], sample)
        return sample

    def prefix(self, cut: int) -> Any:
        """The dataset with the first parts of its transform only."""
        return _with_slot(self.dataset, self.slot, functools.partial(chain, self.parts[:cut]))

    def remaining(self, cut: int) -> Remaining:
        """The other parts, applied at the transform's place in the sample."""
        return functools.partial(_rest, self.parts[cut:], self.place)


class _Watched:
    """The parts one by one, with a word after each but the last."""

    after: Observer

    def __init__(self, names: Sequence[str], parts: Sequence[Callable[[Any], Any]]) -> None:
        self.names = names
        self.parts = parts

    def __call__(self, value: Any) -> Any:
        for name, part in zip(self.names, self.parts, strict=False):
            self.after(name, value)
            value = part(value)
        return value


def _rest(parts: Sequence[Callable[[Any], Any]], place: Place, index: int, sample: Any) -> Any:
    return put(sample, place, chain(parts, at(sample, place)))


def find_composed(dataset: Any, index: int) -> Pipeline:
    """Read one sample and listen to the transforms the dataset holds."""
    candidates = {slot: value for slot in SLOTS if callable(value := getattr(dataset, slot, None))}
    if not candidates:
        return Pipeline(dataset)
    probes = {slot: _Probe(transform) for slot, transform in candidates.items()}
    try:
        listening = dataset
        for slot, probe in probes.items():
            listening = _with_slot(listening, slot, probe)
        sample = listening[index]
    except Exception as error:  # whatever a dataset does that does not expect to be copied
        return Pipeline(dataset, f"a copy of it with other transforms does not work: {error}")
    why = "it holds a transform that reading a sample does not call"
    for slot, probe in probes.items():
        if not probe.calls:
            continue
        if probe.calls > 1:
            why = f"it calls its {slot} {probe.calls} times in one read"
        elif probe.others:
            why = f"it calls its {slot} with {probe.others}"
        elif (place := _place(sample, probe.result)) is None:
            why = f"it works on what its {slot} gave before returning it"
        elif parts := _parts(candidates[slot]):
            return ComposedPipeline(dataset, slot, parts, place)
    return Pipeline(dataset, why)


class _Probe:
    """Stands in for a transform for one read, and remembers it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls = 0
        self.others = ""  # given besides one value
        self.result: Any = None

    def __call__(self, *values: Any, **keywords: Any) -> Any:
        self.calls += 1
        self.others = "keywords" if keywords else "several values" if len(values) != 1 else self.others
        self.result = self.function(*values, **keywords)
        return self.result


def _with_slot(dataset: Any, slot: str, transform: Callable[..., Any]) -> Any:
    """A shallow copy of the dataset that holds another transform there."""
    twin = copy.copy(dataset)
    setattr(twin, slot, transform)
    return twin


def _place(sample: Any, result: Any) -> Place | None:
    places = find(sample, result)
    if not places or (isinstance(result, _PLAIN) and places != [()]):
        return None
    return places[0] if len(places) == 1 else None


def _parts(transform: Any) -> list[Callable[..., Any]]:
    if isinstance(transform, torch.nn.Sequential):
        inner = list(transform)
    elif type(transform).__name__ == "Compose" and isinstance(transform.transforms, (list, tuple)):
        inner = list(transform.transforms)
    else:
        return [transform]
    return [part for child in inner for part in _parts(child)]


def _name(transform: Any) -> str:
    name = getattr(transform, "__name__", None) or getattr(getattr(transform, "func", None), "__name__", None)
    return str(name) if name else type(transform).__name__


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
