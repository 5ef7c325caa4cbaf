"""What every live form is: a change made in the user's process, said in a note, off after its first error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

#: What a form says of a run in which it was never asked to do anything.
MET_NOTHING: Final = "nothing in this run that it applies to"


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
