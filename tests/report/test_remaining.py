"""How long the whole training takes: only of a run that was cut, and whose length is configured once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.report.report_samples import findings, process, recording, steps

from hotloop.measure.steps import LoaderUse
from hotloop.report.remaining import remaining, words

LOADER = LoaderUse(id=1, role="train", where=None, settings={}, dataset={}, length=300, num_batches=1200)


def config(key: str, meaning: str, value: int, *, given: bool = False) -> dict[str, Any]:
    return {
        "note": "config", "source": "argparse", "key": key, "meaning": meaning, "value": value, "given": given
    }  # fmt: skip


def found(*configs: dict[str, Any], code: int = 130) -> dict[str, Any] | None:
    one = process(num_workers=0)
    one = replace(one, notes={**one.notes, "config": list(configs)})
    return remaining(recording(1, exit_code=code), one, steps(loaders=(LOADER,)), findings())


def test_epochs_and_steps_are_extrapolated_at_the_rate_of_the_run() -> None:
    span_s, first = steps().span_s, findings()[0]
    kept = 1 - first.cost_s_per_step / steps().step_s
    epochs = found(config("epochs", "epochs", 10), config("epochs", "epochs", 400, given=True))
    assert epochs is not None and epochs["planned"] == {"epochs": 400}
    assert epochs["total_s"] == pytest.approx(span_s * 400 * 300 / 1200)
    assert epochs["left_s"] == pytest.approx(epochs["total_s"] - span_s)
    assert epochs["total_without_first_s"] == pytest.approx(epochs["total_s"] * kept)
    updates = found(config("train.max_steps", "max_steps", 120_000), config("epochs", "epochs", -1))
    assert updates is not None and updates["planned"] == {"max_steps": 120_000}
    assert updates["total_s"] == pytest.approx(span_s * 100)
    assert words(updates | {"total_s": 216_000.0, "total_without_first_s": 79_200.0}) == (
        "max_steps=120,000 takes 60 h 0 min at this rate; 22 h 0 min with finding 1 removed "
        "(95 %: 1 h 20 min to 1 h 28 min)"
    )


def test_nothing_is_said_where_the_whole_is_not_known() -> None:
    epochs = config("epochs", "epochs", 400)
    assert found(epochs, code=0) is None, "it came to its own end"
    assert found(epochs, code=1) is None, "it failed"
    assert found(epochs, config("max_steps", "max_steps", 9_000)) is None, "said in two ways"
    assert found(config("eval.epochs", "epochs", 400)) is None, "of something else"
    assert found(config("epochs", "epochs", 4)) is None, "all of it was done"
    assert found() is None
