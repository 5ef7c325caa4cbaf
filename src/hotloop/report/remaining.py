"""How long the whole training takes, where a run was cut and its configuration says how long it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hotloop.findings import Finding
from hotloop.measure.settings import planned
from hotloop.measure.steps import Steps
from hotloop.record.recording import Process, Recording
from hotloop.units import duration

#: Less than this to go is not worth a line.
_LEAST_S: Final = 60.0


def remaining(
    recording: Recording, process: Process | None, steps: Steps | None, findings: Sequence[Finding]
) -> dict[str, Any] | None:
    """Seconds of the whole as ``planned``, what of them is left, and the whole without the first finding.

    None where the run came to its own end, where its length is not configured, or in more than one way.
    """
    plan = planned(process) if process is not None and _was_cut(recording, process) else None
    if plan is None or steps is None or not steps.num_steps:
        return None
    key, meaning, number = plan
    loader = steps.train_loader()
    if meaning == "max_steps":
        done, whole = steps.num_updates, number
    elif loader is not None and loader.length:
        done, whole = loader.num_batches, number * loader.length
    else:
        return None
    if not done:
        return None
    total_s, left_s = steps.span_s * whole / done, steps.span_s * (whole / done - 1)
    if left_s < _LEAST_S:
        return None
    first = next((one for one in findings if one.severity != "info" and one.cost_s_per_step > 0), None)
    cost_s = first.cost_s_per_step if first is not None else 0.0
    edges = first.cost_ci95 if first is not None else None

    def without(cost_s: float) -> float | None:
        return total_s * (1 - cost_s / steps.step_s) if 0 < cost_s < steps.step_s else None

    return {
        "planned": {key: number},
        "total_s": total_s,
        "left_s": left_s,
        "total_without_first_s": without(cost_s),
        "total_without_first_ci95": [without(edge) for edge in reversed(edges)] if edges else None,
    }


def words(found: dict[str, Any]) -> str:
    """``epochs=100 takes 60 h 0 min at this rate; 22 h 0 min with finding 1 removed``."""
    ((key, number),) = found["planned"].items()
    said = f"{key}={number:,} takes {duration(found['total_s'])} at this rate"
    without = found["total_without_first_s"]
    low, high = found.get("total_without_first_ci95") or (None, None)
    spread = f" (95 %: {duration(low)} to {duration(high)})" if low and high else ""
    return said + (f"; {duration(without)} with finding 1 removed{spread}" if without else "")


def _was_cut(recording: Recording, process: Process) -> bool:
    """Whether it ended for ``--steps``, a signal or Ctrl-C, or goes on."""
    code, reason = recording.exit_code, process.first("exit").get("reason")
    return reason == "steps" or code is None or code > 128 or not recording.complete
