"""Targets kept by sample: whose are, whose are refused, and what a look again finds."""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from tests.remedy.test_live_forms import Context
from tests.running import run_observed

from hotloop.errors import UsageError
from hotloop.remedy import catalogue
from hotloop.remedy.live import closed
from hotloop.remedy.live.targets import PrecomputedTargets, Samples, functions

CALLS: list[int] = []


def heat(points: torch.Tensor, size: int = 8, *, extra: dict[str, torch.Tensor] | None = None) -> Any:
    """A map for each point, drawn cell by cell."""
    CALLS.append(len(points))
    maps = torch.zeros(len(points), size, size)
    for number, (x, y) in enumerate(points.tolist()):
        maps[number, y, x] = 1.0
    scale = extra["scale"] if extra else torch.ones(len(points))
    return {"maps": maps * scale[:, None, None], "where": points.clone()}


def ranked(points: torch.Tensor) -> torch.Tensor:
    return points.float() / points.max()


def noisy(points: torch.Tensor) -> torch.Tensor:
    return points + torch.rand(())


def noisy_in_python(points: torch.Tensor) -> torch.Tensor:
    return points + random.random()


def written(points: torch.Tensor) -> torch.Tensor:
    return points.add_(1).clone()


def clipped(points: torch.Tensor) -> torch.Tensor:
    """Changed behind torch's back."""
    points.numpy().clip(0, 4, out=points.numpy())
    return points.clone()


def total(points: torch.Tensor) -> torch.Tensor:
    return points.sum()


def number(points: torch.Tensor) -> int:
    return len(points)


PHASE = [0]
SHIFT = 1
GENERATOR = torch.Generator()


def shifted(points: torch.Tensor) -> torch.Tensor:
    return points + SHIFT


def generated(points: torch.Tensor) -> torch.Tensor:
    return points + torch.rand((), generator=GENERATOR)


def phased(points: torch.Tensor) -> torch.Tensor:
    CALLS.append(len(points))
    return points + PHASE[0]


def one_phased(points: torch.Tensor) -> torch.Tensor:
    return points + PHASE[0] * (points[:, :1] == 3)


class Head:
    """Targets made by a method."""

    def __init__(self) -> None:
        self.shift = 1

    def targets(self, points: torch.Tensor) -> torch.Tensor:
        CALLS.append(len(points))
        return points + self.shift


@pytest.fixture
def context() -> Iterator[Any]:
    found = Context()
    CALLS.clear()
    PHASE[0] = 0
    yield found
    found.hooks.undo()
    assert not found.errors


def put(context: Any, name: str) -> PrecomputedTargets:
    form = PrecomputedTargets(context, f"{Path(__file__).name}:{name}")
    form.install()
    context.update()
    return form


def batches(epochs: int, size: int = 4) -> Iterator[torch.Tensor]:
    points = torch.randint(0, 8, (24, 2), generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    for _ in range(epochs):
        for at in torch.randperm(24, generator=generator).split(size):
            yield points[at].clone()


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_shuffled_batches_of_later_epochs_are_put_together_from_what_was_kept(context: Any) -> None:
    wanted = [heat(points, 9) for points in batches(4)]
    CALLS.clear()
    form = put(context, "heat")
    assert form.status() == "no sample came a second time"
    found = [heat(points, 9) for points in batches(4)]
    assert all(equal(one, other) for one, other in zip(found, wanted, strict=True))
    # An epoch of six batches, eight samples made again one by one; of 18 batches two, and a sample.
    assert sum(CALLS) == 24 + 8 + 2 * 4 + 1
    assert form.status() == "in effect"
    found[-1]["maps"].fill_(7)  # the script's to write to
    assert equal(heat(next(batches(1)), 9), wanted[0])
    form.off()
    CALLS.clear()
    heat(next(batches(1)), 9)
    assert CALLS == [4]


def test_the_samples_of_a_new_batch_are_looked_up_once(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    original = Samples._keys

    def counted(samples: Samples, asked: Any, count: int) -> list[bytes]:
        counts.append(count)
        return original(samples, asked, count)

    monkeypatch.setattr(Samples, "_keys", counted)
    put(context, "phased")
    for points in batches(2):
        phased(points)
    assert len(counts) == 2 * 6


def test_other_arguments_are_other_targets(context: Any) -> None:
    put(context, "heat")
    (*_, points) = batches(2)
    for _ in range(2):
        assert heat(points, 8)["maps"].shape == (4, 8, 8)
        assert heat(points, size=10)["maps"].shape == (4, 10, 10)
        for scale in (2.0, 3.0):
            found = heat(points, 8, extra={"scale": torch.full((4,), scale)})
            assert found["maps"].max() == scale


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("ranked", "depends on the others of its batch"),
        ("noisy", "it draws random numbers"),
        ("noisy_in_python", "it draws random numbers"),
        ("generated", "from a generator of its own"),
        ("written", "it changes what it is given"),
        ("clipped", "it changes what it is given"),
        ("total", "something other than tensors of samples"),
        ("number", "something other than tensors of samples"),
    ],
)
def test_what_cannot_be_kept_is_refused_at_once_and_nothing_is_drawn(
    context: Any, name: str, why: str
) -> None:
    function = globals()[name]

    def all_of() -> list[Any]:
        torch.manual_seed(3)
        random.seed(3)
        GENERATOR.manual_seed(3)
        found = [function(points) for points in batches(3)]
        return [*(one.tolist() if isinstance(one, torch.Tensor) else one for one in found), random.random()]

    wanted = all_of()
    form = put(context, name)
    assert all_of() == wanted
    assert why in form.status()


