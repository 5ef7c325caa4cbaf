"""Environments that the training loop itself steps: a policy acts, a simulation answers.

What comes next depends on the policy's answer, so none of it can be made ahead as batches can.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.source import line_text
from hotloop.findings import Place
from hotloop.measure.steps import LineCost

ADVICE = (
    "What comes next depends on the policy's answer, so no loader can make it ahead: step many environments "
    "at once (on arrays, or each in a process of its own), or make the environment's own step cheaper."
)

#: ``obs, reward, done, info = env.step(action)``; an optimizer's or a scheduler's step gives nothing back.
_STEP = re.compile(r"^(?P<made>[\w.\[\], ()*:]+?)\s*=\s*(await\s+)?(?P<of>[\w.\[\]]+)\.step\(\s*[^\s)]")
_ENVIRONMENT = re.compile(r"(^|[._])(env|environment|sim|simulat(or|ion)|game)s?(\[\w*\])?$", re.I)
#: What an environment gives besides what is seen: two of them make one, whatever it is called.
_ANSWERS = re.compile(r"\b(r|rews?|rewards?|d|dones?|terminat\w+|terms?|truncat\w+|truncs?|infos?)\b", re.I)
#: The environment is what a piece of work is about when this much of it is below its step.
_MOSTLY = 0.5


@dataclass(frozen=True, kw_only=True)
class Stepping:
    """The line that steps an environment, the sampled lines below it, and their share of the lines given."""

    place: Place
    lines: tuple[LineCost, ...]
    share: float


def stepping(evidence: Evidence, lines: Sequence[LineCost]) -> Stepping | None:
    """The environment's step that most of these lines' time was spent in; None where there is no such."""
    below: dict[Place, list[LineCost]] = {}
    for line in lines:
        place = _stepped_at(evidence, line)
        if place is not None:
            below.setdefault(place, []).append(line)
    if not below:
        return None
    place = max(below, key=lambda one: sum(line.seconds for line in below[one]))
    share = sum(line.seconds for line in below[place]) / sum(line.seconds for line in lines)
    return Stepping(place=place, lines=tuple(below[place]), share=share) if share >= _MOSTLY else None


def _stepped_at(evidence: Evidence, line: LineCost) -> Place | None:
    """The nearest line above a sampled one, or itself, that steps an environment."""
    for place in (line.place, *line.callers, *([line.statement] if line.statement else [])):
        found = _STEP.match(line_text(evidence, place))
        if found is None:
            continue
        if len(_ANSWERS.findall(found["made"])) >= 2 or _ENVIRONMENT.search(found["of"]):
            return place
    return None
