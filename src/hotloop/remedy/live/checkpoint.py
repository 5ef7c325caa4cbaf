"""Live form of checkpoints: ``torch.save`` returns when the state is copied."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from hotloop.hooks.wrapping import compile_beside
from hotloop.remedy.live.form import Form

_EXIT = """
def {name}(status):
    settle()
    original(status)
"""


class AsynchronousCheckpoint(Form):
    """A thread writes what ``torch.save`` is to write; see ``hotloop.feed.saving``."""

    switchable = False  # blocks of steps leave out those that write checkpoints

    def install(self) -> None:
        """Below ``torch.save``: it pickles into a writer that it opens, and gets another one."""
        serialization = sys.modules["torch.serialization"]
        self._saving = importlib.import_module("hotloop.feed.saving")
        self._deferred = self.guard(self._make)
        patch = self.probe.hooks.patch
        if not patch(serialization, "_open_zipfile_writer", lambda original: self._opener(original)):
            self.say(f"torch {self.torch.__version__} opens its checkpoints another way")
        settle = self.guard(self._saving.wait_for_saves)
        patch(os, "_exit", lambda original: compile_beside(original, _EXIT, settle=settle))

    def _opener(self, original: Any) -> Any:
        def opener(name_or_buffer: Any) -> Any:
            deferred = self._deferred(name_or_buffer, original) if self.active else None
            return original(name_or_buffer) if deferred is None else deferred

        return opener

    def _make(self, name_or_buffer: Any, original: Any) -> Any:
        if not isinstance(name_or_buffer, str):  # a buffer
            return None
        if self._saving.several_ranks():
            self.say("other ranks may read a checkpoint, and would not wait for it")
            return None
        self.took()
        return self._saving.Deferred(name_or_buffer, original)

    def exits(self) -> None:
        """Everything is written before the process ends, also by ``os._exit``."""
        try:
            self._saving.wait_for_saves()
        except (OSError, RuntimeError) as error:
            self.say(f"a checkpoint could not be written: {error}")
        super().exits()
