"""``Trainer(callbacks=[HotloopCallback()])`` of Hugging Face's transformers."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from hotloop.integrations.marks import Marks, verdict


class HotloopCallback(TrainerCallback):  # type: ignore[misc]
    """Marks every update; at the end puts the verdict's metrics into the trainer's history."""

    def __init__(self) -> None:
        self._marks = Marks()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An update's batches begin."""
        self._marks.begin(samples=args.train_batch_size * args.gradient_accumulation_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """It is done."""
        self._marks.end()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Log the verdict."""
        found = verdict() if state.is_world_process_zero else None
        if found is not None:
            print(found.words)
            state.log_history.append({**found.metrics, "step": state.global_step})
