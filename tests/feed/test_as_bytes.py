"""Fields of few values travel as bytes and come out bit for bit, or travel as they are."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn
from tests.feed.simulated_streams import Device
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data._utils.pin_memory import pin_memory

from hotloop import fast
from hotloop.feed import palette
from hotloop.feed.coding import Coded, CodedBatches, Coding, Lookup
from hotloop.feed.loader import Loader
from hotloop.feed.palette import Palette, look_up, table_of
from hotloop.feed.prefetch import DevicePrefetcher
from hotloop.probe.tracked import TrackedBatch

CPU = torch.device("cpu")
MEAN, STD = (torch.tensor(values).view(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
FORMS = ["compiled", "python"] if fast.encode is not None else ["python"]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use(str(request.param), monkeypatch)
    return str(request.param)


def use(form: str, patch: pytest.MonkeyPatch) -> None:
    if form == "python":
        patch.setattr(fast, "encode", None)
        patch.setattr(fast, "decode", None)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    kind = (one.dtype, one.shape, one.stride(), one.requires_grad, one.is_leaf, type(one))
    return kind == (
        other.dtype, other.shape, other.stride(), other.requires_grad, other.is_leaf, type(other)
    ) and bits(one) == bits(other)  # fmt: skip


# -- palettes ------------------------------------------------------------------------------------------------


def through(values: torch.Tensor, known: Palette, inner: int) -> torch.Tensor | None:
    numbers = torch.empty(values.shape, dtype=torch.uint8)
    if not known.encode(values, numbers, inner):
        return None
    found = torch.empty_like(values)
    look_up(numbers, table_of(known.table(), values.dtype, CPU), found, inner)
    return found


@settings(max_examples=120, deadline=None)
@given(data=st.data(), form=st.sampled_from(FORMS), single=st.booleans(), channels=st.integers(1, 4))
def test_any_bits_come_back(data: st.DataObject, form: str, single: bool, channels: int) -> None:
    kind, width = (np.uint32, 32) if single else (np.uint64, 64)
    special = st.sampled_from([0, 1 << (width - 1), (1 << width) - 1])
    anything = st.integers(0, (1 << width) - 1)
    tables = [data.draw(st.lists(special | anything, min_size=1, max_size=256)) for _ in range(channels)]
    outer, inner = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 40))
    picked = data.draw(hn.arrays(np.uint8, (outer, channels, inner)))
    chosen = np.stack(
        [np.array(t, kind)[picked[:, c] % len(t)] for c, t in enumerate(tables)], 1
    )  # fmt: skip
    values = torch.from_numpy(chosen.view(np.float32 if single else np.float64))
    with pytest.MonkeyPatch.context() as patch:
        use(form, patch)
        known = Palette(values.dtype, channels)
        found = through(values, known, inner)
        again = through(values.flip(0).contiguous(), known, inner)
    assert found is not None and bits(found) == bits(values)
    assert again is not None and bits(again) == bits(values.flip(0))


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_hundred_and_fifty_six_values_and_no_more(dtype: torch.dtype) -> None:
    known = Palette(dtype)
    some = torch.arange(200).to(dtype) / 255
    every = torch.arange(256).to(dtype) / 255
    for values in (some, every, every.flip(0).repeat(40)):
        found = through(values, known, values.numel())
        assert found is not None and bits(found) == bits(values)
    assert not known.encode(torch.tensor([-1.0], dtype=dtype), torch.empty(1, dtype=torch.uint8), 1)
    found = through(every, known, 256)
    assert found is not None and bits(found) == bits(every), "what did not fit is not remembered"


@pytest.mark.usefixtures("form")
def test_what_was_coded_before_is_read_with_a_later_table() -> None:
    known, first = Palette(torch.float32), torch.rand(100)
    numbers, found = torch.empty(100, dtype=torch.uint8), torch.empty(100)
    assert known.encode(first, numbers, 100)
    assert known.encode(torch.rand(156), torch.empty(156, dtype=torch.uint8), 156)
    look_up(numbers, table_of(known.table(), torch.float32, CPU), found, 100)
    assert bits(found) == bits(first)


def test_a_copy_learns_for_itself(form: str) -> None:
    known = Palette(torch.float32)
    assert through(torch.zeros(3), known, 3) is not None
    assert through(torch.rand(255) + 1, known.copy(), 255) is not None
    assert through(torch.rand(255) - 2, known, 255) is not None


def test_without_what_is_compiled_the_same_values_are_refused() -> None:
    if fast.encode is None:
        pytest.skip("not compiled for this interpreter")
    values = torch.rand(300)
    for size in (256, 257):
        with pytest.MonkeyPatch.context() as patch:
            here = through(values[:size].clone(), Palette(torch.float32), size)
            use("python", patch)
            there = through(values[:size].clone(), Palette(torch.float32), size)
        assert (here is None) == (there is None) == (size > 256)


# -- batches -------------------------------------------------------------------------------------------------


class Images(Dataset[Any]):
    """Bytes made floats; ``odd`` is one sample that was not."""

    def __init__(self, make: Callable[[torch.Tensor, int], Any], odd: int = -1, length: int = 48) -> None:
        self.make, self.odd, self.length = make, odd, length
        generator = torch.Generator().manual_seed(1)
        self.images = torch.randint(0, 256, (48, 3, 24, 24), dtype=torch.uint8, generator=generator)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> Any:
        if i == self.odd:
            return self.make(torch.rand(3, 24, 24, generator=torch.Generator().manual_seed(i)) * 255, i)
        return self.make(self.images[i], i)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        data = Images(scaled)
        return (data[i] for i in range(info.id if info else 0, 48, info.num_workers if info else 1))


class Named(NamedTuple):
    image: Any
    more: Any


def scaled(image: torch.Tensor, i: int) -> Any:
    return image.float() / 255, i


def normalized(image: torch.Tensor, i: int) -> Any:
    return (image.float() / 255 - MEAN) / STD, i


def fields(image: torch.Tensor, i: int) -> Any:
    double = (image.double() / 255).numpy()
    seen = {"a": (image.float() / 255 - MEAN) / STD, "b": [double, str(i)], "c": Named(image.float(), i)}
    return {
        **seen,
        "bytes": image,
        "noise": torch.rand(3, 24, 24, generator=torch.Generator().manual_seed(i)),
        "none": 0.5,
        "small": image[0, 0].float(),
    }


def channels_last(image: torch.Tensor, i: int) -> Any:
    return (((image.float() / 255 - MEAN) / STD).permute(1, 2, 0).contiguous().numpy(), i)


def transposed(image: torch.Tensor, i: int) -> Any:
    return image.permute(1, 2, 0).contiguous().permute(2, 0, 1).float() / 255, i


def no_numbers(image: torch.Tensor, i: int) -> Any:
    image = (image // 2).float() / 255
    image[0, 0, :4] = torch.tensor([float("nan"), -0.0, float("inf"), 0.0])
    return image, i


def stacked(samples: list[Any]) -> Any:
    return Named(torch.stack([s[0] for s in samples]), {"labels": torch.tensor([s[1] for s in samples])})


def laid_out(samples: list[Any]) -> Any:
    images = torch.stack([s[0] for s in samples])
    return [images.to(memory_format=torch.channels_last), images.mT, images[:, 0]]


def twice(samples: list[Any]) -> Any:
    images = torch.stack([s[0] for s in samples])
    return images, images, images.float()[1:]


class Attributes(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        return self[name]


class Noted(Named):
    note: str


def attributes(samples: list[Any]) -> Any:
    return Attributes(image=torch.stack([s[0] for s in samples]))


def noted(samples: list[Any]) -> Any:
    batch = Noted(torch.stack([s[0] for s in samples]), [s[1] for s in samples])
    batch.note = "a"
    return batch


class Held:
    def __init__(self, images: torch.Tensor) -> None:
        self.images = images


def held(samples: list[Any]) -> Any:
    images = torch.stack([s[0] for s in samples])
    return images, Held(images)


def raises(samples: list[Any]) -> Any:
    raise KeyError("no such sample")


def leaves(batch: Any) -> list[Any]:
    if isinstance(batch, Held):
        return leaves(batch.images)
    if isinstance(batch, dict):
        return [batch.keys(), *(leaf for value in batch.values() for leaf in leaves(value))]
    if isinstance(batch, list | tuple) and type(batch) is not Coded:
        return [type(batch), *(leaf for value in batch for leaf in leaves(value))]
    return [batch]


def alike(one: Any, other: Any) -> bool:
    pairs = list(zip(leaves(one), leaves(other), strict=True))
    return all(same(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def loader(kind: type = DataLoader, data: Any = None, make: Any = scaled, **settings: Any) -> Any:
    if not isinstance(data, IterableDataset) and "batch_size" not in settings:
        settings |= {"shuffle": True}
    given = {"batch_size": 12, "num_workers": 1, **settings}
    return kind(Images(make) if data is None else data, **given)


def epoch(batches: Any) -> list[Any]:
    torch.manual_seed(3)
    return list(batches)


class Through:
    """A loader's batches, carried as bytes and looked up here."""

    def __init__(self, loader: Any) -> None:
        self.loader, self.coded, self.look_up = loader, CodedBatches(loader), Lookup()

    def __iter__(self) -> Iterator[Any]:
        return map(self.look_up, self.coded)


