"""``Trainer(callbacks=[HotloopCallback()])`` of Lightning, or ``Trainer(profiler=HotloopProfiler())``."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.profilers import Profiler
except ImportError:  # under its older name
    from pytorch_lightning.callbacks import Callback
    from pytorch_lightning.profilers import Profiler

from hotloop.integrations.marks import Marks, verdict


class HotloopCallback(Callback):  # type: ignore[misc]
    """Marks every training batch; at the end hands the verdict's metrics to the trainer's loggers."""

    def __init__(self) -> None:
        self._marks = Marks()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A step begins."""
        self._marks.begin(batch)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """It ends."""
        self._marks.end()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Log the verdict."""
        found = verdict() if trainer.is_global_zero else None
        if found is not None:
            print(found.words)
            for logger in trainer.loggers:
                logger.log_metrics(found.metrics, step=trainer.global_step)


class HotloopProfiler(Profiler):  # type: ignore[misc]
    """Marks every training batch by Lightning's own action; its summary is the verdict."""

    def __init__(self, dirpath: str | None = None, filename: str | None = None) -> None:
        super().__init__(dirpath=dirpath, filename=filename)
        self._marks = Marks()

    def start(self, action_name: str) -> None:
        """A step begins where a training batch does."""
        if action_name == "run_training_batch":
            self._marks.begin(None)

    def stop(self, action_name: str) -> None:
        """It ends."""
        if action_name == "run_training_batch":
            self._marks.end()

    def summary(self) -> str:
        """The verdict; empty where the command is not observed."""
        found = verdict()
        return f"{found.words}\n" if found is not None else ""
