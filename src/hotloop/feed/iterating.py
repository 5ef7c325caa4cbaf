"""What the iterators with and without workers share: an epoch that is read, told, and begun again."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from hotloop.feed.errors import FeedError
from hotloop.feed.reading import Reading, as_sized
from hotloop.feed.resume import Position, beginning_again


class Iterating:
    """Comes before one of torch's iterators among the bases."""

    def __init__(self, loader: Any, resumed: dict[str, Any] | None = None) -> None:
        if resumed is None:
            self._epoch = 0
            self._take_seed(loader)
            self._begin(loader, None)
            return
        self._epoch = resumed["epoch"]
        with beginning_again(loader, resumed["start"]):
            super().__init__(loader)  # type: ignore[call-arg]
        self._base_seed = resumed["base_seed"]
        with beginning_again(loader, resumed["start"]):
            self._begin(loader, resumed)

    def _take_seed(self, loader: Any) -> None:
        """Draw a seed for the workers, unless torch would not: the order of the samples comes next."""
        generator = loader.generator or torch.default_generator
        before = generator.get_state() if loader._seed_again is not None else None
        super().__init__(loader)  # type: ignore[call-arg]
        if before is not None:
            generator.set_state(before)
            self._base_seed = loader._seed_again

    def _begin(self, loader: Any, resumed: dict[str, Any] | None) -> None:
        raise NotImplementedError

    def _reading(self: Any, loader: Any) -> Reading:
        return Reading(
            kind=self._dataset_kind,
            dataset=self._dataset,
            auto_collation=self._auto_collation,
            collate_fn=self._collate_fn,
            drop_last=self._drop_last,
            singly=loader.seed_by == "sample",
        )

    def _begin_epoch(self, loader: Any) -> None:
        self._position = Position(loader, self._base_seed, self._epoch)
        self._num_samples = 0

    def _end_epoch(self: Any) -> None:
        self._position.is_over = True

    @property
    def is_under_way(self) -> bool:
        """Whether an epoch was begun and has batches left."""
        return not self._position.is_over

    def _draw(self: Any) -> Any:
        """The indices of the next batch; StopIteration where there is none."""
        return as_sized(self._next_index(), self._auto_collation)

    def _skip(self: Any, resumed: dict[str, Any]) -> None:
        """Draw what was drawn before and leave out what was handed out; a stream is read and dropped."""
        if self._dataset_kind:
            for _ in range(resumed["num_given"]):
                with contextlib.suppress(Exception):  # whoever resumed has seen it
                    self._next_data()
        else:
            for number in range(resumed["num_given"]):
                try:
                    self._count(self._draw())
                except StopIteration:
                    raise FeedError(
                        f"the sampler ended after {number} batches: there were more before"
                    ) from None
                self._position.num_given += 1
        self._num_yielded = resumed["num_given"]
