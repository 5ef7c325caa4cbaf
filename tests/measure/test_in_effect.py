"""What decided a setting: where an argument was written, what a key is compared with, which value counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.running import run_observed, succeeded
from tests.scenarios.builder import Script
from tests.scenarios.loops import PLAIN

from hotloop.measure.places import places_of
from hotloop.measure.settings import same, settings_of
from hotloop.measure.steps import LoaderUse
from hotloop.source.code import Code, code_of
from hotloop.source.written import Call, loader_argument, never_equal

LOADERS = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

WORKERS = 1
data = TensorDataset(torch.zeros(4, 1))


def literal():
    return DataLoader(
        data,
        num_workers=1,
    )


def positional():
    return DataLoader(data, 2, False, None, None, 1)


def constant():
    return DataLoader(data, num_workers=WORKERS)


def local():
    count = 1
    return DataLoader(data, num_workers=count)


def loop():
    for count in (0, 1):
        found = DataLoader(data, num_workers=count)
    return found


def expression(cores=4):
    return DataLoader(data, num_workers=max(1, cores // 8))


def parameter(num_workers=0):
    return DataLoader(data, num_workers=num_workers)


def default(num_workers=1):
    return DataLoader(data, num_workers=num_workers)


def missing():
    return DataLoader(data, batch_size=2)


def options():
    given = dict(batch_size=2, num_workers=1)
    return DataLoader(data, **given)


def keywords(**kwargs):
    return DataLoader(data, **kwargs)


class Maker:
    def make(self, workers):
        return DataLoader(data, num_workers=workers)


def by_library():
    import functools

    loader_cls = functools.partial(DataLoader, num_workers=1)
    return loader_cls(data)


class Own(DataLoader):
    def __init__(self):
        super().__init__(data, num_workers=1)


def comprehension():
    return [DataLoader(data, num_workers=n) for n in (1,)][0]


literal(); positional(); constant(); local(); loop(); expression(); parameter(num_workers=1)
default(); missing(); options(); keywords(batch_size=2, num_workers=1); Maker().make(1); comprehension()
by_library(); Own()
parameter(
    1,
)
"""

WRITTEN = {
    "literal": (11, "num_workers=1", 1),
    "positional": (16, "num_workers=1", 1),
    "constant": (4, "WORKERS=1", 1),
    "local": (24, "count=1", 1),
    "loop": (30, "num_workers=count", None),
    "expression": (35, "num_workers=max(1, cores // 8)", None),
    "parameter": (80, "num_workers=1", 1),
    "default": (42, "num_workers=1 is the default of default()", 1),
    "missing": (47, "num_workers is not passed", 0),
    "options": (51, "num_workers=1", 1),
    "keywords": (81, "num_workers=1", 1),
    "make": (81, "workers=1", 1),
    "by_library": None,
    "<module>": None,  # a subclass that passes arguments on: not followed
    "comprehension": (77, "num_workers=n", None),
}


def test_an_argument_is_followed_to_where_it_was_written(tmp_path: Path) -> None:
    observed = succeeded(run_observed(LOADERS, folder=tmp_path))
    process = Script(PLAIN).process()
    object.__setattr__(process, "notes", observed.notes)
    places = places_of(process)
    found: dict[str, Any] = {}
    for note in observed.notes["loader"]:
        frames = [
            Call(f.file, f.line, f.func, f.func_line, f.col) for f in places.sites[note["where"]].frames
        ]
        written = loader_argument({str(tmp_path / "train.py"): LOADERS}, frames, "num_workers")
        name = frames[-1].func.rpartition(".")[2]
        found.setdefault(name, (written.line, written.text, written.value) if written else None)
    assert found == WRITTEN


COMPARED = {
    "cfg.amp == 'bf16'": "compares amp with 'bf16'",
    "cfg['train']['amp'] in ('fp16', 'bf16')": "compares amp with 'fp16' or 'bf16'",
    "cfg.get('amp', None).lower() == 'bf16'": "compares amp with 'bf16'",
    "print(cfg.amp) or f'{cfg.amp}' if cfg.amp == 'bf16' else 0": "compares amp with 'bf16'",
    "cfg.amp == 'bf16' or cfg.amp": None,  # on by being true
    "cfg.amp == True": None,
    "cfg.amp in (True, 'bf16')": None,
    "cfg.amp != 'bf16'": None,
    "torch.autocast('cuda', enabled=cfg.amp)": None,
    "cfg.lamp == 'bf16'": None,
}


def code(text: str) -> Code:
    found = code_of(text)
    assert found is not None
    return found


@pytest.mark.parametrize(("expression", "words"), COMPARED.items())
def test_a_key_that_can_never_equal_what_it_is_compared_with(expression: str, words: str | None) -> None:
    found = never_equal({"engine.py": code(f"x = {expression}")}, "amp", True)
    assert (found.text if found else None) == words


