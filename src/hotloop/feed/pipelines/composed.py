"""Datasets that apply a transform they hold: the transform is taken apart, its place in the sample found.

The attribute ``transform`` or ``transforms`` is replaced, on a shallow copy of the dataset, by one that
listens; a sample is read; the transform counts if it was called once and what it gave stands in the sample
untouched. What is called ``Compose``, and ``torch.nn.Sequential``, are a sequence of their parts.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hotloop.feed.pipelines.pipeline import Observer, Pipeline, Remaining, numbered
from hotloop.feed.pipelines.places import Place, at, find, put

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
