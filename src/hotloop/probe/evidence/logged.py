"""Values that the script logs by name, to TensorBoard or to a tracker: last, smallest, largest, how many."""

from __future__ import annotations

import math
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from hotloop.state.stored import attribute, is_array, is_tensor

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

_MAX_NAMES: Final = 1000


class Logged:
    """Collects ``add_scalar(tag, value)`` and ``log({name: value})``; tensors elsewhere are left alone."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._seen: dict[str, dict[str, Any]] = {}

    def install(self, observer: str) -> None:
        """Observe the loggers that are imported."""
        hooks = self._probe.hooks

        def scalar(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> None:
            tag = args[1] if len(args) > 1 else kwargs.get("tag")
            self.take(tag, args[2] if len(args) > 2 else kwargs.get("scalar_value"))

        def mapping(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> None:
            data: Any = args[1] if len(args) > 1 else kwargs.get("data")
            for name, value in dict.items(data) if dict in type(data).__mro__ else ():
                self.take(name, value)

        for module, owner, method, begin in (
            ("torch.utils.tensorboard.writer", "SummaryWriter", "add_scalar", scalar),
            ("tensorboardX.writer", "SummaryWriter", "add_scalar", scalar),
            ("wandb.sdk.wandb_run", "Run", "log", mapping),
        ):

            def patch(loaded: Any, owner: str = owner, method: str = method, begin: Any = begin) -> None:
                if hasattr(loaded, owner):
                    hooks.around(getattr(loaded, owner), method, observer, begin, lambda *_: None)

            hooks.on_import(module, patch, observer)
        self._probe.on_second(observer, self.finish)

    def take(self, name: Any, value: Any) -> None:
        """One value under a name."""
        plain = not {int, float}.isdisjoint(type(value).__mro__) or is_array(value)
        if not (plain or is_tensor(value)) or not isinstance(name, str):
            return  # what is made to a number by the script's own code
        if attribute(value, "is_cpu", True) is False:
            return  # on a device: reading it would wait
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError):
            return
        seen = self._seen.get(name)
        if seen is None:
            if len(self._seen) >= _MAX_NAMES:
                return
            seen = self._seen[name] = {"count": 0, "non_finite": 0, "min": None, "max": None}
        seen["count"] += 1
        seen["written"] = False
        seen["last"] = number if math.isfinite(number) else None
        if not math.isfinite(number):
            seen["non_finite"] += 1
            return
        seen["min"] = number if seen["min"] is None else min(seen["min"], number)
        seen["max"] = number if seen["max"] is None else max(seen["max"], number)

    def finish(self) -> None:
        """Write what is new; the last note of a name counts."""
        for name, seen in self._seen.items():
            if not seen["written"]:
                seen["written"] = True
                self._probe.note("metric", name=name, **{k: v for k, v in seen.items() if k != "written"})
