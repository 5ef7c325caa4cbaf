"""The stages of a dataset's pipeline: found, named, and cut in two after one of them.

A dataset that applies an attribute ``transform`` or ``transforms`` has stages: ``source`` is its own reading,
then comes every transform by its class name. A ``Compose`` is taken apart, nested ones as well. Any other
dataset is a single stage, ``__getitem__``.

Of several stages of one name the first is ``Resize#1``, the second ``Resize#2``.
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import Subset

from hotloop.feed import randomness
from hotloop.feed.errors import FeedError
from hotloop.feed.holdings import left_as_it_was
from hotloop.feed.layout import differences, snapshot
from hotloop.feed.pipelines import Pipeline, Remaining, SubsetPipeline, as_it_is, find_composed


class StageError(FeedError, ValueError):
    """A pipeline cannot be cut where it was asked to be."""


def find_pipeline(dataset: Any, *, index: int = 0) -> Pipeline:
    """The stages of a map-style dataset; reads sample ``index`` once, random states are kept."""
    if isinstance(dataset, Subset):
        inner = find_pipeline(dataset.dataset, index=int(dataset.indices[index]))
        if type(inner) is Pipeline:
            return Pipeline(dataset, inner.why_whole)
        return SubsetPipeline(inner, dataset.indices)
    with randomness.preserved(), left_as_it_was(dataset):
        return find_composed(dataset, index)


def split_after(dataset: Any, after: str | int, *, index: int = 0) -> tuple[Any, Remaining]:
    """A dataset of what stage ``after`` gives, and the function of index and that value that does the rest.

    ``after`` is a stage's name or its number, from 0. Both halves together are checked against the dataset
    itself on sample ``index``, under the same random state, bit for bit. After the last stage the first half
    is ``dataset`` itself.

    Raises:
        StageError: there is no such stage, or the halves do not make the whole.
    """
    pipeline = find_pipeline(dataset, index=index)
    cut = _position(pipeline, dataset, after)
    if cut == len(pipeline.names) - 1:
        return dataset, as_it_is
    prefix, remaining = pipeline.prefix(cut), pipeline.remaining(cut)
    with randomness.preserved():
        _require_the_same(dataset, prefix, remaining, pipeline.names[cut], index)
    return prefix, remaining


def _position(pipeline: Pipeline, dataset: Any, after: str | int) -> int:
    names = pipeline.names
    if isinstance(after, int) and 0 <= after < len(names):
        return after
    if after in names:
        return names.index(str(after))
    listed = ", ".join(names)
    why = f" ({pipeline.why_whole})" if pipeline.why_whole else ""
    raise StageError(
        f"{type(dataset).__name__} has no stage {after!r}; its stages are: {listed}{why}",
        hint="apply what follows the cut as self.transform, see docs/guides/hit-rate.md"
        if len(names) == 1
        else "give one of these names or its number, from 0",
    )


def _require_the_same(dataset: Any, prefix: Any, remaining: Remaining, name: str, index: int) -> None:
    with left_as_it_was(dataset):
        randomness.seed_all(index)
        whole = snapshot(dataset[index])
    with left_as_it_was(dataset):
        randomness.seed_all(index)
        parts = snapshot(remaining(index, prefix[index]))
    found = differences(whole, parts)
    if found:
        raise StageError(
            f"cutting {type(dataset).__name__} after {name!r} changes its samples: {'; '.join(found[:3])}",
            hint="a read may depend on the index and random generators only, else a cut cannot be checked",
        )