@pytest.mark.parametrize(
    ("configured", "in_effect", "alike"),
    [
        ("4", 4, True), (24, 2, False), ("true", True, True), ("0", False, True), ("1e-3", 0.001, True),
        (None, 3, False), ("bf16", "fp16", False), ("BF16", "bf16", True), (1, True, True),
        ([1, 2], [1, 2], True),
    ],
)  # fmt: skip
def test_values_are_the_same_where_their_meaning_is(configured: Any, in_effect: Any, alike: bool) -> None:
    assert same(configured, in_effect) is alike


def yaml(value: Any, key: str = "data.num_workers", file: str = "/a.yaml") -> dict[str, Any]:
    return {"source": "yaml", "file": file, "line": 3, "key": key, "meaning": "num_workers", "value": value}


def composed(value: Any) -> dict[str, Any]:
    return {"source": "hydra", "key": "data.num_workers", "meaning": "num_workers", "value": value}


def argument(value: Any, given: bool) -> dict[str, Any]:
    option = {"source": "argparse", "key": "workers", "option": "--workers", "meaning": "num_workers"}
    return {**option, "value": value, "given": given}


@pytest.mark.parametrize(
    ("notes", "in_effect", "configured", "differs", "replaced"),
    [
        ([yaml(24)], 2, 24, True, [True]),
        ([yaml(24), argument(2, True)], 2, 2, False, [True, False]),
        ([yaml(24), argument(8, True)], 2, 8, True, [True, True]),
        ([yaml(24), yaml(12, file="/b.yaml"), composed(12)], 2, 12, True, [True, True]),
        ([yaml(24), composed(12)], 12, 12, False, [True, False]),
        ([yaml(4), yaml(8, file="/b.yaml")], 8, 8, False, [True, False]),
        ([yaml(4), yaml(8, file="/b.yaml")], 2, 8, True, [True, True]),
        ([yaml(4), yaml(8, key="other.num_workers")], 2, None, False, []),  # one of them means another thing
        ([yaml(24, key="download.num_workers")], 2, None, False, []),
        ([argument(4, False)], 4, 4, False, [False]),
    ],
)
def test_which_configured_value_counts(
    notes: list[dict[str, Any]], in_effect: int, configured: Any, differs: bool, replaced: list[bool]
) -> None:
    run = Script(PLAIN)
    for note in notes:
        run.note("config", **note)
    run.note("loader", id=1, where=0, num_workers=in_effect)
    process = run.process()
    loader = LoaderUse(id=1, role="train", where=None, settings={"num_workers": in_effect}, dataset={})
    found = next(s for s in settings_of(process, loader, {}, 1.0) if s.name == "num_workers")
    assert (found.configured, found.differs) == (configured, differs)
    assert [source.differs for source in found.sources] == replaced


@pytest.mark.parametrize(("rows", "differs"), [(128, False), (64, True)])
def test_a_dataset_that_makes_whole_batches_has_their_size_in_effect(rows: int, differs: bool) -> None:
    run = Script(PLAIN)
    run.note("config", **(argument(128, True) | {"key": "batch", "meaning": "batch_size"}))
    fields = ({"path": "0", "shape": []}, {"path": "1", "shape": [rows, 13]})
    settings = {"batch_size": 1}
    loader = LoaderUse(id=1, role="train", where=None, settings=settings, dataset={}, batch_fields=fields)
    found = next(s for s in settings_of(run.process(), loader, {}, 1.0) if s.name == "batch_size")
    assert found.differs is differs


@pytest.mark.parametrize("accelerator", [False, True])
def test_pinned_memory_is_ignored_only_beside_a_device(accelerator: bool) -> None:
    run = Script(PLAIN)
    run.note("config", **(argument(True, True) | {"key": "pin", "meaning": "pin_memory"}))
    loader = LoaderUse(id=1, role="train", where=None, settings={"pin_memory": False}, dataset={})
    found = settings_of(run.process(), loader, {"accelerator": accelerator}, 1.0)
    assert next(s for s in found if s.name == "pin_memory").differs is accelerator


@pytest.mark.parametrize(("reader", "said"), [("/train.py:9", [0.1, 8]), ("/vocoder.py:5", [0.1])])
def test_a_file_that_other_code_reads_configures_something_else(reader: str, said: list[float]) -> None:
    run = Script(PLAIN)
    named = {"source": "yaml", "file": "/c.yaml", "reader": "/train.py:4", "meaning": "lr", "value": 0.1}
    other = named | {"file": "/v.json", "reader": reader, "meaning": "num_workers", "value": 8}
    run.notes |= {"process": [{"argv": ["--config=c.yaml"]}], "config": [named, other]}
    assert [s.configured for s in settings_of(run.process(), None, {}, 1.0) if s.configured] == said
