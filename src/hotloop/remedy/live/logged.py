"""Live forms that let a logger write each Nth time, by writer, method and name; the first time always.

What the script itself computes and draws for a call is done as before: only the call is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.identity import Known
from hotloop.remedy.live.form import Form

#: Of so many names of one writer calls are counted; any further one is always written.
_MAX_NAMES: Final = 10_000
_WRITERS: Final = ("torch.utils.tensorboard.writer", "tensorboardX.writer")
#: What a tracker takes among the values of one call and shows as a picture.
_PICTURES: Final = frozenset(["Image", "Video", "Plotly", "Html", "Object3D", "Molecule"])
_DRAWN: Final = frozenset(["matplotlib", "PIL", "plotly"])

# ``admit`` says False for a call to leave out, gives other arguments, or None: as the script has it. What a
# call that is let through calls itself is part of it.
_CALL: Final = """
def {name}(self, *args, **kwargs):
    if is_compiling() or not form.active or get_ident() in inside:
        return original(self, *args, **kwargs)
    given = admit(self, args, kwargs)
    if given is False:
        return None
    args, kwargs = given or (args, kwargs)
    inside.add(get_ident())
    try:
        return original(self, *args, **kwargs)
    finally:
        inside.discard(get_ident())
"""


class _EachNth(Form):
    """Calls of one kind; ``count`` is how many were left out."""

    switchable = True
    methods: ClassVar[tuple[str, ...]] = ()

    def install(self) -> None:
        """Around the writers that are imported, now or later."""
        self._counts: Known[dict[Any, int]] = Known()
        self._inside: set[int] = set()
        self._calls = 0
        for module in _WRITERS:
            self.probe.hooks.on_import(module, self._writer, self.name)
        self.probe.hooks.on_import("wandb.sdk.wandb_run", self._tracker, self.name)

    @property
    def group(self) -> int:
        """Steps that hold one call which is written."""
        return int(self.value)

    def status(self) -> str:
        """With what was left out."""
        said = super().status()
        written = self._calls - self.count
        return f"in effect: {written} of {self._calls} calls written" if said == "in effect" else said

    def _writer(self, module: Any) -> None:
        for name in self.methods:
            if name in vars(module.SummaryWriter):

                def admit(writer: Any, args: Any, kwargs: Any, name: str = name) -> Any:
                    tag = args[0] if args else kwargs.get("tag", kwargs.get("main_tag"))
                    if self._written(writer, (name, tag)):
                        return None
                    self.left_out(name, args, kwargs)
                    return False

                self._wrap(module.SummaryWriter, name, admit)

    def _tracker(self, module: Any) -> None:
        def admit(run: Any, args: Any, kwargs: Any) -> Any:
            data = args[0] if args else kwargs.get("data")
            rest = self.shortened(run, data) if isinstance(data, dict) else data
            if rest is data:
                return None
            if not rest:
                return False
            return ((rest, *args[1:]), kwargs) if args else (args, {**kwargs, "data": rest})

        self._wrap(module.Run, "log", admit)

    def _wrap(self, owner: Any, name: str, admit: Any) -> None:
        names: dict[str, Any] = {"form": self, "inside": self._inside, "admit": self.guard(admit)}
        self.probe.hooks.patch(owner, name, lambda original: compile_beside(original, _CALL, **names))

    def _written(self, owner: Any, name: Any) -> bool:
        """Whether it is this call's turn."""
        counts = self._counts.get(owner)
        if counts is None:
            counts = {}
            self._counts.put(owner, counts)
        number = counts.get(name, 0)
        if number or len(counts) < _MAX_NAMES:
            counts[name] = number + 1
        self._calls += 1
        if number % self.value == 0:
            return True
        self.took()
        return False

    def shortened(self, run: Any, data: dict[str, Any]) -> Mapping[str, Any]:
        """What is to be logged of a tracker's values: all (the same object), some, or none."""
        raise NotImplementedError

    def left_out(self, name: str, args: Any, kwargs: Any) -> None:
        """What a call that is left out would have seen to besides."""


class FewerScalars(_EachNth):
    """Numbers and histograms."""

    methods = ("add_scalar", "add_scalars", "add_histogram", "add_histogram_raw")

    def shortened(self, run: Any, data: dict[str, Any]) -> Mapping[str, Any]:
        """All or nothing; what comes with a picture is written."""
        if any(map(_is_picture, data.values())) or self._written(run, tuple(data)):
            return data
        return {}


class FewerImages(_EachNth):
    """Images, figures and videos."""

    methods = ("add_image", "add_images", "add_image_with_boxes", "add_figure", "add_video")

    def shortened(self, run: Any, data: dict[str, Any]) -> Mapping[str, Any]:
        """Without the pictures; the numbers are written."""
        pictures = tuple(name for name, value in data.items() if _is_picture(value))
        if not pictures or self._written(run, pictures):
            return data
        return {name: value for name, value in data.items() if name not in pictures}

    def left_out(self, name: str, args: Any, kwargs: Any) -> None:
        """A figure that ``add_figure`` would have closed is closed: pyplot keeps every other one."""
        if name != "add_figure":
            return
        pyplot = sys.modules.get("matplotlib.pyplot")
        figure = args[1] if len(args) > 1 else kwargs.get("figure")
        closes = args[3] if len(args) > 3 else kwargs.get("close", True)
        if pyplot is not None and closes:
            for one in figure if isinstance(figure, list) else [figure]:
                pyplot.close(one)


def _is_picture(value: Any) -> bool:
    first = value[0] if isinstance(value, list | tuple) and value else value
    kind = type(first)
    package = kind.__module__.partition(".")[0]
    return package in _DRAWN or (package == "wandb" and kind.__name__ in _PICTURES)
