"""Results kept by arguments or by sample: whose are, whose are refused, and what a check finds."""

from __future__ import annotations

import io
import itertools
import random
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from tests.remedy import remedy_training
from tests.remedy.test_live_forms import Context
from tests.running import run_observed
from torch.utils.data import DataLoader

from hotloop.remedy import catalogue
from hotloop.remedy.live import packed
from hotloop.remedy.live.memoize import Memoize
from hotloop.remedy.live.results import Shelf

CALLS: list[Any] = []
called = CALLS.append  # not seen by what looks at what a function reads
TABLE = {str(number): number for number in range(100)}
SETTINGS = {"size": 3}
SCALE = 2
OWN = random.Random(0)
TOTALS = {"made": 0}
NUMBERS = itertools.count()


def tokens(text: str, low: int = 0, *, high: int = 100) -> list[int]:
    """Read from a table of the module: its arguments are not all that it reads."""
    called(text)
    return [TABLE[word] for word in text.split() if low <= TABLE[word] < high]


def scaled(number: int) -> list[int]:
    called(number)
    return [number * SCALE]


def sized(number: int) -> list[int]:
    called(number)
    return [number] * SETTINGS["size"]


def noisy(number: int) -> float:
    return number + random.random()


def noisy_in_numpy(number: int) -> float:
    return number + float(np.random.rand())


def noisy_in_torch(number: int) -> Any:
    return number + torch.rand(())


def noisy_of_its_own(number: int) -> float:
    return number + OWN.random()


def seldom(number: int) -> float:
    """Draws, and seldom uses it."""
    return number + (1.0 if random.random() < 0.001 else 0.0)


def changes(numbers: list[int]) -> list[int]:
    numbers.append(1)
    return [sum(numbers)]


def hands_back(numbers: list[int]) -> list[int]:
    return numbers


def hands_back_inside(numbers: Any) -> Any:
    return {"numbers": numbers}


def nothing(number: int) -> None:
    called(number)


def counts(number: int) -> list[int]:
    TOTALS["made"] += 1
    return [number]


def later(number: int) -> Any:
    return (one for one in range(number))


def opened(number: int) -> Any:
    return io.StringIO()


def one_after_the_other(number: int) -> Iterator[int]:
    yield number


def with_gradient(number: int) -> Any:
    return torch.ones(number, requires_grad=True)


def a_set(number: int) -> Any:
    return {number, "a", "b"}


def an_object(number: int) -> Any:
    return Made()


def told(number: int) -> list[int]:
    print(number, end="")
    return [number]


def one_by_one(number: int) -> list[int]:
    """Another result each time it is asked."""
    called(number)
    return [next(NUMBERS)]


def since_lately(number: int) -> list[int]:
    called(number)
    return [number + LATELY[0]]


LATELY = [0] * 2000


def failing(number: int) -> list[int]:
    called(number)
    raise KeyError(number)


def again(number: int) -> list[int]:
    called(number)
    return [number, *again(number - 1)] if number else [0]


def of_object(made: Made, number: int) -> list[int]:
    return [number]


class Made:
    """What holds things."""

    def __init__(self) -> None:
        self.shift, self.asked, self.passed, self.cells = 1, 0, 0, [0] * 50
        self.rng = random.Random(0)
        self.opened: Any = None

    def moved(self, number: int) -> list[int]:
        called(number)
        return [number + self.shift]

    def tallied(self, number: int) -> list[int]:
        self.asked += 1
        return [number]

    def drawn(self, number: int) -> list[float]:
        return [number + self.rng.random()]

    def lazily(self, number: int) -> list[int]:
        if self.opened is None:
            self.opened = Made
        called(number)
        return [number]

    def grown(self, number: int) -> list[int]:
        called(number)
        return [number + self.cells[-1]]

    @staticmethod
    def apart(number: int) -> list[int]:
        called(number)
        return [number]

    @classmethod
    def shared(cls, number: int) -> list[int]:
        called(number)
        return [number]

    def __getitem__(self, number: int) -> list[int]:
        return [number]


class Pair(NamedTuple):
    """A tuple of another class."""

    left: int
    right: int


