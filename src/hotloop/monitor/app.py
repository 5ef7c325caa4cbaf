"""The screen that follows a run, in Textual."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.widgets import Footer, Static

from hotloop.errors import HotloopError
from hotloop.monitor.screen import render


class Watch(App[None]):
    """Shows each state of a source until the user leaves; ``error`` is what ended the source."""

    CSS = """
    Screen { background: $background; }
    VerticalScroll { padding: 1 2; scrollbar-size-vertical: 1; }
    #page { width: 100%; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,escape", "quit", "leave; the run goes on")]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, source: Iterator[dict[str, Any]]) -> None:
        super().__init__()
        self._source = source
        self._state: dict[str, Any] | None = None
        self.error: HotloopError | None = None

    def compose(self) -> ComposeResult:
        """One page that scrolls."""
        with VerticalScroll():
            yield Static("reading …", id="page")
        yield Footer()

    def on_mount(self) -> None:
        """Follow the source in a thread."""
        self.run_worker(self._follow, thread=True)

    def on_resize(self, _: Resize) -> None:
        """Lines are as wide as the terminal."""
        self._draw()

    def _follow(self) -> None:
        try:
            for state in self._source:
                if not self.is_running:
                    return
                self.call_from_thread(self._show, state)
        except HotloopError as error:
            self.error = error
            self.call_from_thread(self.exit)

    def _show(self, state: dict[str, Any]) -> None:
        self._state = state
        self._draw()

    def _draw(self) -> None:
        if self._state is not None:
            lines = render(self._state, max(40, self.size.width - 5))
            self.query_one("#page", Static).update(Text("\n").join(lines))
