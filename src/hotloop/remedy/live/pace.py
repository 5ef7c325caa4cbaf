"""How often a live form may look whether what it keeps still holds."""

from __future__ import annotations

import time
from typing import Final

#: The part of the time that one kind of looking may take.
PART: Final = 0.02


class Pace:
    """Lets something that takes time be done again as often as a fiftieth of the time allows."""

    def __init__(self) -> None:
        self._begun = self._ended = self._took = 0.0

    def due(self) -> bool:
        """Whether it may be done now. Where it is, ``done`` says when it was."""
        self._begun = time.perf_counter()
        return self._begun - self._ended >= self._took / PART

    def done(self) -> None:
        """It was begun when ``due`` was asked last, and has ended."""
        self._ended = time.perf_counter()
        self._took = self._ended - self._begun