def paired(pair: Any) -> list[int]:
    called(pair)
    return [pair[0]]


def a_pair(number: int) -> Pair:
    return Pair(number, number)


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr("hotloop.remedy.live.form.PART", 1e-9)  # nothing is computed again
    found = Context()
    CALLS.clear()
    LATELY[0] = 0
    yield found
    found.hooks.undo()
    assert not found.errors


def put(context: Any, *names: str) -> Memoize:
    form = Memoize(context, ",".join(f"{Path(__file__).name}:{name}" for name in names))
    form.install()
    context.update()
    return form


class Settings:
    """Settings as a class."""

    width = 2
    tables: ClassVar[list[int]] = []


def of_class(number: int) -> list[int]:
    return [number] * Settings.width


def of_module(number: int) -> list[int]:
    return [number + remedy_training.STEPS]


def summed(numbers: Any) -> int:
    called(1)
    return sum(numbers)


def asked(function: Callable[[Any], Any], epochs: int = 4, of: int = 20) -> list[Any]:
    return [function(number) for _ in range(epochs) for number in range(of)]


def test_what_comes_again_is_made_once_and_looked_at_now_and_then(context: Any) -> None:
    texts = [f"{number} {number + 1} 7" for number in range(40)]
    wanted = [tokens(text) for text in texts]
    CALLS.clear()
    form = put(context, "tokens")
    assert form.status() == "it was not called in the thread that trains, nor in workers forked from it"
    assert [tokens(text) for _ in range(4) for text in texts] == wanted * 4
    assert len(CALLS) == 40 + 8  # an epoch of forty, and eight held against what was kept
    assert form.status() == "in effect"
    tokens(texts[0]).clear()  # the script's to write to
    assert tokens(texts[0]) == wanted[0]
    assert tokens(texts[0], 1) == wanted[0][1:]
    assert tokens(texts[0], high=5) == wanted[0][:-1]
    form.off()
    CALLS.clear()
    tokens(texts[0])
    assert len(CALLS) == 1


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("noisy", "draws random"), ("noisy_in_numpy", "draws random"), ("noisy_in_torch", "draws random"),
        ("noisy_of_its_own", "draws random"), ("seldom", "draws random"),
        ("nothing", "called for what it does"), ("counts", "changes what it is given or reads"),
        ("later", "gives a generator"), ("opened", "gives a StringIO"),
        ("one_after_the_other", "one after the other"), ("with_gradient", "a tensor with a gradient"),
        ("a_set", "gives a set"), ("an_object", "gives a Made"), ("a_pair", "gives a Pair"),
        ("told", "calls print()"), ("one_by_one", "another result for the same arguments"),
        ("Made.tallied", "changes what"), ("Made.drawn", "draws random"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_left_as_it_is(context: Any, name: str, why: str) -> None:
    form = put(context, name)
    asked(getattr(Made(), name.removeprefix("Made."), None) or globals()[name])
    assert why in form.status()
    assert form.count == 0


@pytest.mark.parametrize("name", ["changes", "hands_back", "hands_back_inside"])
def test_what_is_given_is_neither_changed_nor_given_back(context: Any, name: str) -> None:
    form = put(context, name)
    for _ in range(3):
        for number in range(20):
            given = [number]
            found = globals()[name](given)
            assert found is given or "back" not in name or found["numbers"] is given
    assert form.count == 0
    assert "given" in form.status()


def test_plain_values_of_modules_their_settings_and_classes_tell_calls_apart(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remedy_training, "STEPS", 3, raising=False)
    form = put(context, "scaled", "sized", "of_class", "of_module")
    for function in (scaled, sized, of_class, of_module):
        asked(function)
    monkeypatch.setitem(globals(), "SCALE", 5)
    monkeypatch.setitem(SETTINGS, "size", 2)
    monkeypatch.setattr(Settings, "width", 3)
    monkeypatch.setattr(remedy_training, "STEPS", 4)
    form._prepare(DataLoader([0]))  # an epoch begins
    assert (scaled(3), sized(3), of_class(3), of_module(3)) == ([15], [3, 3], [3, 3, 3], [7])


@pytest.mark.parametrize("kind", [deque, list, tuple, set, OrderedDict.fromkeys, Counter])
def test_containers_are_told_apart_by_what_they_hold(context: Any, kind: Callable[[Any], Any]) -> None:
    put(context, "summed")
    for _ in range(4):
        for number in range(12):
            assert summed(kind([number, 100])) == number + 100
    assert len(CALLS) < 24


def test_methods_know_their_object_by_what_they_read_of_it(context: Any) -> None:
    form = put(context, "Made.moved")
    one, other = Made(), Made()
    other.shift = 10
    for number in range(60):
        assert one.moved(number % 10) == [number % 10 + 1]
        assert other.moved(number % 10) == [number % 10 + 10]
    assert form.status() == "in effect"
    one.shift = 7
    assert one.moved(3) == [10]
    assert len(CALLS) == 20 + 8 + 1


def test_a_table_that_grows_tells_calls_apart(context: Any) -> None:
    put(context, "Made.grown")
    made = Made()
    asked(made.grown)
    made.cells.append(5)
    assert made.grown(3) == [8]


@pytest.mark.parametrize(
    ("name", "times"),
    [("apart", 20 + 8), ("shared", 20 + 8), ("lazily", 20 + 8 + 1)],  # once more where it opens something
)
def test_methods_that_change_nothing_but_what_they_open_at_first_are_kept(
    context: Any, name: str, times: int
) -> None:
    form = put(context, f"Made.{name}")
    asked(getattr(Made(), name))
    assert form.status() == "in effect"
    assert len(CALLS) == times


def test_another_result_ends_it_and_says_so(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotloop.remedy.live.arguments.Arguments._latest", lambda _: "")  # not looked at
    form = put(context, "since_lately")
    asked(since_lately)
    LATELY[0] = 1
    monkeypatch.setattr("hotloop.remedy.live.form.PART", 1e9)
    found = [since_lately(number % 20) for number in range(40)]
    assert form.status() == "it gave another result for the same arguments: kept ones were used until then"
    assert found[-20:] == [[number + 1] for number in range(20)]


def test_an_object_that_is_another_each_time_ends_it(context: Any) -> None:
    form = put(context, "of_object")
    for number in range(400):
        of_object(Made(), number)
    assert form.status() == "it is given other objects in each call"


def test_a_function_of_a_module_is_left_for_its_weights_change(context: Any) -> None:
    form, net = put(context, "of_object"), torch.nn.Linear(1, 1)
    for number in range(40):
        of_object(net, number % 4)
    assert form.status() == "it is given a module, and does not see its weights change"
    assert form.count == 0


def test_an_exception_passes_and_what_calls_itself_is_one_result(context: Any) -> None:
    put(context, "failing", "again")
    for _ in range(3):
        with pytest.raises(KeyError, match="7"):
            failing(7)
    assert len(CALLS) == 3
    assert asked(again, epochs=3) == [list(range(number, -1, -1)) for number in range(20)] * 3


def test_another_thread_is_left_alone(context: Any) -> None:
    form = put(context, "tokens")
    thread = threading.Thread(target=lambda: [tokens("1 2") for _ in range(30)])
    thread.start()
    thread.join()
    assert len(CALLS) == 30
    assert "not called in the thread that trains" in form.status()


def test_named_tuples_and_equal_numbers_of_other_types_are_told_apart(context: Any) -> None:
    put(context, "paired")
    kinds = ((1, 2), (1.0, 2), (True, 2), Pair(1, 2), [1, 2], np.array([1, 2]), torch.tensor([1, 2]))
    for given in kinds * 9:
        assert type(paired(given)[0]) is type(given[0])


def test_a_room_that_is_full_before_anything_came_again_ends_it(context: Any) -> None:
    form = put(context, "Made.shared")
    form._calls[0]._results.shelf._size = 4096 + 100
    for number in range(20):
        Made.shared(number)
    assert "was full before the same arguments came again" in form.status()
    assert len(CALLS) == 20


ARRAY = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
RESULTS: list[Any] = [
    [1, 2.5, "x", None, True, b"y", 1j],
    {"b": [1], "a": (2, [3])},
    float("nan"),
    -0.0,
    ARRAY,
    ARRAY.transpose(2, 0, 1),
    np.asfortranarray(ARRAY),
    np.zeros((0, 3)),
    np.array(1.5),
    np.array(["2020-01-01"], dtype="datetime64[D]"),
    np.float32(0.1),
    np.bool_(True),
    torch.arange(6).reshape(2, 3),
    torch.arange(6).reshape(2, 3).T,
    torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
    torch.zeros(0),
    torch.tensor(1.5, dtype=torch.bfloat16),
    torch.tensor([True]),
    torch.tensor([1 + 2j]),
]


@pytest.mark.parametrize("number", range(len(RESULTS)))
def test_results_are_given_again_as_they_were(number: int) -> None:
    result = RESULTS[number]
    found = packed.unpacked(memoryview(packed.packed(result)))
    assert packed.alike(found, result)
    assert type(found) is type(result)
    if isinstance(result, np.ndarray):
        assert found.strides == result.strides or not result.size
        assert found.dtype == result.dtype
        assert found.flags.writeable
        assert np.array_equal(found, result)
    if isinstance(result, torch.Tensor):
        assert found.stride() == result.stride()
        assert found.dtype == result.dtype
        assert torch.equal(found, result)


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(4, 4)[:, :2],
        torch.ones(1).expand(3),
        np.ones((4, 4))[:, :2],
        ARRAY[::-1],
        np.ma.ones(3),
        {1},
    ],
)
def test_parts_of_others_and_other_kinds_are_not_packed(value: Any) -> None:
    with pytest.raises(packed.Unpackable):
        packed.packed([value])


