"""What every live form is: a change made in the user's process, said in a note, off after its first error."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.probe import Probe

#: What a form says of a run in which it was never asked to do anything.
MET_NOTHING: Final = "nothing in this run that it applies to"
#: The part of the time that looking whether what is kept still holds may take.
PART: Final = 0.02


class Pace:
    """Lets something that takes time be done again as often as a fiftieth of the time allows."""

    def __init__(self) -> None:
        self._begun = self._ended = self._took = 0.0

    def due(self) -> bool:
        """Whether it may be done now. Where it is, ``done`` says when it was."""
        self._begun = time.perf_counter()
        return self._begun - self._ended >= self._took / PART

    def done(self) -> None:
        """It was begun when ``due`` was asked last, and has ended."""
        self._ended = time.perf_counter()
        self._took = self._ended - self._begun


class Form:
    """One remedy in force. ``count`` says how often it did something.

    ``switchable`` forms can be turned on and off between steps; ``warm_up`` is how many steps after a switch
    tell nothing yet. A form that finds it cannot help says why (``say``) and leaves the script as it is.
    """

    id = ""
    switchable: ClassVar[bool] = False
    warm_up: ClassVar[int] = 2

    def __init__(self, context: Probe, value: Any) -> None:
        self.probe = context
        self.torch = context.torch
        self.value = value
        self.active = True
        self.count = 0
        self._why = ""

    @property
    def name(self) -> str:
        """Under which its errors are known to ``hooks``."""
        return f"remedy {self.id}"

    def install(self) -> None:
        """Patch through ``probe.hooks``; called once, right after torch was imported."""

    def on(self) -> None:
        """In force from now on."""
        self.active = True

    def off(self) -> None:
        """As the script has it."""
        self.active = False

    def guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Never raises into the script: the first error switches this form off."""
        return self.probe.hooks.guard(self.name, function)

    def took(self) -> None:
        """It did something; the first time is noted at once, for runs that are killed."""
        self.count += 1
        if self.count == 1:
            self._why = ""
            self.write()

    def say(self, why: str) -> None:
        """Why it is not in effect."""
        self._why = why

    def refused(self, why: str) -> None:
        """The same of one of several things that it is for, where it did nothing with others."""
        if not self.count:
            self.say(why)

    def status(self) -> str:
        """``in effect``, or why not."""
        if self.probe.hooks.switch(self.name).off:
            return "switched off after an error of its own"
        return self._why or ("in effect" if self.count else MET_NOTHING)

    def exits(self) -> None:
        """The last word, of processes that train."""
        if self.probe.role == "main":
            self.write()

    def write(self) -> None:
        """Note how it stands."""
        self.probe.note("remedy", id=self.id, value=self.value, status=self.status(), count=self.count)


class OnceTraining(Form):
    """A form whose ``apply`` and ``restore`` set something for the process.

    It applies at once, and again after the first update: what scripts set at their start comes between.
    """

    switchable = True

    def install(self) -> None:
        """Apply now, and once more when the script is done with its own settings."""
        if self.active:
            self.guard(self.on)()
            self.probe.on_update(self.name, self._again)

    def _again(self) -> None:
        self.probe.off_update(self._again)
        if self.active:
            self.on()

    def on(self) -> None:
        """Apply."""
        super().on()
        if self.apply():
            self.took()

    def off(self) -> None:
        """Put back what the script had."""
        super().off()
        self.restore()

    def apply(self) -> bool:
        """Whether anything was to be changed."""
        raise NotImplementedError

    def restore(self) -> None:
        """Undo ``apply``."""
        raise NotImplementedError


# The outermost forward of a module with parameters: where several live forms do their work


# ``begin`` gives the arguments to call with and what ``end`` needs, or None: as the script has it.
_CALL = """
def {name}(self, *args, **kwargs):
    if is_compiling() or inside[0] or depth[0] or not form.active or get_ident() != owner[0]:
        return original(self, *args, **kwargs)
    begun = begin(self, args, kwargs)
    if begun is None:
        return original(self, *args, **kwargs)
    depth[0] = 1
    try:
        args, kwargs, token = begun
        result = original(self, *args, **kwargs)
    finally:
        depth[0] = 0
        leave(begun)
    changed = end(token, result)
    return result if changed is None else changed
"""


def around_outermost(
    form: Form,
    begin: Callable[[Any, Any, Any], Any],
    end: Callable[[Any, Any], Any] = lambda token, result: None,
    leave: Callable[[Any], None] = lambda begun: None,
) -> None:
    """Wrap the outermost call of modules for a form; ``end`` may give another result.

    The wrapper lives on the class: the model pickles and copies as before.
    """
    probe = form.probe
    probe.hooks.patch(
        probe.torch.nn.Module,
        "__call__",
        lambda original: compile_beside(
            original,
            _CALL,
            form=form,
            inside=probe.inside,
            depth=[0],
            owner=probe.hooks.recorded,
            begin=form.guard(begin),
            end=form.guard(end),
            leave=form.guard(leave),
        ),
    )


def has_parameters(module: Any) -> bool:
    """Whether there is anything to train or to compute with: a criterion has nothing."""
    return next(module.parameters(), None) is not None
