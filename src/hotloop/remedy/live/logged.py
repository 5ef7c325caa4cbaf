"""Live forms that let loggers and progress bars write less often; the first time always.

What the script itself computes and draws for a call is done as before: only the call is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from time import monotonic
from typing import Any, ClassVar, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.remedy.live.form import LEFT_TO_SOURCE, Form
from hotloop.state.identity import Known

#: Of so many names of one writer calls are counted; any further one is always written.
_MAX_NAMES: Final = 10_000
_WRITERS: Final = ("torch.utils.tensorboard.writer", "tensorboardX.writer")
#: What a tracker takes among the values of one call and shows as a picture.
_PICTURES: Final = frozenset(["Image", "Video", "Plotly", "Html", "Object3D", "Molecule"])
_DRAWN: Final = frozenset(["matplotlib", "PIL", "plotly"])

#: Seconds between two pictures of one progress bar.
APART_S: Final = 1.0

_REFRESH = """
def {name}(self, nolock=False, lock_args=None):
    if nolock or wanted(self) is not False:
        return original(self, nolock=nolock, lock_args=lock_args)
"""

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
    #: A call is written, too, once N rounds of the optimizers have passed since the last that was.
    spares_rare: ClassVar[bool] = False

    def install(self) -> None:
        """Around the writers that are imported, now or later."""
        #: By name: calls left out since the last that was written, and the round that one was in.
        self._since: Known[dict[Any, tuple[int, int]]] = Known()
        self._own_rows: Known[bool] = Known()
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
        if self._calls and said.startswith("nothing"):
            return f"all {self._calls} calls written: they come too seldom to leave any out"
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
            given = {**dict(zip(("data", "step", "commit"), args, strict=False)), **kwargs}
            data = given.get("data")
            if given.get("commit") is not None:  # the script puts its rows together itself
                self._own_rows.put(run, True)
            if self._own_rows.get(run) or not isinstance(data, dict):
                return None
            rest = self.shortened(run, data)
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
        since = self._since.get(owner)
        if since is None:
            since = {}
            self._since.put(owner, since)
        self._calls += 1
        now = self.probe.count.rounds
        left_out, then = since.get(name, (self.value, now))
        is_rare = self.spares_rare and now - then >= self.value
        if is_rare or left_out + 1 >= self.value:
            if name in since or len(since) < _MAX_NAMES:
                since[name] = (0, now)
            return True
        since[name] = (left_out + 1, then)
        self.took()
        return False

    def shortened(self, run: Any, data: dict[str, Any]) -> Mapping[str, Any]:
        """What is to be logged of a tracker's values: all (the same object), some, or none."""
        raise NotImplementedError

    def left_out(self, name: str, args: Any, kwargs: Any) -> None:
        """What a call that is left out would have seen to besides."""


class FewerScalars(_EachNth):
    """Numbers and histograms; those of an evaluation or an epoch, N updates apart, are written."""

    methods = ("add_scalar", "add_scalars", "add_histogram", "add_histogram_raw")
    spares_rare = True

    def shortened(self, run: Any, data: dict[str, Any]) -> Mapping[str, Any]:
        """All or nothing; what comes with a picture is written."""
        if any(map(_is_picture, data.values())) or self._written(run, tuple(data)):
            return data
        return {}


class FewerImages(_EachNth):
    """Images, figures and videos: one of N, however seldom; a single one may cost many steps."""

    methods = ("add_image", "add_images", "add_image_with_boxes", "add_figure", "add_video")

    def status(self) -> str:
        """A file that ``savefig`` writes may be read by the script: that call is never left out."""
        said = super().status()
        if said.startswith("nothing") and "matplotlib.figure" in sys.modules:
            return f"no picture goes to a writer or a tracker; savefig {LEFT_TO_SOURCE}"
        return said

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


class ThrottledProgress(Form):
    """Bars of tqdm, and of what is built on it.

    The first picture and the last are always drawn, and those behind other output, which cleared the bar.
    """

    switchable = True

    def install(self) -> None:
        """Around ``tqdm.refresh``, which a bar's end does not go through."""
        self._drawn: Known[float] = Known()
        self.probe.hooks.on_import("tqdm.std", self._join, self.name)

    def _join(self, module: Any) -> None:
        wanted = self.guard(self._wanted)
        self.probe.hooks.patch(
            module.tqdm, "refresh", lambda original: compile_beside(original, _REFRESH, wanted=wanted)
        )

    def _wanted(self, bar: Any) -> bool:
        if not self.active:
            return True
        now_s, drawn_s = monotonic(), self._drawn.get(bar)
        if drawn_s is not None and now_s - drawn_s < APART_S:
            self.took()
            return False
        self._drawn.put(bar, now_s)
        return True
