"""Live form that leaves out garbage collections which the script's own code calls for."""

from __future__ import annotations

import gc
from types import FrameType
from typing import Any, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.observers.memory import resident_bytes
from hotloop.remedy.live.form import Form

#: Bytes by which the process, or its tensors on the CUDA device, may have grown since the last collection.
_MOST_GROWN: Final = 64 << 20
_FULL: Final = 2
_CALL = """
def {name}(*args, **kwargs):
    if is_compiling() or get_ident() != owner[0]:
        return original(*args, **kwargs)
    if wanted(getframe(1), args, kwargs) is False:
        return 0
    found = original(*args, **kwargs)
    done()
    return found
"""


class RarerCollections(Form):
    """Full collections: one in N rounds of the optimizers is done, and at once where the process has grown.

    One that is left out answers 0. ``value`` is N.
    """

    def install(self) -> None:
        """Around ``gc.collect``; what was imported from ``gc`` before torch is not seen."""
        self._calls = 0
        self._round = -self.value  # of the last collection done
        self._level: int | None = None  # bytes that were held after it
        names: dict[str, Any] = {"owner": self.probe.hooks.recorded}
        names |= {"wanted": self.guard(self._wanted), "done": self.guard(self._done)}
        self.probe.hooks.patch(gc, "collect", lambda original: compile_beside(original, _CALL, **names))

    def status(self) -> str:
        """With how many calls were left out."""
        said = super().status()
        done = self._calls - self.count
        return f"in effect: {done} of {self._calls} calls collected" if said == "in effect" else said

    def _wanted(self, frame: FrameType, args: Any, kwargs: Any) -> bool:
        now, is_own = self.probe.count.rounds, self.probe.user_frame(frame) is frame
        if kwargs.get("generation", args[0] if args else _FULL) != _FULL or not now or not is_own:
            return True
        self._calls += 1
        grown = self._level is None or self._held_bytes() > self._level + _MOST_GROWN
        if grown or now - self._round >= self.value:
            self._round, self._level = now, None
            return True
        self.took()
        return False

    def _done(self) -> None:
        """What is held now is no garbage."""
        if self._level is None:
            self._level = self._held_bytes()

    def _held_bytes(self) -> int:
        """Of the process, and of tensors on the CUDA device."""
        cuda = self.torch.cuda
        return resident_bytes() + (int(cuda.memory_allocated()) if cuda.is_initialized() else 0)