def test_a_draw_of_numpys_is_seen() -> None:
    samples = Samples(torch, noisy, 0.0)
    numpy.random.seed(0)
    numpy.random.rand()
    before = samples.state()
    numpy.random.rand()
    assert samples.state() != before


def test_a_look_again_finds_a_function_that_changed_and_ends_it(context: Any) -> None:
    form = put(context, "phased")
    for points in batches(3):
        phased(points)
    assert form.status() == "in effect"
    PHASE[0] = 5
    found = [(points, phased(points)) for points in batches(4)]
    assert torch.equal(found[-1][1], found[-1][0] + 5)
    assert "gave another result for the same sample" in form.status()


def distinct(epochs: int, count: int, size: int) -> Iterator[torch.Tensor]:
    """Epochs of points of which none is there twice."""
    points = torch.stack([torch.arange(count) % 10, torch.arange(count)], dim=1)
    generator = torch.Generator().manual_seed(1)
    for _ in range(epochs):
        for at in torch.randperm(count, generator=generator).split(size):
            yield points[at].clone()


def test_one_sample_is_made_again_now_and_then_and_a_whole_batch_rarely(context: Any) -> None:
    form = put(context, "phased")
    for points in distinct(4, 400, 4):
        assert torch.equal(phased(points), points)
    # Of three epochs the first batch and the 65th.
    assert CALLS.count(4) == 100 + 3 * 2
    assert CALLS.count(1) == 2 * 4 + 300 // 16
    assert form.status() == "in effect"


