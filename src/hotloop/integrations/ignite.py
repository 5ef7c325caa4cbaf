"""``attach(trainer)`` of Ignite."""

from __future__ import annotations

from typing import Any

from ignite.engine import Events

from hotloop.integrations.marks import Marks, verdict


def attach(trainer: Any) -> None:
    """Mark every iteration of a training engine; at the end give the verdict to its logger."""
    marks = Marks()
    trainer.add_event_handler(Events.ITERATION_STARTED, lambda engine: marks.begin(engine.state.batch))
    trainer.add_event_handler(Events.ITERATION_COMPLETED, marks.end)
    trainer.add_event_handler(Events.COMPLETED, _conclude)


def _conclude(engine: Any) -> None:
    found = verdict()
    if found is not None:
        engine.logger.info(found.words)
        engine.state.hotloop = found
