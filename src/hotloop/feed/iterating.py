"""What the iterators with and without workers share: how they begin, and the indices of a batch."""

from __future__ import annotations

from typing import Any

import torch

from hotloop.feed.reading import Reading, as_sized


class Iterating:
    """Comes before one of torch's iterators among the bases."""

    def __init__(self, loader: Any) -> None:
        """Draw a seed for the workers, unless torch would not: the order of the samples comes next."""
        generator = loader.generator or torch.default_generator
        before = generator.get_state() if loader._seed_again is not None else None
        super().__init__(loader)  # type: ignore[call-arg]
        if before is not None:
            generator.set_state(before)
            self._base_seed = loader._seed_again
        self._begin(loader)

    def _begin(self, loader: Any) -> None:
        raise NotImplementedError

    def _reading(self: Any, loader: Any) -> Reading:
        return Reading(
            kind=self._dataset_kind,
            dataset=self._dataset,
            auto_collation=self._auto_collation,
            collate_fn=self._collate_fn,
            drop_last=self._drop_last,
        )

    def _draw(self: Any) -> Any:
        """The indices of the next batch; StopIteration where there is none."""
        return as_sized(self._next_index(), self._auto_collation)
