"""How long the whole training takes, where a run was cut and its configuration or a progress bar says it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from hotloop.findings import Finding
from hotloop.measure.places import Places, Stack, places_of
from hotloop.measure.settings import planned
from hotloop.measure.steps import LoaderUse, Steps
from hotloop.record.recording import Process, Recording
from hotloop.source.flow import loops_around
from hotloop.units import duration

#: Less than this to go is not worth a line.
_LEAST_S: Final = 60.0
#: Counts of the same thing differ by no more: a bar may be behind what it counts by what it does not draw.
_NEAR: Final = 0.1
#: Fewer steps than these may be anything.
_FEW: Final = 10


class _Way(NamedTuple):
    """What says how long the training is, by its name; so much of it is done, of the whole."""

    said: dict[str, int]
    done: float
    whole: float


def remaining(
    recording: Recording, process: Process | None, steps: Steps | None, findings: Sequence[Finding]
) -> dict[str, Any] | None:
    """Seconds of the whole as ``planned``, what of them is left, and the whole without the first finding.

    None where the run came to its own end, where its length is not known, or in more than one way.
    """
    if process is None or steps is None or not steps.num_steps or not _was_cut(recording, process):
        return None
    loader = steps.train_loader()
    ways = [way for way in (_configured(process, steps, loader), _of_a_bar(process, steps, loader)) if way]
    if not ways or not all(_near(way.whole / way.done, ways[0].whole / ways[0].done) for way in ways):
        return None
    plan = ways[0]
    total_s, left_s = steps.span_s * plan.whole / plan.done, steps.span_s * (plan.whole / plan.done - 1)
    if left_s < _LEAST_S:
        return None
    first = next((one for one in findings if one.severity != "info"), None)
    if first is not None and first.id.startswith("numerics/"):
        first = None  # to mend it takes no time away
    cost_s = first.cost_s_per_step if first is not None else 0.0
    edges = first.cost_ci95 if first is not None else None

    def without(cost_s: float) -> float | None:
        return total_s * (1 - cost_s / steps.step_s) if 0 < cost_s < steps.step_s else None

    return {
        "planned": plan.said,
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


def _configured(process: Process, steps: Steps, loader: LoaderUse | None) -> _Way | None:
    plan = planned(process)
    if plan is None:
        return None
    key, meaning, number = plan
    if meaning == "max_steps":
        done, whole = steps.num_updates, number
    elif loader is not None and loader.length:
        done, whole = loader.num_batches, number * loader.length
    else:
        return None
    return _Way({key: number}, done, whole) if done else None


def _of_a_bar(process: Process, steps: Steps, loader: LoaderUse | None) -> _Way | None:
    """What the bar says that the script made once and that counts the training's steps, batches or epochs."""
    places = places_of(process)
    batches, passes = (loader.num_batches, loader.num_iterators) if loader is not None else (0, 0)
    found: dict[int, _Way] = {}
    for note in {note["stack"]: note for note in process.notes.get("bar", ())}.values():
        stack, count, total = places.stacks.get(note["stack"]), note["count"], note["total"]
        if stack is None or count >= total or not _made_once(places, stack):  # a full bar is done
            continue
        at = {f"bar at {Path(stack.frames[-1].file).name}:{stack.frames[-1].line}: total": total}
        done = (one for one in (steps.num_updates, steps.num_steps, batches) if _near(count, one))
        if count >= _FEW and (counted := next(done, 0)):
            found[total] = _Way(at, counted, total)
        elif loader is not None and loader.length and passes - 1 <= count <= passes:
            found[total] = _Way(at, batches, total * loader.length)
    return next(iter(found.values())) if len(found) == 1 else None


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= _NEAR * other


def _made_once(places: Places, stack: Stack) -> bool:
    """Whether no loop of the script is around it, and no library between."""
    if not stack.frames or any(not one.startswith(("tqdm.", "rich.")) for one in stack.library):
        return False
    for frame in stack.frames:
        code = places.code(frame.file)
        statements = code.at_line(frame.line) if code is not None else []
        at = (frame.line, frame.col if frame.col >= 0 else sys.maxsize)
        begun = [one for one in statements if (one.lineno, one.col_offset) <= at]
        if code is None or not begun or loops_around(code, begun[-1]):
            return False
    return True


def _was_cut(recording: Recording, process: Process) -> bool:
    """Whether it ended for ``--steps``, a signal or Ctrl-C, or goes on."""
    code, reason = recording.exit_code, process.first("exit").get("reason")
    return reason == "steps" or code is None or code > 128 or not recording.complete
