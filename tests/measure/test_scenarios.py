"""Every named scenario is measured as it was built."""

from __future__ import annotations

import pytest
from tests.measure.test_properties import holds
from tests.scenarios.loops import SCENARIOS

from hotloop.measure.measure import measure


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
    holds(steps)
    assert steps.unaccounted_s <= 0.02
