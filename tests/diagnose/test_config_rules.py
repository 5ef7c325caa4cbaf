"""The config family: what was written down against what was in effect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from synthetic import TRAIN, evidence, found, loader, on_accelerator, steps

from hotloop.diagnose.diagnose import diagnose
from hotloop.findings import Place
from hotloop.measure.steps import Configured, Setting, Steps

MODEL = {"forward": 0.02, "backward": 0.03}


def setting(name: str, configured: Any, in_effect: Any, where: str = "configs/a.yaml:12") -> Setting:
    return Setting(name=name, configured=configured, in_effect=in_effect, where=where, differs=True)


def waiting(workers: int, *, busy: float = 0.98, **fields: Any) -> Steps:
    """A run that waits as long for data as it computes; its workers make batches this share of the time."""
    use = loader(workers=workers, wait_s=0.05, make_s=busy * workers * 0.1, busy_ratio=busy)
    return steps({**MODEL, "data_wait": 0.05}, loaders=(use,), **fields)


# ignored-value


def test_an_ignored_number_of_workers_costs_what_the_missing_ones_would_save() -> None:
    measured = waiting(2, settings=(setting("num_workers", 24, 2),))
    item = found(measured, cores=32)["config/ignored-value"]
    assert item.cost_s_per_step == pytest.approx(0.05, rel=0.05)  # 24 workers hide all of the waiting
    assert item.where == Place(file="configs/a.yaml", line=12)
    assert "24" in item.message and "2 is in effect" in item.message
    assert "train.py:30" in item.message


@pytest.mark.parametrize(("busy", "cores"), [(0.98, 2), (0.1, 32)])
def test_workers_without_a_core_or_work_save_nothing(busy: float, cores: int) -> None:
    measured = waiting(2, busy=busy, settings=(setting("num_workers", 24, 2),))
    item = found(measured, cores=cores)["config/ignored-value"]
    assert (item.cost_s_per_step, item.severity) == (0, "info")


def test_a_run_that_does_not_wait_hears_it_as_information() -> None:
    measured = steps(MODEL, loaders=(loader(workers=2),), settings=(setting("num_workers", 24, 2),))
    assert found(measured, cores=32)["config/ignored-value"].severity == "info"


def test_a_default_that_nobody_gave_is_not_ignored() -> None:
    default = Configured(source="argparse", key="workers", value=24, where="--workers", default=True)
    given = Configured(source="yaml", key="workers", value=24, where="configs/a.yaml:12")
    for sources, speaks in (((default,), False), ((default, given), True)):
        measured = waiting(2, settings=(replace(setting("num_workers", 24, 2), sources=sources),))
        assert ("config/ignored-value" in found(measured, cores=32)) is speaks


def test_pinning_is_no_advice_for_a_cpu() -> None:
    measured = steps(MODEL, loaders=(loader(),), settings=(setting("pin_memory", True, False),))
    assert found(measured) == {}
    assert "config/ignored-value" in found(on_accelerator(measured))


# the others


def test_a_flag_that_something_overrode() -> None:
    settings = (setting("cudnn_benchmark", True, False), setting("compile", True, False, "--compile"))
    items = [
        i
        for i in diagnose(evidence(on_accelerator(steps(MODEL, settings=settings))))
        if i.id == "config/overridden-flag"
    ]
    assert len(items) == 2
    on_cpu = [
        i for i in diagnose(evidence(steps(MODEL, settings=settings))) if i.id == "config/overridden-flag"
    ]
    assert [item.data["setting"] for item in on_cpu] == ["compile"]
    assert all(item.severity == "info" for item in items)


@pytest.mark.parametrize(("seen", "told"), [(1.0, True), (4.0, False), (2.5, False)])
def test_accumulation_is_compared_with_updates(seen: float, told: bool) -> None:
    measured = steps(MODEL, backwards_per_update=seen, settings=(setting("gradient_accumulation", 4, 1),))
    assert ("config/accumulation-mismatch" in found(measured)) is told
    assert "config/accumulation-mismatch" not in found(steps(MODEL, backwards_per_update=seen))


def test_no_loader_no_verdict() -> None:
    assert found(steps(MODEL, settings=(setting("num_workers", 24, 2),))) == {}


def test_the_train_loader_is_the_one_compared() -> None:
    other = Place(file=TRAIN, line=99)
    measured = steps(
        MODEL,
        loaders=(loader(workers=2), loader(role="evaluation", where=other)),
        settings=(setting("num_workers", 4, 2),),
    )
    assert "train.py:30" in found(measured)["config/ignored-value"].message
