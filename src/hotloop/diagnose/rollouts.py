"""Environments that the training loop itself steps: a policy acts, a simulation answers.

What comes next depends on the policy's answer, so none of it can be made ahead as batches can.
"""

from __future__ import annotations

import re
from typing import Final

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.source import loops_around, sources
from hotloop.findings import Place
from hotloop.measure.lines import package_of

ADVICE = (
    "What comes next depends on the policy's answer, so no loader can make it ahead: step more environments "
    "at once (on arrays, or each in a process of its own) and ask the policy for all of them in one call."
)

#: Packages that step environments themselves.
_PACKAGES: Final = frozenset(["torchrl", "stable_baselines3", "sb3_contrib", "tianshou", "gymnasium"])
#: ``obs, reward, done, info = env.step(action)``; an optimizer's or a scheduler's step gives nothing back.
_STEP = re.compile(
    r"^\s*(?P<made>[\w.\[\], ()*:]+?)\s*=\s*(await\s+)?(?P<of>[\w.\[\]]+)\.step\(\s*[^\s)]", re.M
)
_ENVIRONMENT = re.compile(r"(^|[._])(env|environment|sim|simulat(or|ion)|game)s?(\[\w*\])?$", re.I)
#: What an environment gives besides what is seen: two of them make one, whatever it is called.
_ANSWERS = re.compile(r"\b(r|rews?|rewards?|d|dones?|terminat\w+|terms?|truncat\w+|truncs?|infos?)\b", re.I)


def acts(evidence: Evidence) -> bool:
    """Whether the training loop makes its own data by acting: no loader feeds it, and it asks the model for
    what is trained on next, or steps an environment. That is work of the host and no waiting for data.
    """
    loader = evidence.steps.train_loader()
    if loader is not None and "num_workers" in loader.settings:
        return False
    return bool(evidence.steps.facts.get("unclear")) or steps_environment(evidence)


def steps_environment(evidence: Evidence) -> bool:
    """Whether a line of the user's code that this run went through steps an environment and takes its answer,
    or a package was in use that steps them itself; in evaluations it makes no data.
    """
    lines = [line for line in evidence.steps.lines if line.phase != "evaluation"]
    if any(package_of(line.within) in _PACKAGES for line in lines):
        return True
    scored = {line.place.file for line in evidence.steps.lines} - {line.place.file for line in lines}
    texts = [text for file, text in sources(evidence).items() if file not in scored]
    steps = (found for text in texts for found in _STEP.finditer(text))
    return any(len(_ANSWERS.findall(one["made"])) >= 2 or _ENVIRONMENT.search(one["of"]) for one in steps)


def may_act(evidence: Evidence, place: Place) -> bool:
    """Whether a line may be work for an environment that is stepped: no line of a loop that steps none where
    that loop, or one around it, updates.
    """
    loops = [loop.text for loop in loops_around(evidence, place)]
    updates = any(".backward(" in text for text in loops) and not _STEP.search(loops[0])
    return not updates and steps_environment(evidence)
