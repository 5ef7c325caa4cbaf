"""Live forms that let a logger write less often, by writer, method and name; the first time always.

What the script itself computes and draws for a call is done as before: only the call is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.identity import Known
from hotloop.remedy.live.form import LEFT_TO_SOURCE, Form

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
    #: A call is written, too, once N rounds of the optimizers have passed since the last that was.
    spares_rare: ClassVar[bool] = False

    def install(self) -> None:
        """Around the writers that are imported, now or later."""
        #: By name: calls left out since the last that was written, and the round that one was in.
        self._since: Known[dict[Any, tuple[int, int]]] = Known()
        self._open_rows: Known[bool] = Known()
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
            data, step, commit = map(given.get, ("data", "step", "commit"))
            commits = step is None if commit is None else bool(commit)
            is_open = bool(self._open_rows.get(run))
            rest = self.shortened(run, data, is_open and commits) if isinstance(data, dict) else data
            if (rest or rest is data) and is_open == commits:
                self._open_rows.put(run, not commits)
            if rest is data:
                return None
            if not rest:
                return False
            return ((rest, *args[1:]), kwargs) if args else (args, {**kwargs, "data": rest})

        self._wrap(module.Run, "log", admit)

    def _wrap(self, owner: Any, name: str, admit: Any) -> None:
        names: dict[str, Any] = {"form": self, "inside": self._inside, "admit": self.guard(admit)}
        self.probe.hooks.patch(owner, name, lambda original: compile_beside(original, _CALL, **names))

    def _written(self, owner: Any, name: Any, *, ends_row: bool = False) -> bool:
        """Whether it is this call's turn, or it ends a row that others have begun."""
        since = self._since.get(owner)
        if since is None:
            since = {}
            self._since.put(owner, since)
        self._calls += 1
        now = self.probe.count.rounds
        left_out, then = since.get(name, (self.value, now))
        is_rare = self.spares_rare and now - then >= self.value
        if ends_row or is_rare or left_out + 1 >= self.value:
            if name in since or len(since) < _MAX_NAMES:
                since[name] = (0, now)
            return True
        since[name] = (left_out + 1, then)
        self.took()
        return False

    def shortened(self, run: Any, data: dict[str, Any], ends_row: bool) -> Mapping[str, Any]:
        """What is to be logged of a tracker's values: all (the same object), some, or none.

        ``ends_row``: the call commits what others before it left uncommitted.
        """
        raise NotImplementedError

    def left_out(self, name: str, args: Any, kwargs: Any) -> None:
        """What a call that is left out would have seen to besides."""


class FewerScalars(_EachNth):
    """Numbers and histograms; those of an evaluation or an epoch, N updates apart, are written."""

    methods = ("add_scalar", "add_scalars", "add_histogram", "add_histogram_raw")
    spares_rare = True

    def shortened(self, run: Any, data: dict[str, Any], ends_row: bool) -> Mapping[str, Any]:
        """All or nothing; what comes with a picture is written."""
        if any(map(_is_picture, data.values())) or self._written(run, tuple(data), ends_row=ends_row):
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

    def shortened(self, run: Any, data: dict[str, Any], ends_row: bool) -> Mapping[str, Any]:
        """Without the pictures; the numbers are written."""
        pictures = tuple(name for name, value in data.items() if _is_picture(value))
        ends_row = ends_row and len(pictures) == len(data)
        if not pictures or self._written(run, pictures, ends_row=ends_row):
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
