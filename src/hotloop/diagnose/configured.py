"""What somebody configured, beside what was in effect; an argparse default that nobody gave is none of it."""

from __future__ import annotations

from hotloop.measure.steps import Setting, Steps
from hotloop.torch_facts import value_for


def written_down(steps: Steps, name: str) -> Setting | None:
    """The setting of that name if somebody wrote its configured value down."""
    setting = next((one for one in steps.settings if one.name == name), None)
    if setting is None or setting.configured is None:
        return None
    return setting if not setting.sources or any(not one.default for one in setting.sources) else None


def ignored(steps: Steps, name: str) -> Setting | None:
    """The same if another value was in effect."""
    setting = written_down(steps, name)
    return setting if setting is not None and setting.differs else None


def wanted(steps: Steps, name: str) -> Setting | None:
    """The same if it should be on."""
    setting = written_down(steps, name)
    return setting if setting is not None and value_for("amp", setting.configured) is True else None
