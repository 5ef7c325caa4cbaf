"""Whether an observer still observes, in one look."""

from __future__ import annotations


class Switch:
    """Whether an observer still observes.

    ``owner[0]`` is the thread it observes: the recorded one, 0 once it is off. One look tells a wrapper both.
    """

    __slots__ = ("name", "off", "owner")

    def __init__(self, name: str, owner: int) -> None:
        self.name, self.owner, self.off = name, [owner], False

    def turn_off(self) -> None:
        """It observes no more."""
        self.off, self.owner[0] = True, 0
