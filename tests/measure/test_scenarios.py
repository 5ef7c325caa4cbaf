"""Every named scenario is measured as it was built."""

from __future__ import annotations

import numpy as np
import pytest
from tests.scenarios.loops import SCENARIOS

from hotloop.measure import measure


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_is_measured_as_built(name):
    scenario = SCENARIOS[name]()
    steps = measure(scenario.process)
    assert steps.num_steps == scenario.num_steps
    assert len(steps.evaluations) == scenario.num_evaluations
    if scenario.num_updates is not None:
        assert steps.num_updates == scenario.num_updates
    for phase, milliseconds in scenario.span_ms.items():
        assert steps.span_totals[phase] * 1e3 == pytest.approx(milliseconds, rel=0.06, abs=2), phase


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_second_is_in_one_phase(name):
    steps = measure(SCENARIOS[name]().process)
    assert (steps.phases >= 0).all()
    np.testing.assert_allclose(steps.phases.sum(axis=1), steps.end_s - steps.start_s, rtol=1e-9, atol=1e-12)
    assert sum(steps.totals.values()) + steps.unaccounted_s == pytest.approx(steps.wall_s, rel=1e-9)
    assert sum(steps.span_totals.values()) == pytest.approx(steps.span_s, rel=1e-9)
    assert steps.unaccounted_s <= 0.02
