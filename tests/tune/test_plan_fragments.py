"""A plan's settings as each kind of configuration spells them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hotloop.findings import Place
from hotloop.measure.steps import Configured, LoaderUse, Setting, Steps
from hotloop.phases import PHASES
from hotloop.remedy import catalogue
from hotloop.tune.plans.fragments import Fragment, fragments


def steps(*settings: Setting) -> Steps:
    return Steps(
        rank=0, pid=1, start_s=np.zeros(0), end_s=np.zeros(0), phases=np.zeros((0, len(PHASES))),
        samples=np.zeros(0), steady=np.zeros(0, np.bool_), totals={}, span_totals={}, wall_s=0.0,
        span=(0.0, 0.0), settings=settings,
    )  # fmt: skip


def configured(
    source: str, key: str, where: str, value: Any = 2, name: str = "num_workers", **more: Any
) -> Setting:
    one = Configured(source=source, key=key, value=value, where=where)
    return Setting(name=name, **{"in_effect": value, "configured": value, "sources": (one,), **more})


def only(settings: dict[str, Any], *known: Setting) -> Fragment:
    (fragment,) = fragments(settings, (), steps(*known))
    return fragment


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("yaml", "data.num_workers: 6\ndata.pin_memory: true"),
        ("json", "data.num_workers: 6\ndata.pin_memory: true"),
        ("toml", "data.num_workers = 6\ndata.pin_memory = true"),
        ("python", "data.num_workers = 6\ndata.pin_memory = True"),
    ],
)
def test_keys_of_files_are_spelled_as_the_file_has_them(source: str, text: str) -> None:
    known = (
        configured(source, "data.num_workers", f"conf/a.{source}:3"),
        configured(source, "data.pin_memory", f"conf/a.{source}:4", False, "pin_memory"),
    )
    fragment = only({"num_workers": 6, "pin_memory": True}, *known)
    assert (fragment.format, fragment.where, fragment.text) == (source, f"conf/a.{source}", text)


def test_options_are_given_on_the_command_line() -> None:
    known = (
        configured("argparse", "dataloader_workers", "--dataloader_workers"),
        configured("argparse", "persistent", "--persistent", False, "persistent_workers"),
    )
    fragment = only({"num_workers": 6, "persistent_workers": True}, *known)
    assert fragment.text == "--dataloader_workers 6 --persistent"
    assert only({"num_workers": 6}, configured("hydra", "data.num_workers", "data.num_workers")).text == (
        "data.num_workers=6"
    )


def test_a_number_for_all_ranks_stays_one() -> None:
    known = configured("yaml", "TOTAL_WORKERS", "a.yaml:1", 12, in_effect=4)
    assert only({"num_workers": 6}, known).text == "TOTAL_WORKERS: 18"


def test_what_the_code_ignores_is_written_into_the_code() -> None:
    ignored = configured("yaml", "num_workers", "a.yaml:1", 24, in_effect=2, differs=True)
    fragment = only({"num_workers": 6, "prefetch_factor": 4}, ignored)
    assert fragment.format == "code"
    assert fragment.text == "DataLoader(..., num_workers=6, prefetch_factor=4)"


def loader(number: int, role: Any, workers: int, *given: str, line: int = 7) -> LoaderUse:
    return LoaderUse(
        id=number, role=role, where=Place(file="data.py", line=line), dataset={}, num_batches=10,
        settings={"num_workers": workers, "given": ["num_workers", *given]},
    )  # fmt: skip


KEPT = {"num_workers": 6, "persistent_workers": True}


def test_a_call_that_builds_a_loader_without_workers_too_is_given_nothing_that_it_refuses() -> None:
    both = replace(steps(), loaders=(loader(1, "train", 2), loader(2, "evaluation", 0)))
    code, words = fragments(KEPT, (), both)
    assert code.text == "DataLoader(..., num_workers=6)"
    assert (words.where, words.format) == ("data.py:7", "words")
    assert words.text.startswith("persistent_workers=True where num_workers > 0: the same call")
    apart = replace(both, loaders=(both.loaders[0], loader(2, "evaluation", 0, line=9)))
    assert [one.text for one in fragments(KEPT, (), apart)] == [
        "DataLoader(..., num_workers=6, persistent_workers=True)"
    ]
    # Neither had workers: the number that the call is given is both loaders'.
    alike = replace(both, loaders=(loader(1, "train", 0), loader(2, "evaluation", 0)))
    assert [one.format for one in fragments(KEPT, (), alike)] == ["code"]


def test_a_remedy_that_is_a_switch_is_a_key_and_others_are_words() -> None:
    amp = configured("yaml", "train.amp", "a.yaml:7", False, "amp")
    applied = [catalogue.parse("autocast-bf16"), catalogue.parse("cache-samples=2GiB")]
    found = fragments({}, applied, steps(amp))
    assert [one.format for one in found] == ["yaml", "words"]
    assert found[0].text == "train.amp: true"
    assert "feed.cached(" in found[1].text


def test_of_several_loaders_the_one_that_is_waited_for_is_named() -> None:
    driving, waited = (
        LoaderUse(
            id=number, role="train", where=Place(file="a.py", line=line, function="main"),
            settings={"num_workers": 0}, dataset={}, num_batches=9, wait_s=np.full(9, 0.01 * number),
        )
        for number, line in ((1, 29), (2, 30))
    )  # fmt: skip
    known = configured("yaml", "data.num_workers", "conf/a.yaml:3", 0)
    run = replace(steps(known), loaders=(driving, waited))
    (fragment,) = fragments({"num_workers": 2}, (), run)
    assert (fragment.format, fragment.where.rpartition("/")[2]) == ("code", "a.py:30")
