"""What a viewer in the loop asks the model for is the viewer's, not the step's."""

from __future__ import annotations

from textwrap import dedent

import pytest
from tests.scenarios.builder import Script

from hotloop.measure import measure
from hotloop.record import rows as row

SOURCE = dedent("""
    def poll(server, field, grid):
        ready, _, _ = select.select([server], [], [], 0)  # poll
        with torch.no_grad():
            image = field(grid)  # render
        return image

    for step in range(99):  # loop
        x, y = batch()
        with torch.no_grad():
            soft = teacher(x)  # teacher
        loss = criterion(field(x), soft)  # forward
        loss.backward()  # backward
        optimizer.step()  # update
        poll(server, field, grid)  # viewer
    """)


def rendered(polled: bool):
    run = Script(SOURCE)
    for _ in range(40):
        with run.at("teacher"):
            run.forward(5, module=2, grad=False)
        with run.at("forward"):
            run.forward(3)
        with run.at("backward"):
            run.backward(4)
        with run.at("update"):
            run.update(1)
        if polled:
            with run.at("viewer", "poll"):
                run.call(row.SOCKET, 0.1)
        with run.at("viewer", "render"):
            run.forward(9, grad=False)
    return measure(run.process(), {}).span_totals


def test_what_a_viewer_renders_with_the_model_is_no_forward_of_training():
    totals = rendered(polled=True)
    assert totals["forward"] == pytest.approx(40 * 0.008, rel=0.1)
    assert totals["other"] == pytest.approx(40 * 0.0091, rel=0.1)


def test_what_no_socket_is_served_with_stays_forward():
    assert rendered(polled=False)["forward"] == pytest.approx(40 * 0.017, rel=0.1)
