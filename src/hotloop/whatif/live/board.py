"""The board: a file on which the leading rank writes each block ahead, and from which the others read it."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Final

from hotloop.whatif.live.blocks import Block

#: Seconds a rank waits for the leader's word before it goes on without interventions.
_PATIENCE_S: Final = 2.0
_NAMES: Final = ("at", "arm", "warm", "length", "cycle")


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
        """Announce a block; ``more`` is for whoever shows progress."""
        words = {name: getattr(block, name) for name in _NAMES}
        self._append({"block": block.number, **words, **more})

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
