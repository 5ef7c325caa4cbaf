"""Live form of growing segments: the command's environment asks for it, this says what came of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from hotloop.remedy.live.form import Form

#: Every torch with CUDA reads this one; versions from 2.8 on read the other first where it is set, and
#: some of them take it for the CPU's only (pytorch#183387).
NAME: Final = "PYTORCH_CUDA_ALLOC_CONF"
NAMES: Final = ("PYTORCH_ALLOC_CONF", NAME)
SETTING: Final = "expandable_segments:True"

_SET: Final = re.compile(r"expandable_segments\s*:\s*(\w+)")
#: An allocator without segments.
_OTHER: Final = "cudaMallocAsync"


def expandable(environ: Mapping[str, str]) -> dict[str, str]:
    """What the environment has to hold for it; what is set beside it stays."""
    given = {name: environ[name] for name in NAMES if environ.get(name)}
    if NAME not in given:
        given[NAME] = given.get(NAMES[0], "")
    return {name: merged(words) for name, words in given.items()}


def merged(words: str) -> str:
    """A configuration with the setting in it."""
    found = _SET.search(words)
    if found is not None:
        return words[: found.start(1)] + "True" + words[found.end(1) :]
    return f"{words},{SETTING}" if words else SETTING


def is_set(words: str) -> bool:
    """Whether a configuration has it."""
    found = _SET.search(words)
    return found is not None and found[1] == "True"


def has_no_segments(words: str) -> bool:
    """Whether a configuration chooses an allocator that knows no segments."""
    return _OTHER in words


class ExpandableSegments(Form):
    """Set before the command starts; a script may set another configuration before it imports torch."""

    def install(self) -> None:
        """Whether it arrived, and once the script trains, whether torch took it."""
        words = [os.environ[name] for name in NAMES if os.environ.get(name)]
        if any(map(has_no_segments, words)):
            self.say("cudaMallocAsync is chosen, which has no segments")
        elif not words or not all(map(is_set, words)):
            self.say("the script sets the allocator's configuration itself")
        elif not self.torch.backends.cuda.is_built():
            self.say("torch finds no CUDA device")
        else:
            self.probe.on_update(self.name, self._look)

    def _look(self) -> None:
        self.probe.off_update(self._look)
        cuda = self.torch.cuda
        if not cuda.is_initialized():
            self.say("the training runs on no CUDA device")
        elif cuda.memory._snapshot().get("allocator_settings", {}).get("expandable_segments") is False:
            self.say("this torch did not take it")
        else:
            self.took()
