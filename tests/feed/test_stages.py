"""Pipelines are found as they are, and cut without changing a bit of any sample."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import (
    Compose,
    ComposeModule,
    Halve,
    MarkedPhotos,
    Noise,
    OneOf,
    Photos,
    RandomApply,
    RareFlip,
    to_float,
)
from torch.utils.data import Subset

from hotloop.feed import randomness
from hotloop.feed.comparing import differences, snapshot
from hotloop.feed.stages import StageError, find_pipeline, split_after, stage


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


@settings(deadline=None)
@given(TRANSFORMS, st.data())
def test_any_composition_cut_anywhere_gives_the_same_samples(transforms: list[Any], data: Any) -> None:
    dataset = Photos(Compose(transforms[:3]), num=2, shape=(3, 4, 16))
    cut = data.draw(st.integers(0, len(find_pipeline(dataset).names) - 1))
    assert_same_samples(dataset, *split_after(dataset, cut))


def test_the_prefix_and_the_rest_work_in_spawned_processes() -> None:
    for dataset, name in ((Photos(Compose([Halve(), Noise()])), "Halve"), (MarkedPhotos(), "decode")):
        prefix, remaining = pickle.loads(pickle.dumps(split_after(dataset, name)))
        assert_same_samples(dataset, prefix, remaining)


def test_a_joint_transform_of_image_and_target() -> None:
    def shift(image: torch.Tensor, target: int) -> tuple[torch.Tensor, int]:
        return image + 1, target + 1

    class Detection(Photos):
        def __init__(self) -> None:
            super().__init__()
            self.transforms = ComposeModule([shift, shift])

        def __getitem__(self, index: int) -> Any:
            image, target = super().__getitem__(index)
            image, target = self.transforms(image, target)
            return image, target

    dataset = Detection()
    assert find_pipeline(dataset).names == ("source", "shift#1", "shift#2")
    prefix, remaining = split_after(dataset, "shift#1")
    assert prefix[0][1] == 1
    assert_same_samples(dataset, prefix, remaining)


def test_both_transforms_behind_one_attribute_as_torchvision_keeps_them() -> None:
    class Standard:
        def __init__(self, transform: Any, target_transform: Any) -> None:
            self.transform = transform
            self.target_transform = target_transform

        def __call__(self, image: Any, target: Any) -> Any:
            return self.transform(image), self.target_transform(target)

    class Captions(Photos):
        def __init__(self, transform: Any) -> None:
            super().__init__()
            self.transforms = Standard(transform, str)
            self.transform = transform

        def __getitem__(self, index: int) -> Any:
            return self.transforms(self.read(index), index)

    dataset = Captions(Compose([Halve(), Noise()]))
    assert find_pipeline(dataset).names == ("source", "Halve", "Noise")
    assert_same_samples(dataset, *split_after(dataset, "Halve"))


def test_transforms_of_whole_samples_and_in_named_places() -> None:
    class Pair(NamedTuple):
        image: Any
        extra: dict[str, Any]

    def add_mean(sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "mean": sample["image"].float().mean()}

    class Dictionaries(Photos):
        def __getitem__(self, index: int) -> Any:
            return self.transform({"image": self.read(index)})

    class Named(Photos):
        def __getitem__(self, index: int) -> Any:
            return Pair(image=index, extra={"deep": [self.transform(self.read(index)), "x"]})

    assert_same_samples(*_split(Dictionaries(Compose([add_mean, add_mean])), 1))
    assert_same_samples(*_split(Named(Compose([Halve(), Noise()])), "Halve"))


def _split(dataset: Any, name: Any) -> tuple[Any, Any, Any]:
    return dataset, *split_after(dataset, name)


def test_the_pipeline_under_a_subset() -> None:
    subset = Subset(Photos(Compose([Halve(), Noise()])), [5, 2, 7])
    prefix, remaining = split_after(subset, "Halve")
    assert len(prefix) == 3
    assert_same_samples(subset, prefix, remaining)
    marked = Subset(MarkedPhotos(), [4, 1])
    assert_same_samples(marked, *split_after(marked, "decode"))
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


class Slots:
    __slots__ = ("transform",)

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return self.transform(index)


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


def test_a_dataset_without_a_dictionary() -> None:
    dataset = Slots()
    dataset.transform = abs
    assert find_pipeline(dataset).names == ("source", "abs")


def test_marked_stages() -> None:
    dataset = MarkedPhotos()
    assert find_pipeline(dataset).names == ("fetch", "decode", "augment", "__getitem__")
    prefix, remaining = split_after(dataset, "decode")
    assert prefix[3].dtype == torch.uint8
    assert_same_samples(dataset, prefix, remaining)
    assert_same_samples(dataset, *split_after(dataset, "fetch"))


def test_the_rest_does_not_run_the_marked_stages_before_the_cut() -> None:
    ran: list[str] = []

    class Telling(MarkedPhotos):
        @stage("fetch")
        def fetch(self, index: int) -> bytes:
            ran.append("fetch")
            return self.read(index).numpy().tobytes()

    prefix, remaining = split_after(Telling(), "decode")
    value = prefix[0]
    ran.clear()
    remaining(0, value)
    assert ran == []


def test_a_skipped_value_that_is_used_is_an_error_in_words() -> None:
    class Peeking(MarkedPhotos):
        def __getitem__(self, index: int) -> Any:
            raw = self.fetch(index)
            return self.decode(raw), len(raw)

    with pytest.raises(StageError, match=r"what stage 'fetch' gives is used besides what stage 'decode'"):
        split_after(Peeking(), "decode")


def test_a_marked_stage_that_runs_twice_cannot_be_cut_at() -> None:
    class Mosaic(MarkedPhotos):
        def __getitem__(self, index: int) -> Any:
            return [self.decode(self.fetch(k)) for k in (0, index)]

    assert "'decode' runs 2 times" in find_pipeline(Mosaic()).why_whole


def test_a_stage_that_some_samples_never_reach() -> None:
    class Skipping(MarkedPhotos):
        def __getitem__(self, index: int) -> Any:
            return None if index == 3 else super().__getitem__(index)

    prefix, _ = split_after(Skipping(), "decode")
    with pytest.raises(StageError, match="index 3 never came to stage 'decode'"):
        prefix[3]


def test_handlers_of_the_dataset_do_not_swallow_the_cut() -> None:
    class Careful(MarkedPhotos):
        def __getitem__(self, index: int) -> Any:
            try:
                return super().__getitem__(index)
            except Exception:
                return None

    prefix, _ = split_after(Careful(), "decode")
    assert prefix[0].dtype == torch.uint8


def test_listed_stages() -> None:
    class Listed(Photos):
        @property
        def stages(self) -> Any:
            return [("read", self.read), ("halve", Halve()), ("noise", Noise())]

        def __getitem__(self, index: int) -> Any:
            return Noise()(Halve()(self.read(index)))

    dataset = Listed()
    assert find_pipeline(dataset).names == ("read", "halve", "noise")
    assert_same_samples(dataset, *split_after(dataset, "halve"))


def test_listed_stages_that_are_not_what_the_dataset_does() -> None:
    class Wrong(Photos):
        @property
        def stages(self) -> Any:
            return [("read", self.read), ("halve", Halve())]

    with pytest.raises(StageError, match="changes its samples"):
        split_after(Wrong(), "read")


def test_a_name_that_is_not_there_lists_those_that_are() -> None:
    with pytest.raises(StageError, match=r"no stage 'Halve'.*Halve#1, Halve#2"):
        split_after(Photos(Compose([Halve(), Halve()])), "Halve")


def test_looking_leaves_the_random_states_alone() -> None:
    generator = torch.Generator()

    def noise(image: torch.Tensor) -> torch.Tensor:
        return image + torch.rand(image.shape, generator=generator)

    dataset = Photos(Compose([Halve(), noise, Noise()]))
    before, own = torch.get_rng_state(), generator.get_state()
    assert_same_samples(*_split(Photos(Compose([Halve(), Noise()])), "Halve"))
    split_after(dataset, "Halve")
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(own, generator.get_state())
