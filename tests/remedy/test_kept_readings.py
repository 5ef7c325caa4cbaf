"""``keep-results``: where a function reads more than it is given, or gives what others hold, too."""

from __future__ import annotations

import os
import random
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.remedy.test_live_forms import Context

from hotloop.remedy.live import keeping
from hotloop.remedy.live.keeping import KeepResults
from hotloop.remedy.live.reads import Reads

sys.path.insert(0, str(Path(__file__).parent))
from keeping_scripts import HEAD, LOOP, SCRIPTS


@pytest.mark.parametrize("name", SCRIPTS)
def test_values_are_those_of_the_function(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_TIMED", -1)  # these take no time
    monkeypatch.setattr(sys, "path", sys.path)
    assert _run(name, tmp_path, monkeypatch, kept=True) == _run(name, tmp_path, monkeypatch, kept=False)


def _run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, kept: bool) -> Any:
    function, text, epoch, body = SCRIPTS[name]
    module = types.ModuleType("readings")
    module.__file__ = str(folder / "readings.py")
    monkeypatch.setitem(sys.modules, "readings", module)
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    exec(compile(HEAD + text + LOOP.format(epoch=epoch, body=body), module.__file__, "exec"), vars(module))
    context: Any = Context()
    form = KeepResults(context, f"readings.py:{function}")
    begins = (lambda: form._prepare(loader)) if kept else (lambda: None)
    if kept:
        form.install()
        context.update()
    loader = types.SimpleNamespace(num_workers=0)
    try:
        found = _told(vars(module)["run"](begins))
    finally:
        context.hooks.undo()
    assert not context.errors
    assert bool(form._calls) is kept
    return found


def _told(value: Any) -> Any:
    if isinstance(value, torch.Tensor | np.ndarray):
        return type(value), str(value.dtype), value.tolist()
    return [type(value), *map(_told, value)] if isinstance(value, list | tuple) else repr(value)


def unseeded(number: int) -> float:
    return number + float(np.random.default_rng().random() < 0.01)


def seeded(number: int) -> float:
    return float(np.random.default_rng(number).random())


def secret(number: int) -> float:
    import secrets

    return number + secrets.randbelow(2)


def by_process(number: int) -> int:
    return number + of_process()


def of_process() -> int:
    return os.getpid()


def test_what_a_helper_asks_of_its_process_is_told_by_the_code() -> None:
    with pytest.raises(keeping.Unfit, match=r"of_process calls getpid\(\)"):
        list(Reads(by_process).around())


@pytest.mark.parametrize(("function", "drawn"), [(unseeded, True), (seeded, False), (secret, True)])
def test_draws_that_no_state_shows_are_told_by_the_code(function: Any, drawn: bool) -> None:
    if not drawn:
        assert next(iter(Reads(function).around())) == ""
        return
    with pytest.raises(keeping.Unfit, match="draws random numbers"):
        list(Reads(function).around())
