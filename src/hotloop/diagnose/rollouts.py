"""Environments that the training loop itself steps: a policy acts, a simulation answers.

What comes next depends on the policy's answer, so none of it can be made ahead as batches can.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.groups import seconds_of
from hotloop.diagnose.source import line_text, loops_around, sources
from hotloop.findings import Place
from hotloop.measure.environments import steps_environment as stepped
from hotloop.measure.steps import LineCost

ADVICE = (
    "What comes next depends on the policy's answer, so no loader can make it ahead: step more environments "
    "at once (on arrays, or each in a process of its own) and ask the policy for all of them in one call."
)

_NAMED = re.compile(r"(?P<names>[\w, ()]+?)\s*=(?!=)")

#: A rollout is what a piece of work is about when it takes this much of it.
_MOSTLY = 0.5


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """Where an environment is stepped, and sampled lines: below that step, and beside it in the same loop,
    where the policy is asked. Shares are of the lines given.
    """

    place: Place
    inside: tuple[LineCost, ...]
    asking: tuple[LineCost, ...]
    inside_share: float
    asking_share: float

    @property
    def in_environment(self) -> bool:
        """Whether the environment takes more of it than asking the policy."""
        return self.inside_share >= self.asking_share


def rollout(evidence: Evidence, lines: Sequence[LineCost]) -> Rollout | None:
    """The rollout that most of these lines' time goes to; None where it is no rollout."""
    inside: dict[Place, list[LineCost]] = {}
    asking: dict[Place, list[LineCost]] = {}
    for line in lines:
        place = _stepped_at(evidence, line)
        if place is not None:
            inside.setdefault(place, []).append(line)
        elif (place := _stepped_beside(evidence, line)) is not None:
            asking.setdefault(place, []).append(line)
    total = seconds_of(lines)
    if not total or not (inside or asking):
        return None
    place = max(inside or asking, key=lambda one: seconds_of((inside or asking)[one]))
    below, beside = tuple(inside.get(place, ())), tuple(asking.get(place, ()))
    shares = seconds_of(below) / total, seconds_of(beside) / total
    if sum(shares) < _MOSTLY:
        return None
    return Rollout(place=place, inside=below, asking=beside, inside_share=shares[0], asking_share=shares[1])


def steps_environment(evidence: Evidence) -> bool:
    """Whether a line of the user's code that this run went through steps an environment."""
    lines = (line for text in sources(evidence).values() for line in text.splitlines() if ".step(" in line)
    return any(stepped(line.strip()) for line in lines)


def _hands_over(text: str, step: str) -> bool:
    """Whether a line gives a name to what another one hands to an environment."""
    names = _NAMED.match(text.strip())
    given = step.partition(".step(")[2]
    return names is not None and any(
        re.search(rf"\b{name}\b", given) for name in re.findall(r"\w+", names["names"])
    )


def _stepped_at(evidence: Evidence, line: LineCost) -> Place | None:
    """The outermost line above a sampled one, or itself, that steps an environment: below it are wrappers."""
    places = (*([line.statement] if line.statement else []), *reversed(line.callers), line.place)
    return next((place for place in places if stepped(line_text(evidence, place))), None)


def _stepped_beside(evidence: Evidence, line: LineCost) -> Place | None:
    """The line that steps an environment in a loop around a sampled line, or around a call of its function.
    In the training loop itself much else happens: there it is given what the sampled line makes.
    """
    driven = evidence.steps.source_loop
    if driven is None:
        return None
    for place in (line.place, *line.callers):
        for loop in loops_around(evidence, place):
            trains = (place.file, loop.line) == (driven.file, driven.line)
            for number, text in enumerate(loop.text.splitlines(), loop.line):
                if stepped(text.strip()) and (not trains or _hands_over(line_text(evidence, place), text)):
                    return Place(file=place.file, line=number, function=place.function)
            if trains:
                break
    return None