def test_what_is_half_written_is_written_over() -> None:
    shelf = Shelf(1 << 20)
    shelf.store(b"a" * 16, b"one")
    shelf._bytes[shelf._scanned : shelf._scanned + 24] = 255
    shelf.store(b"b" * 16, b"other")
    other = Shelf.__new__(Shelf)
    other.__dict__.update({**shelf.__dict__, "_index": {}, "_scanned": 4096})
    assert bytes(other.find(b"b" * 16) or b"") == b"other"
    assert bytes(other.find(b"a" * 16) or b"") == b"one"
    assert other.find(b"c" * 16) is None


SCRIPT = """
import hashlib, random
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def decode(path, size):
    count(path)
    data = np.frombuffer(hashlib.blake2b(path.encode()).digest(), np.uint8)
    for _ in range(300):
        data = np.sort(data)[::-1].copy()
    return data[:size].reshape(4, -1)


class Images(Dataset):
    def __init__(self, size):
        self.paths, self.size = [f"{number}.png" for number in range(64)], size

    def __len__(self):
        return len(self.paths)

    def load(self, number):
        return decode(self.paths[number], self.size)

    def __getitem__(self, number):
        image = self.load(number)
        if random.random() < 0.5:
            image = image[:, ::-1].copy()
        image += 1
        return torch.from_numpy(image.astype(np.float32))


made = []
count = made.append
if __name__ == "__main__":
    torch.manual_seed(0)
    random.seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    loader = DataLoader(Images(16), batch_size=8, shuffle=True, SETTINGS)
    for epoch in range(5):
        for batch in loader:
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(len(made), repr(loss.item()))
"""


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        pytest.param("num_workers=0", "decode", marks=pytest.mark.nightly),
        # workers of an epoch, who find what those before them kept
        ("num_workers=2, multiprocessing_context='fork'", "Images.load"),
        ("num_workers=2, persistent_workers=True, multiprocessing_context='fork'", "decode"),
    ],
)
def test_an_unmodified_script_trains_bit_for_bit_as_before(tmp_path: Path, settings: str, named: str) -> None:
    script = SCRIPT.replace("SETTINGS", settings)
    plain = run_observed(script, folder=tmp_path / "plain", observed=False)
    env = catalogue.environment([catalogue.parse(f"memoize=train.py:{named}")])
    done = run_observed(script, folder=tmp_path / "kept", env=env)
    made, loss = done.stdout.split()
    assert loss == plain.stdout.split()[1]
    last = done.notes["remedy"][-1]
    assert last["status"] == "in effect"
    assert last["count"] > 220  # of 320 calls, of which 64 are the first of their kind
    if settings == "num_workers=0":
        assert int(made) < 100
    assert not done.notes.get("disabled")


