"""Functions of the input whose results may be kept: which are named, and which never."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from synthetic import DATASET, TRAIN, evidence, input_run, line, steps

from hotloop.diagnose.diagnose import diagnose
from hotloop.diagnose.repeating import may_be_kept
from hotloop.findings import Place

KEPT = [
    "def clean(text):\n    return [w.lower() for w in text.split()]\n",
    "def clean(text):\n    found = []\n    for w in text:\n        found += w\n    return found\n",
    "@torch.no_grad()\ndef features(clip):\n    return np.abs(np.fft.rfft(clip))\n",
    "class Clips:\n    @staticmethod\n    def features(clip):\n        return np.abs(clip)\n",
    "class Clips:\n    def features(self, clip, /):\n        return np.abs(clip) * self.scale\n",
    "def load(*paths):\n    return [read(p) for p in paths]\n",
    "def operand(path):\n    return path\n",
]
LEFT = [
    "def crop(image):\n    x = random.randint(0, 4)\n    return image[x:]\n",
    "def crop(image):\n    return image[int(torch.rand(()) * 4):]\n",
    "def crop(image, rng):\n    return image[rng.integers(4):]\n",
    "def augmented(image):\n    return image + 1\n",
    "def stream(texts):\n    for text in texts:\n        yield text.split()\n",
    "async def load(path):\n    return await read(path)\n",
    "class Data:\n    def next_batch(self):\n        return self.rows.split()\n",
    "class Data:\n    def take(self, n):\n        self.at += n\n        return self.rows[self.at]\n",
    "def fill(table, text):\n    table[text] = text.split()\n",
    "def told(text):\n    print(text)\n    return text.split()\n",
    "@functools.lru_cache(None)\ndef clean(text):\n    return text.split()\n",
    "@property\ndef clean(self, text):\n    return text.split()\n",
    "def counted(text):\n    global NUMBER\n    NUMBER += 1\n    return text.split()\n",
]


@pytest.mark.parametrize("text", KEPT)
def test_what_may_follow_from_arguments_is_named(text: str) -> None:
    assert may_be_kept(text)


@pytest.mark.parametrize("text", LEFT)
def test_what_draws_does_or_is_asked_by_number_is_not(text: str) -> None:
    assert not may_be_kept(text)


BATCHES = """
def words(doc):
    return [w.lower() for w in doc.split()]

def encode(doc):
    return [vocab[w] for w in words(doc)]

def batches(docs):
    for s in range(0, len(docs), 8):
        yield torch.tensor([encode(d) for d in docs[s:s + 8]])

def train():
    for x in batches(DOCS):
        model(x).backward()
"""


def named(run: Any, sources: dict[str, str]) -> dict[str, tuple[Any, Any]]:
    findings = diagnose(evidence(run, sources=sources))
    return {one.id: (one.data.get("function"), one.remedies) for one in findings}


def inline(*lines: Any) -> Any:
    loop = Place(file=TRAIN, line=14, function="train")
    return replace(steps({"data_wait": 0.06, "forward": 0.02}, lines=lines), source_loop=loop)


def test_a_generator_names_the_first_function_it_calls_and_the_innermost() -> None:
    callers = tuple(
        Place(file=TRAIN, line=number, function=name)
        for number, name in ((6, "encode"), (10, "batches"), (14, "train"))
    )
    hot = line(3, 6.0, file=TRAIN, function="words", role="input", callers=callers)
    function, remedies = named(inline(hot), {TRAIN: BATCHES})["input/slow-sample"]
    assert function == "train.py:encode,train.py:words"
    assert remedies == ("memoize",)
    trains = line(99, 1.0, phase="optimizer", library="torch.optim.sgd", callers=callers[:1])
    function, _ = named(inline(hot, trains), {TRAIN: BATCHES})["input/slow-sample"]
    assert function == "train.py:words"  # what trains is called once


def test_the_generator_itself_is_not_named() -> None:
    callers = (Place(file=TRAIN, line=14, function="train"),)
    hot = line(10, 6.0, file=TRAIN, function="batches", role="input", callers=callers)
    function, remedies = named(inline(hot), {TRAIN: BATCHES})["input/slow-sample"]
    assert function is None
    assert "memoize" not in remedies


SAMPLES = """
class Images:
    def load(self, path):
        return decode(path)

    def __getitem__(self, i):
        image = self.load(self.paths[i])
        return image{}

def collate(samples):
    return torch.stack([pad(one) for one in samples])

def pad(sample):
    return torch.nn.functional.pad(sample, (0, 4))
"""


LOADING = line(
    4, 7.8, function="Images.load", callers=(Place(file=DATASET, line=7, function="Images.__getitem__"),)
)


def of_loader(after: str, *lines: Any, **fields: Any) -> dict[str, tuple[Any, Any]]:
    fields["dataset"] = {"class": "Images", "len": 3200, "file": DATASET}
    run = input_run(make_s=0.08, busy_s=0.02, lines=lines, **fields)
    return named(run, {DATASET: SAMPLES.format(after)})


def test_below_a_random_sample_its_loading_is_named() -> None:
    found = of_loader("[random.randint(0, 4):]", LOADING)
    assert found["input/slow-sample"][0] == "data.py:Images.load"
    assert "memoize" in found["input/slow-sample"][1]


def test_a_sample_that_draws_nothing_is_left_to_a_cache_of_samples() -> None:
    found = of_loader("", LOADING)
    assert found["input/slow-sample"][0] is None
    assert "memoize" not in found["input/slow-sample"][1]


def test_collate_is_not_named_and_what_it_calls_is() -> None:
    settings = {"collate_fn": "data.collate"}
    calls = (Place(file=DATASET, line=11, function="collate"),)
    inner = line(14, 6.0, function="pad", callers=calls, source="torch.nn.functional.pad(sample, (0, 4))")
    found = of_loader("", inner, collate_s=0.078, settings=settings)
    assert found["input/slow-collate"][0] == "data.py:pad"
    found = of_loader("", line(11, 6.0, function="collate"), collate_s=0.078, settings=settings)
    assert found["input/slow-collate"][0] is None
