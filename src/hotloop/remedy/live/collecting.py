"""Live form of ``gc.collect()`` called by hand: one of N, as long as memory does not grow in between."""

from __future__ import annotations

import gc
from types import CodeType, FrameType
from typing import Any, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.observers.memory import resident_bytes
from hotloop.remedy.live.answers import dropped
from hotloop.remedy.live.form import Form

#: Bytes by which the process, or what is allocated on its devices, may have grown since the last collection.
_MOST_GROWN: Final = 64 << 20
#: Places that call for a collection; any further one is left as it is.
_MOST_PLACES: Final = 1_000
_FULL: Final = 2

_COLLECT = """
def {name}(*args, **kwargs):
    if is_compiling() or not form.active or get_ident() != owner[0]:
        return original(*args, **kwargs)
    if wanted(getframe(1), args, kwargs) is False:
        return 0
    found = original(*args, **kwargs)
    done()
    return found
"""


class RarerCollections(Form):
    """Full collections that the script's own code calls for once it trains, and whose answer it drops.

    One is done where N calls from that place have come or N rounds of the optimizers have passed since the
    last one done for it, and at once where memory has grown.
    """

    def install(self) -> None:
        """Around ``gc.collect``; what was imported from ``gc`` before torch is not seen."""
        #: By code and instruction: calls left out since the last one done, and the round that was in.
        self._since: dict[tuple[CodeType, int], tuple[int, int]] = {}
        self._level: int | None = None  # after the last collection done; None until it has run
        self._calls = 0
        hooks = self.probe.hooks
        names: dict[str, Any] = {"form": self, "owner": hooks.recorded}
        names |= {"wanted": self.guard(self._wanted), "done": self.guard(self._done)}
        hooks.patch(gc, "collect", lambda original: compile_beside(original, _COLLECT, **names))

    def status(self) -> str:
        """With how many calls were left out."""
        said = super().status()
        if said == "in effect":
            return f"in effect: {self._calls - self.count} of {self._calls} calls collected"
        return said

    def _wanted(self, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        rounds = self.probe.count.rounds
        full = kwargs.get("generation", args[0] if args else _FULL) == _FULL
        if not rounds or not full or self.probe.user_frame(frame) is not frame:
            return True
        place = (frame.f_code, frame.f_lasti)
        if not dropped(*place):
            return True
        self._calls += 1
        left_out, then = self._since.get(place, (self.value, rounds))
        due = left_out + 1 >= self.value or rounds - then >= self.value
        if due or len(self._since) >= _MOST_PLACES or self._has_grown():
            self._since[place] = (0, rounds)
            self._level = None
            return True
        self._since[place] = (left_out + 1, then)
        self.took()
        return False

    def _has_grown(self) -> bool:
        return self._level is None or self._held_bytes() > self._level + _MOST_GROWN

    def _done(self) -> None:
        if self._level is None:
            self._level = self._held_bytes()

    def _held_bytes(self) -> int:
        """Of the process, and of tensors on every CUDA device."""
        cuda = self.torch.cuda
        devices = range(cuda.device_count()) if cuda.is_initialized() else ()
        found = (cuda.memory_stats_as_nested_dict(device) for device in devices)
        held = [stats.get("allocated_bytes", {}).get("all", {}).get("current", 0) for stats in found]
        return resident_bytes() + int(sum(held))
