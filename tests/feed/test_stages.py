"""Pipelines are found as they are, and cut without changing a bit of any sample."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import Compose, ComposeModule, Halve, Noise, OneOf, Photos, RandomApply, RareFlip, to_float
from torch.utils.data import Subset

from hotloop.feed import randomness
from hotloop.feed.layout import differences, snapshot
from hotloop.feed.stages import StageError, find_pipeline, split_after


def assert_same_samples(dataset: Any, prefix: Any, remaining: Any) -> None:
    for index in range(len(dataset)):
        with randomness.preserved():
            randomness.seed_all(index)
            whole = snapshot(dataset[index])
            randomness.seed_all(index)
            parts = snapshot(remaining(index, prefix[index]))
        assert differences(whole, parts) == []


def scale(image: torch.Tensor, by: float) -> torch.Tensor:
    return image * by


@pytest.mark.parametrize(
    ("transform", "names"),
    [
        (None, ("__getitem__",)),
        (to_float, ("source", "to_float")),
        (Compose([Halve(), Compose([Halve(), to_float]), Noise()]),
         ("source", "Halve#1", "Halve#2", "to_float", "Noise")),
        (ComposeModule([Halve(), Noise()]), ("source", "Halve", "Noise")),
        (torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU()), ("source", "Identity", "ReLU")),
        (Compose([RandomApply([Halve()]), to_float]), ("source", "RandomApply", "to_float")),
        (Compose([OneOf([Halve(), Halve()]), partial(scale, by=2)]), ("source", "OneOf", "scale")),
        (Compose([lambda image: image]), ("source", "<lambda>")),
    ],
)  # fmt: skip
def test_transforms_are_taken_apart_only_where_they_are_a_sequence(
    transform: Any, names: tuple[str, ...]
) -> None:
    dataset = Photos(transform)
    assert find_pipeline(dataset).names == names
    for cut in range(len(names)):
        assert_same_samples(dataset, *split_after(dataset, cut))
    assert dataset.transform is transform


TRANSFORMS = st.lists(
    st.sampled_from([Halve(), Noise(), RareFlip(), to_float]) | st.builds(Compose, st.just([Noise()])),
    min_size=1,
)


@settings(max_examples=25, deadline=None)
@given(TRANSFORMS, st.data())
def test_any_composition_cut_anywhere_gives_the_same_samples(transforms: list[Any], data: Any) -> None:
    dataset = Photos(Compose(transforms[:3]), num=2, shape=(3, 4, 16))
    cut = data.draw(st.integers(0, len(find_pipeline(dataset).names) - 1))
    assert_same_samples(dataset, *split_after(dataset, cut))


def test_the_prefix_and_the_rest_work_in_spawned_processes() -> None:
    dataset = Photos(Compose([Halve(), Noise()]))
    prefix, remaining = pickle.loads(pickle.dumps(split_after(dataset, "Halve")))
    assert_same_samples(dataset, prefix, remaining)


def test_the_pipeline_under_a_subset() -> None:
    subset = Subset(Photos(Compose([Halve(), Noise()])), [5, 2, 7])
    prefix, remaining = split_after(subset, "Halve")
    assert len(prefix) == 3
    assert_same_samples(subset, prefix, remaining)
    assert find_pipeline(Subset(Photos(), [1])).names == ("__getitem__",)


class Touched(Photos):
    def __getitem__(self, index: int) -> Any:
        return self.transform(self.read(index)).float()


class Twice(Photos):
    def __getitem__(self, index: int) -> Any:
        return self.transform(self.read(index)), self.transform(self.read(index))


class Keywords(Photos):
    def __getitem__(self, index: int) -> Any:
        return self.transform(image=self.read(index))


@pytest.mark.parametrize(
    ("kind", "word"), [(Touched, "works on what"), (Twice, "2 times"), (Keywords, "with keywords")]
)
def test_what_is_not_understood_stays_whole_with_a_reason(kind: Any, word: str) -> None:
    dataset = kind(lambda image: image)
    pipeline = find_pipeline(dataset)
    assert pipeline.names == ("__getitem__",)
    assert word in pipeline.why_whole
    with pytest.raises(StageError, match=r"no stage 'Halve'"):
        split_after(dataset, "Halve")
