"""Whether an observer still observes, in one look."""

from __future__ import annotations


class Switch:
    """Whether an observer still observes.

    ``owner[0]`` is the thread it observes: the recorded one, 0 once it is off. One look tells a wrapper both.
    """

    __slots__ = ("_off", "_recorded", "name", "owner")

    def __init__(self, name: str, recorded: list[int]) -> None:
        self.name = name
        self.owner = [recorded[0]]
        self._recorded = recorded
        self._off = False

    @property
    def off(self) -> bool:
        """Whether it observes no more."""
        return self._off

    @off.setter
    def off(self, off: bool) -> None:
        self._off = off
        self.follow()

    def follow(self) -> None:
        """Another thread is recorded now."""
        self.owner[0] = 0 if self._off else self._recorded[0]