def heat(points: torch.Tensor, size: int = 8, *, extra: dict[str, torch.Tensor] | None = None) -> Any:
    """A map for each point, drawn cell by cell."""
    called(len(points))
    maps = torch.zeros(len(points), size, size)
    for number, (x, y) in enumerate(points.tolist()):
        maps[number, y, x] = 1.0
    scale = extra["scale"] if extra else torch.ones(len(points))
    return {"maps": maps * scale[:, None, None], "where": points.clone()}


def ranked(points: torch.Tensor) -> torch.Tensor:
    return points.float() / points.max()


def noisy_points(points: torch.Tensor) -> torch.Tensor:
    return points + torch.rand(())


def written_points(points: torch.Tensor) -> torch.Tensor:
    return points.add_(1).clone()


def clipped(points: torch.Tensor) -> torch.Tensor:
    """Changed behind torch's back."""
    points.numpy().clip(0, 4, out=points.numpy())
    return points.clone()


def phased(points: torch.Tensor) -> torch.Tensor:
    called(len(points))
    return points + LATELY[0]


def batches(epochs: int, size: int = 4) -> Iterator[torch.Tensor]:
    points = torch.stack([torch.arange(24) % 8, torch.arange(24) // 8], 1)
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
    found = [heat(points, 9) for points in batches(4)]
    assert all(equal(one, other) for one, other in zip(found, wanted, strict=True))
    # The first batch shows that it has samples; of the next two each is computed alone too.
    assert CALLS.count(4) <= 12
    assert form.status() == "in effect"
    found[-1]["maps"].fill_(7)  # the script's to write to
    assert equal(heat(next(batches(1)), 9), wanted[0])
    (*_, points) = batches(2)
    for _ in range(2):
        assert heat(points, size=10)["maps"].shape == (4, 10, 10)
        for scale in (2.0, 3.0):
            assert heat(points, 8, extra={"scale": torch.full((4,), scale)})["maps"].max() == scale


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("ranked", "not called with the same arguments often enough"),
        ("noisy_points", "it draws random numbers"),
        ("written_points", "it changes what it is given"),
        ("clipped", "it changes what it is given"),
    ],
)
def test_batches_that_cannot_be_kept_by_sample_are_as_they_were(context: Any, name: str, why: str) -> None:
    function = globals()[name]

    def all_of() -> list[Any]:
        torch.manual_seed(3)
        return [function(points).tolist() for points in batches(3)] + [torch.rand(())]

    wanted = all_of()
    form = put(context, name)
    assert all_of() == wanted
    assert why in form.status()


def test_a_sample_that_is_another_when_it_is_checked_ends_it(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotloop.remedy.live.arguments.Arguments._latest", lambda _: "")  # not looked at
    form = put(context, "phased")
    for points in batches(3):
        phased(points)
    assert form.status() == "in effect"
    LATELY[0] = 5
    monkeypatch.setattr("hotloop.remedy.live.form.PART", 1e9)
    for points in batches(8):
        found = phased(points)
    assert torch.equal(found, points + 5)
    assert form.status() == "it gave another result for the same arguments: kept ones were used until then"


TARGETS = """
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


def test_targets_by_sample_leave_training_bit_for_bit_as_it_was(tmp_path: Path) -> None:
    plain = run_observed(TARGETS, folder=tmp_path / "plain", observed=False)
    env = catalogue.environment([catalogue.parse("memoize=train.py:targets")])
    done = run_observed(TARGETS, folder=tmp_path / "kept", env=env)
    made, loss = done.stdout.split()
    assert plain.stdout.split() == ["256", loss]
    assert int(made) < 160
    assert [note["status"] for note in done.notes["remedy"]][-1] == "in effect"
    assert not done.notes.get("disabled")
