"""One block of steps, the ratios that blocks of one cycle give, and the board: a file on which the leading
rank writes each block ahead, and from which the others read it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import log
from statistics import fmean
from typing import Any, Final

#: Steps before the pilot, in the pilot (at least), and between a decision and its block.
WARM_UP: Final = 5
PILOT: Final = 10
LEAD: Final = 3
#: A block is at least this many steps and this long; both from the prototype's noise (FIELDNOTES 3.1).
LEAST_STEPS: Final = 6
LEAST_S: Final = 0.3
MOST_STEPS: Final = 200
#: Pairs of blocks before an interval is trusted.
LEAST_PAIRS: Final = 5
#: Seconds a rank waits for the leader's word before it goes on without interventions.
_PATIENCE_S: Final = 2.0
_NAMES: Final = ("at", "arm", "warm", "length", "cycle")


@dataclass
class Block:
    """One block: ``skip`` steps that tell nothing yet, the times of the others."""

    number: int
    at: int
    arm: int
    warm: int
    length: int
    cycle: int
    skip: int = 0
    dropped: int = 0
    step_ns: list[int] = field(default_factory=list)
    wait_ns: list[int] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)
    carried: tuple[int, int] = (0, 0)
    starts: list[float] = field(default_factory=list)  # seconds that epochs starting in it waited
    cpu_s: float = 0.0
    cpu_steps: int = 0

    def add(self, step_ns: int, wait_ns: int, *, whole: bool) -> None:
        """A step that counts, or what belongs to the step before it; at the start to the one after it."""
        if whole:
            self.step_ns.append(step_ns + self.carried[0])
            self.wait_ns.append(wait_ns + self.carried[1])
            self.carried = (0, 0)
        elif self.step_ns:
            self.step_ns[-1] += step_ns
            self.wait_ns[-1] += wait_ns
        else:
            self.carried = (step_ns, wait_ns)

    @property
    def end(self) -> int:
        """The boundary after its last step."""
        return self.at + self.warm + self.length

    @property
    def valid(self) -> bool:
        """Whether enough of its steps count."""
        return len(self.step_ns) >= max(3, self.length // 2)


def log_ratios(blocks: Iterable[Block], arm: int) -> list[float]:
    """Log of baseline step over the arm's step, for each cycle that has both."""
    means = {(block.cycle, block.arm): fmean(block.step_ns) for block in blocks if block.valid}
    cycles = sorted({cycle for cycle, one in means if one == arm})
    return [log(means[c, 0] / means[c, arm]) for c in cycles if (c, 0) in means]


class Board:
    """Lines of JSON, one per block; ``stop_at`` is the step the last line ends the blocks at."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.stop_at: int | None = None

    def take_lead(self) -> bool:
        """Whether this process leads: rank 0, or without ranks the first that comes."""
        rank = os.environ.get("RANK", "")
        if rank.isdigit():
            return int(rank) == 0
        try:
            os.close(os.open(self._path + ".lead", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True

    def write(self, block: Block, **more: Any) -> None:
        """Announce a block; ``more`` is for ``last``."""
        words = {name: getattr(block, name) for name in _NAMES}
        self._append({"block": block.number, **words, **more})

    def last(self) -> dict[str, Any]:
        """The block that was announced last, for whoever shows progress: empty before the first."""
        return next((words for words in reversed(self._lines()) if "arm" in words), {})

    def stop(self, number: int, at: int) -> None:
        """No block after this step."""
        self.stop_at = at
        self._append({"block": number, "at": at, "stop": True})

    def read(self, number: int) -> Block | None:
        """A block the leader announced; waits a while for one that should be there. None also at the end."""
        until = time.monotonic() + (_PATIENCE_S if number else 0.0)
        while True:
            for words in self._lines():
                if words["block"] == number and words.get("stop"):
                    self.stop_at = words["at"]
                    return None
                if words["block"] == number:
                    return Block(number=number, **{name: words[name] for name in _NAMES})
            if time.monotonic() >= until:
                return None
            time.sleep(0.005)

    def _append(self, words: dict[str, Any]) -> None:
        with open(self._path, "a") as stream:
            stream.write(json.dumps(words) + "\n")

    def _lines(self) -> list[dict[str, Any]]:
        try:
            with open(self._path) as stream:
                return [json.loads(line) for line in stream if line.endswith("\n")]
        except FileNotFoundError:
            return []
