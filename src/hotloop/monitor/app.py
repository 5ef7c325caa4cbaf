"""The screen that follows a run, in Textual."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.widgets import Footer, Static

from hotloop.monitor.screen import render


class Watch(App[None]):
    """Shows each state of a source until the user leaves; ``error`` is what ended the source."""

    CSS = """
    Screen { background: $background; }
    VerticalScroll { padding: 1 1 1 2; scrollbar-size-vertical: 1; scrollbar-color: $panel; }
    VerticalScroll { scrollbar-background: $background; }
    #page { width: 100%; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,escape", "quit", "leave; the run goes on")]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, source: Iterator[dict[str, Any]]) -> None:
        super().__init__()
        self._source = source
        self._state: dict[str, Any] | None = None
        self.error: Exception | None = None

    def compose(self) -> ComposeResult:
        """One page that scrolls."""
        with VerticalScroll():
            yield Static("reading …", id="page")
        yield Footer()

    def on_mount(self) -> None:
        """Follow the source in a thread."""
        threading.Thread(target=self._follow, daemon=True).start()  # nobody waits for it at the end

    def on_resize(self, event: Resize) -> None:
        """Lines are as wide as the terminal."""
        self._draw(event.size.width)

    def _follow(self) -> None:
        while True:
            try:
                state = next(self._source, None)
            except Exception as error:  # said once the screen is gone
                self.error = error
                return self.call_from_thread(self.exit)
            if state is None or not self.is_running:
                return None
            self.call_from_thread(self._show, state)

    def _show(self, state: dict[str, Any]) -> None:
        self._state = state
        self._draw(self.size.width)

    def _draw(self, width: int) -> None:
        if self._state is not None:
            lines = render(self._state, max(40, width - 5))
            self.query_one("#page", Static).update(Text("\n").join(lines))
