"""What a viewer in the loop asks the model for: an image, which nothing is trained on."""

from __future__ import annotations

import numpy as np

from hotloop.measure.loop import Loop
from hotloop.measure.places import Frame
from hotloop.measure.spans import Bools, Spans
from hotloop.measure.ways import Ways
from hotloop.record import rows as row


def shown(spans: Spans, rows: Bools, ways: Ways, loop: Loop) -> Bools:
    """Those of the rows, forwards without gradients, that a statement of the loop has made which serves a
    socket and trains nothing.
    """
    result = np.zeros(len(spans), np.bool_)
    served = spans.kind == row.SOCKET
    if not rows.any() or not served.any():
        return result
    grad = (spans.kind == row.FORWARD) & ((spans.flags & row.FORWARD_GRAD) != 0)
    trains = grad | (spans.kind == row.BACKWARD) | (spans.kind == row.OPTIMIZER)
    viewing = _statements(spans, served, ways, loop) - _statements(spans, trains, ways, loop)
    for site in np.unique(spans.site[rows]):
        mine = rows & (spans.site == site)
        statements = _statements(spans, mine, ways, loop)
        if statements and statements <= viewing:
            result |= mine
    return result


def _statements(spans: Spans, rows: Bools, ways: Ways, loop: Loop) -> set[Frame]:
    """The statements of the loop that led to these rows."""
    stacks = ways.of(np.unique(spans.site[rows]).tolist(), rows)
    return {called[0] for stack in stacks if (called := loop.statement(stack)) is not None}
