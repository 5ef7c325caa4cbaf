"""``Accelerator(log_with=HotloopTracker())`` of accelerate."""

from __future__ import annotations

from typing import Any

from accelerate.tracking import GeneralTracker

from hotloop.integrations.marks import Verdict, verdict


class HotloopTracker(GeneralTracker):  # type: ignore[misc]
    """Prints the verdict at ``end_training``; ``tracker`` is it. The loop is one's own and needs no marks."""

    name = "hotloop"
    requires_logging_directory = False
    tracker: Verdict | None = None

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Nothing: the probe reads configurations itself."""

    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        """Nothing: losses and times are recorded where they arise."""

    def finish(self) -> None:
        """Log the verdict."""
        self.tracker = verdict()
        if self.tracker is not None:
            print(self.tracker.words)