def num_coded(batches: list[Any]) -> int:
    return sum(type(leaf) is Coded for batch in batches for leaf in leaves(batch))


@pytest.mark.parametrize(
    ("settings", "coded"),
    [
        ({"make": scaled}, 4),
        ({"make": normalized}, 4),
        ({"make": normalized, "num_workers": 2}, 4),
        ({"make": fields}, 4 * 3),
        ({"make": channels_last}, 4),
        ({"make": transposed}, 4),
        ({"make": no_numbers}, 4),
        ({"make": scaled, "collate_fn": stacked}, 4),
        ({"make": normalized, "collate_fn": laid_out}, 4),
        ({"make": scaled, "collate_fn": twice}, 0),
        ({"make": scaled, "collate_fn": held}, 0),
        ({"make": scaled, "kind": Loader}, 4),
        ({"make": fields, "kind": Loader, "num_workers": 2}, 4 * 3),
        ({"make": scaled, "kind": Loader, "collate_fn": stacked}, 4),
        ({"make": scaled, "kind": Loader, "worker_method": "thread"}, 0),
        ({"make": scaled, "num_workers": 0}, 0),
        ({"make": scaled, "persistent_workers": True}, 0),
        ({"data": Stream(), "num_workers": 2}, 4),
        ({"data": Images(scaled, odd=5), "shuffle": False}, 3),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_batches_come_out_bit_for_bit(settings: dict[str, Any], coded: int) -> None:
    plain = loader(**settings)
    assert num_coded(epoch(CodedBatches(loader(**settings)))) == coded
    found = Through(loader(**settings))
    for _ in range(2):
        assert alike(epoch(found), epoch(plain))
    # whoever goes through the loader itself meets no bytes
    assert num_coded(epoch(found.loader)) == 0


def test_spawned_workers_learn_their_own_tables() -> None:
    coded = epoch(CodedBatches(loader(make=normalized, multiprocessing_context="spawn")))
    assert num_coded(coded) == 4
    assert alike(list(map(Lookup(), coded)), epoch(loader(make=normalized)))


def test_samples_one_by_one() -> None:
    settings = {"data": Images(lambda image, i: image.repeat(1, 8, 8).float().div(255)), "batch_size": None}
    coded = epoch(CodedBatches(loader(**settings)))
    assert num_coded(coded) == 48
    assert alike(list(map(Lookup(), coded)), epoch(loader(**settings)))


def test_a_field_that_never_fits_is_left_alone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    encode = Palette.encode
    monkeypatch.setattr(Palette, "encode", lambda self, *a: tried.append(1) or encode(self, *a))
    monkeypatch.setattr("hotloop.feed.coding.get_worker_info", lambda: True)
    coding = Coding(loader().collate_fn)
    for number in range(1, 21):
        batch = coding([torch.rand(3, 24, 24) for _ in range(12)])
        assert type(batch) is torch.Tensor
        assert len(tried) == 2 * min(8, number), "for all values, and for each channel"


@pytest.mark.parametrize(
    "failing",
    [
        loader(collate_fn=raises),
        loader(make=lambda image, i: image[:, i % 2 :].float()),
        loader(make=lambda image, i: (image.float(), object())),
    ],
)
def test_errors_are_those_of_the_loader(failing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotloop.feed.coding.get_worker_info", lambda: True)
    samples = [failing.dataset[i] for i in range(12)]
    with pytest.raises((KeyError, RuntimeError, TypeError)) as wanted:
        failing.collate_fn(samples)
    with pytest.raises(wanted.type) as found:
        Coding(failing.collate_fn)(samples)
    assert str(found.value) == str(wanted.value)


def test_workers_that_stay_are_the_ones_of_the_loader_itself() -> None:
    def drawn(over: Callable[[Any], Any]) -> tuple[Any, ...]:
        one = loader(persistent_workers=True)
        torch.manual_seed(3)
        next(iter(one))  # a look at a batch before training
        order = [i for _ in range(2) for _, labels in over(one) for i in labels.tolist()]
        return order, torch.get_rng_state().tolist()

    assert drawn(Through) == drawn(iter)


@pytest.mark.parametrize("collate_fn", [attributes, noted])
def test_containers_of_another_class_come_as_they_are(collate_fn: Callable[[Any], Any]) -> None:
    one = loader(data=Images(scaled, length=12), collate_fn=collate_fn)
    assert num_coded(epoch(CodedBatches(one))) == 0
    ((found,), (wanted,)) = epoch(Through(one)), epoch(one)
    assert type(found) is type(wanted) and vars(found) == vars(wanted)
    assert same(found.image, wanted.image)


def test_what_holds_nothing_coded_is_the_same_object() -> None:
    batch = {"a": [collections.OrderedDict(b=torch.rand(2)), Named(1, (2,))]}
    assert Lookup()(batch) is batch and type(batch["a"][0]) is collections.OrderedDict


def test_a_dictionary_that_somebody_watches_is_looked_up_too() -> None:
    (batch,) = epoch(CodedBatches(loader(make=fields, batch_size=48)))
    reads: list[Any] = []
    plain = dict(batch)
    assert alike(Lookup()(TrackedBatch.of(batch, reads.append)), Lookup()(plain))
    assert num_coded([Lookup()(batch)]) == 0 and not reads


def test_what_cannot_be_carried_as_bytes_says_why() -> None:
    class Own(DataLoader[Any]):
        def __iter__(self) -> Any:
            return super().__iter__()

    def why(one: Any) -> str:
        return DevicePrefetcher(one, "meta", as_bytes=True).why_not

    assert why(loader()) == ""
    assert "num_workers=0" in why(loader(num_workers=0))
    assert "persistent_workers=True" in why(loader(persistent_workers=True))
    assert why(loader(Own)) == "Own iterates in its own way"
    assert DevicePrefetcher([1], "cpu").why_not == "as_bytes=False"
    here = DevicePrefetcher(loader(), "cpu", as_bytes=True)
    assert here.why_not == "on the CPU it would cost more than it saves"
    assert alike(epoch(here), epoch(loader()))
    with pytest.raises(TypeError, match="needs a DataLoader, not a list"):
        DevicePrefetcher([1], "cpu", as_bytes=True)


def test_pinning_takes_the_numbers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[torch.dtype] = []
    monkeypatch.setattr(
        torch.Tensor, "pin_memory", lambda self, device=None: pinned.append(self.dtype) or self.clone()
    )
    batches = epoch(CodedBatches(loader(make=normalized)))
    wanted = epoch(loader(make=normalized))
    assert alike([Lookup()(pin_memory(batch)) for batch in batches], wanted)
    assert collections.Counter(pinned) == {torch.uint8: 4, torch.int64: 4}


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_values_are_looked_up_once_their_numbers_are_there(seed: int, depth: int) -> None:
    wanted = epoch(loader(make=normalized, num_workers=2))
    with pytest.MonkeyPatch.context() as patch:
        device = Device(seed).install(patch)

        def later(numbers: torch.Tensor, *rest: Any) -> None:
            assert device.holds(numbers)
            device.current.add(lambda: look_up(numbers, *rest))

        patch.setattr(palette, "look_up", later)
        found = DevicePrefetcher(loader(make=normalized, num_workers=2), "cuda", depth=depth, as_bytes=True)
        batches = epoch(found)
        device.finish()
    assert alike([batch[0] for batch in batches], [batch[0] for batch in wanted])


def test_nothing_is_read_ahead_at_depth_0(monkeypatch: pytest.MonkeyPatch) -> None:
    Device().install(monkeypatch)
    read = []
    batches = DevicePrefetcher((read.append(k) or torch.tensor([k]) for k in range(5)), "cuda", depth=0)
    for number, _ in enumerate(batches, 1):
        assert len(read) == number
    assert len(read) == 5