def test_whole_batches_of_short_epochs_are_not_made_again_in_each(context: Any) -> None:
    put(context, "phased")
    for points in distinct(60, 24, 4):
        phased(points)
    hits = 59 * 6
    assert CALLS.count(4) == 6 + -(-hits // 18)


@pytest.mark.parametrize("before", [2, 3, 5])
def test_another_result_for_some_samples_from_an_epoch_on_is_seen_in_its_first_batch(
    context: Any, before: int
) -> None:
    form = put(context, "one_phased")
    for number, points in enumerate(distinct(before + 1, 960, 32)):
        PHASE[0] = 5 if number >= before * 30 else 0
        assert torch.equal(one_phased(points), points + PHASE[0] * (points[:, :1] == 3))
    assert "gave another result for the same sample" in form.status()


def test_another_result_for_one_sample_ends_it_once_that_one_is_made_again(context: Any) -> None:
    form = put(context, "one_phased")
    for points in batches(3):
        one_phased(points)
    PHASE[0] = 5
    for points in batches(90):
        found = one_phased(points)
    assert torch.equal(found, points + 5 * (points[:, :1] == 3))
    assert "gave another result for the same sample" in form.status()


SIGMA = 1.5
NAMES = ["eye", "nose"]


def bump(distance: float) -> float:
    return math.exp(-(distance**2) / (2 * SIGMA**2))


def drawn(points: torch.Tensor, size: int = 8) -> torch.Tensor:
    """Of nothing but its arguments, as its code shows."""
    maps = torch.zeros(points.shape[0], size, size)
    for number in range(len(points)):
        x, y = points[number, 0].item(), points[number, 1].item()
        for at in [max(0, int(x) - 1), min(size - 1, int(x))]:
            maps[number, int(y) % size, at % size] = bump(at - x)
    with torch.no_grad():
        return maps.clamp_(0, 1).to(torch.float32)


HERE = sys.modules[__name__]
KIND: Any = torch.float32


def of_a_module(points: torch.Tensor) -> Any:
    return points * HERE.SIGMA


def of_a_kind(points: torch.Tensor) -> torch.Tensor:
    return points.to(KIND) / 3


def divided_in_rare_batches(points: torch.Tensor) -> torch.Tensor:
    return points / points.max().clamp(min=900)


@pytest.mark.parametrize(
    ("name", "functions"),
    [
        ("drawn", {"drawn", "bump"}),
        ("divided_in_rare_batches", {"divided_in_rare_batches"}),
        ("shifted", {"shifted"}),
        ("phased", set()),
        ("heat", set()),
        ("noisy", set()),
        ("noisy_in_python", set()),
        ("generated", set()),
        ("counted", set()),
        ("timed", set()),
        ("empty", set()),
        ("of_a_module", set()),
        ("of_a_kind", {"of_a_kind"}),
        ("of_a_list", set()),
        ("through_a_list", set()),
        ("by_a_default", set()),
        ("imported", set()),
        ("stored", set()),
    ],
)
def test_a_function_is_shown_to_read_nothing_else_by_all_that_it_names(
    name: str, functions: set[str]
) -> None:
    def counted(points: Any) -> Any:
        global SHIFT
        SHIFT += 0
        return points

    def timed(points: Any) -> Any:
        return [points + time.monotonic() for _ in range(1)]

    def empty(points: Any) -> Any:
        return torch.empty(4)

    def of_a_list(points: Any) -> Any:
        return points + len(NAMES)

    def through_a_list(points: Any) -> Any:
        return [len(NAMES) for _ in points]

    def by_a_default(points: Any, seen: Any = PHASE) -> Any:
        return points

    def imported(points: Any) -> Any:
        import zlib

        return points + zlib.crc32(b"")

    def stored(points: Any) -> Any:
        points.made = True
        return points

    found = closed.reached({**globals(), **locals()}[name])
    assert {one.__name__ for one in found} == functions


def made_again(samples: Samples, batches: Iterator[torch.Tensor], function: Any) -> list[int]:
    """How many samples ``function`` was asked for, call by call, where results come out of ``samples``."""
    sizes: list[int] = []

    def counted(points: torch.Tensor) -> Any:
        sizes.append(len(points))
        return function(points)

    samples._function = counted
    for points in batches:
        asked = samples.ask((points,), {})
        assert asked is not None
        found = samples.recall(asked)
        if found is None:
            before = samples.state()
            found = (counted(points),)
            samples.learn(asked, before, found[0])
        assert torch.equal(found[0], function(points))
    return sizes


def test_what_arguments_alone_decide_is_made_again_ever_less_often() -> None:
    samples = Samples(torch, drawn, 1e9)
    sizes = made_again(samples, distinct(9, 256, 8), drawn)
    assert not samples.why
    # An epoch and the first batch after it; two batches and a sample of every other one by one; of 256
    # batches the second, fourth, eighth ... a sample.
    assert sizes.count(8) == 32 + 1
    assert sizes.count(1) == 2 * 8 + 31 + 8
    assert len(sizes) == sizes.count(8) + sizes.count(1)


def test_what_depends_on_others_in_rare_batches_is_seen_as_it_is_learnt(context: Any) -> None:
    form = put(context, "divided_in_rare_batches")
    for points in distinct(2, 2000, 20):
        assert torch.equal(divided_in_rare_batches(points), points / points.max().clamp(min=900))
    assert "depends on the others of its batch" in form.status()


def test_a_function_that_another_one_calls_is_part_of_what_it_was_given(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(context, "drawn")
    for points in batches(3):
        drawn(points)
    wanted = drawn(points)
    monkeypatch.setattr(sys.modules[__name__], "SIGMA", 4.0)
    assert not torch.equal(drawn(points), wanted)
    monkeypatch.setattr(sys.modules[__name__], "SIGMA", 1.5)
    assert torch.equal(drawn(points), wanted)
    monkeypatch.setattr(sys.modules[__name__], "bump", lambda distance: 0.25)
    assert drawn(points).max() == 0.25


def test_a_type_that_the_function_names_is_part_of_what_it_was_given(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(context, "of_a_kind")
    for points in batches(3):
        of_a_kind(points)
    monkeypatch.setattr(HERE, "KIND", torch.float64)
    assert of_a_kind(points).dtype == torch.float64


def test_methods_are_kept_for_each_object(context: Any) -> None:
    put(context, "Head.targets")
    one, other = Head(), Head()
    other.shift = 3
    for points in batches(2):
        assert torch.equal(one.targets(points), points + 1)
        assert torch.equal(other.targets(points), points + 3)
    assert sum(CALLS) == 2 * 24 + 8 + 4  # the first batch of the second epoch is made again


def test_what_the_function_reads_besides_is_part_of_what_it_was_given(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(context, "shifted")
    for points in batches(2):
        assert torch.equal(shifted(points), points + 1)
    monkeypatch.setattr(sys.modules[__name__], "SHIFT", 4)
    put(context, "Head.targets")
    head = Head()
    for points in batches(2):
        assert torch.equal(shifted(points), points + 4)
        assert torch.equal(head.targets(points), points + 1)
    head.shift = 7
    for points in batches(1):
        assert torch.equal(head.targets(points), points + 7)


def test_results_that_need_gradients_are_left_alone(context: Any) -> None:
    form = put(context, "phased")
    points = torch.rand(4, 2, requires_grad=True)
    for _ in range(3):
        phased(points).sum().backward()
    assert points.grad is not None
    assert points.grad.eq(3).all()
    assert form.status() == "no sample came a second time"


def test_nothing_is_kept_beyond_the_room() -> None:
    samples = Samples(torch, phased, room=100.0)
    for points in batches(1):
        asked = samples.ask((points,), {})
        assert asked is not None
        samples.learn(asked, samples.state(), points + 0)
    assert "the memory for its results was full" in samples.why


def test_functions_are_found_by_file_and_name() -> None:
    assert functions(f"{Path(__file__).name}:Head.targets") == [Head.targets]
    assert functions("other.py:heat") == []
    assert functions("heat") == []


def test_without_a_function_it_cannot_be_asked_for() -> None:
    with pytest.raises(UsageError, match="needs its function") as raised:
        catalogue.environment([catalogue.parse("use-precomputed-targets")])
    assert "FILE.py:FUNCTION" in str(raised.value.hint)


SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def targets(points):
    made.append(len(points))
    maps = torch.zeros(len(points), 16, 16)
    for number, (x, y) in enumerate(points.tolist()):
        maps[number, y, x] = 1.0
    return maps

if __name__ == "__main__":
    made = []
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(64, 1, 16, 16), torch.randint(0, 16, (64, 2)))
    model = torch.nn.Conv2d(1, 1, 3, padding=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(4):
        for images, points in DataLoader(data, batch_size=8, shuffle=True, num_workers=1):
            loss = (model(images)[:, 0] - targets(points)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(sum(made), repr(loss.item()))
"""


def test_an_unmodified_script_trains_bit_for_bit_as_before(tmp_path: Path) -> None:
    plain = run_observed(SCRIPT, folder=tmp_path / "plain", observed=False)
    env = catalogue.environment([catalogue.parse("use-precomputed-targets=train.py:targets")])
    done = run_observed(SCRIPT, folder=tmp_path / "kept", env=env)
    made, loss = done.stdout.split()
    assert plain.stdout.split() == ["256", loss]
    assert int(made) < 160
    assert [note["status"] for note in done.notes["remedy"]][-1] == "in effect"
    assert not done.notes.get("disabled")


class Width:
    """A setting that a script may anneal."""

    def __init__(self) -> None:
        self.map = {"sigma": 1.0}


WIDTH = Width()


def widened(points: torch.Tensor) -> torch.Tensor:
    return points * WIDTH.map["sigma"]


def test_settings_of_a_module_tell_samples_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WIDTH.map, "sigma", 1.0)
    samples = Samples(torch, widened, 1e6)
    points = torch.arange(8.0).reshape(4, 2)
    for _ in range(6):
        asked = samples.ask((points,), {})
        assert asked is not None
        if samples.recall(asked) is None:
            samples.learn(asked, samples.state(), widened(points))
    assert not samples.why
    asked = samples.ask((points,), {})
    assert asked is not None
    assert samples.recall(asked) is not None
    monkeypatch.setitem(WIDTH.map, "sigma", 0.5)
    asked = samples.ask((points,), {})
    assert asked is not None
    assert samples.recall(asked) is None
