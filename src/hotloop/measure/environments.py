"""Environments that a training loop steps: a policy acts, a simulation answers."""

from __future__ import annotations

import re
from typing import Final

#: Packages that step environments themselves.
STEP_THEM: Final = frozenset(["torchrl", "stable_baselines3", "sb3_contrib", "tianshou", "gymnasium"])
#: ``obs, reward, done, info = env.step(action)``; an optimizer's or a scheduler's step gives nothing back.
_STEP = re.compile(r"^(?P<made>[\w.\[\], ()*:]+?)\s*=\s*(await\s+)?(?P<of>[\w.\[\]]+)\.step\(\s*[^\s)]")
_ENVIRONMENT = re.compile(r"(^|[._])(env|environment|sim|simulat(or|ion)|game)s?(\[\w*\])?$", re.I)
#: What an environment gives besides what is seen: two of them make one, whatever it is called.
_ANSWERS = re.compile(r"\b(r|rews?|rewards?|d|dones?|terminat\w+|terms?|truncat\w+|truncs?|infos?)\b", re.I)


def steps_environment(text: str) -> bool:
    """Whether a statement steps an environment and takes its answer."""
    found = _STEP.match(text)
    return found is not None and bool(
        len(_ANSWERS.findall(found["made"])) >= 2 or _ENVIRONMENT.search(found["of"])
    )
