"""The transfer family: only on an accelerator, only what the device did not hide."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic import DATASET, TRAIN, evidence, line, loader, on_accelerator, steps

from hotloop.diagnose.diagnose import diagnose
from hotloop.findings import Finding, Place
from hotloop.measure.steps import DeviceUse, SiteCost, Steps

MIB = 2**20
PLACE = Place(file=TRAIN, line=44, function="main")


def site(*, count: int = 100, seconds: float = 2.0, num_bytes: int = 3800 * MIB, **flags: float) -> SiteCost:
    return SiteCost(
        place=PLACE,
        operation="host-to-device",
        count=count,
        seconds=seconds,
        num_bytes=num_bytes,
        flags=flags,
    )


def run(*sites: SiteCost, pin_memory: bool = False, idle_s: float | None = None, **fields: Any) -> Steps:
    use = loader(workers=4, make_s=0.02, wait_s=0.0, settings={"pin_memory": pin_memory}, **fields)
    seconds = sum(one.seconds for one in sites)
    made = steps(
        {"transfer": seconds / 100, "forward": 0.02, "backward": 0.02},
        loaders=(use,),
        sites={"transfer": sites},
    )
    idle = seconds if idle_s is None else idle_s
    return on_accelerator(made, device=DeviceUse(busy_ratio=0.6, idle_s_by_phase={"transfer": idle}))


def found(made: Steps, **world: Any) -> dict[str, Finding]:
    return {
        item.id: item
        for item in diagnose(evidence(made, cores=16, **world))
        if item.id.startswith("transfer/")
    }


@pytest.mark.parametrize(
    ("pinned", "non_blocking", "told"),
    [
        (0.0, 0.0, ["transfer/pageable"]),
        (0.0, 1.0, ["transfer/pin-no-effect"]),
        (1.0, 0.0, ["transfer/blocking"]),
        (1.0, 1.0, []),
    ],
)
def test_copies_by_the_memory_they_come_from(pinned: float, non_blocking: float, told: list[str]) -> None:
    asks = bool(pinned or non_blocking)
    findings = found(run(site(pinned=pinned, non_blocking=non_blocking), pin_memory=asks))
    assert list(findings) == told
    for one in findings.values():
        assert (one.cost_s_per_step, one.where) == (pytest.approx(0.02), PLACE)


def test_copies_hidden_behind_the_device_cost_nothing() -> None:
    assert found(run(site(pinned=0.0, non_blocking=0.0), idle_s=0.0)) == {}


def test_many_small_copies() -> None:
    findings = found(run(site(count=5000, num_bytes=5000 * 512, pinned=0.0, non_blocking=0.0)))
    assert set(findings) == {"transfer/many-small"}
    assert findings["transfer/many-small"].data["copies_per_step"] == pytest.approx(50)


def test_copies_back_to_the_host_are_not_batches() -> None:
    back = SiteCost(
        place=PLACE,
        operation="device-to-host",
        count=5000,
        seconds=2.0,
        num_bytes=3800 * MIB,
        flags={"pinned": 0.0},
    )
    assert found(run(back)) == {}


FIELDS = (
    {"path": "0", "dtype": "float32", "shape": [64, 3, 224, 224], "bytes": 38 * MIB},
    {"path": "1", "dtype": "int64", "shape": [64], "bytes": 512},
)
DATA = """class Windows:
    def __getitem__(self, i):
        return {}, self.labels[i]
"""
WIDENS = DATA.format("torch.from_numpy(self.images[i]).float() / 255")
FLOATS = DATA.format("torch.from_numpy(self.fields[i])")


@pytest.mark.parametrize(("text", "speaks"), [(WIDENS, True), (FLOATS, False)])
def test_bytes_shipped_as_floats(text: str, speaks: bool) -> None:
    made = run(site(pinned=1.0, non_blocking=1.0), pin_memory=True, batch_fields=FIELDS, lines=[line(3, 1.0)])
    findings = found(made, sources={DATASET: text})
    assert ("transfer/oversized-dtype" in findings) is speaks
    if speaks:
        assert findings["transfer/oversized-dtype"].cost_s_per_step == pytest.approx(0.02 * 0.75, rel=0.01)


def test_on_a_cpu_nothing_is_said_about_copies() -> None:
    made = steps({"transfer": 0.02, "forward": 0.02}, sites={"transfer": (site(pinned=0.0),)})
    assert found(made) == {}
