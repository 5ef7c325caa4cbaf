"""The live form that cuts the training loader's samples into batches of another size."""

from __future__ import annotations

from typing import Any

from hotloop.remedy.live.loader import LoaderForm


class BatchSize(LoaderForm):
    """Another number of samples per batch, from the script's own sampler."""

    switchable = False  # a step is then another number of samples

    def changes(self, loader: Any, settings: dict[str, Any]) -> dict[str, Any] | None:
        """The size, and torch's batch sampler of that size around the same sampler."""
        batches = settings.get("batch_sampler")
        if batches is None or type(batches).__module__ != "torch.utils.data.sampler":
            self.say("the script makes its batches itself")
            return None
        if batches.batch_size == self.value:
            return {}
        made = type(batches)(batches.sampler, self.value, batches.drop_last)
        return {"batch_size": self.value, "batch_sampler": made}
