"""The errors of the feeding library.

::

    HotloopError
    └── FeedError                 hotloop.feed refuses, or could not do it
        ├── WorkerError           a worker died, hung or could not be started (also a RuntimeError)
        ├── CacheError            a cache cannot be built, shared or trusted (also a RuntimeError)
        └── BakeError             a bake cannot be made or opened
            ├── StaleBakeError    ... is not of what the dataset is now
            ├── NotPlainError     ... needs code to be run, and nobody said that it may be
            └── DamagedBakeError  ... is not as it was written
"""

from __future__ import annotations

from typing import Any

from hotloop.errors import HotloopError


class FeedError(HotloopError):
    """The feeding library refuses, or could not do what it was asked."""

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class WorkerError(FeedError, RuntimeError):
    """A worker process died, hung or could not be started; the message names the sample and the cause.

    ``index``: the index, or indices, of the batch that a dead one was making; None if it was making none.
    """

    index: Any = None


class CacheError(FeedError, RuntimeError):
    """A cache cannot be built, shared or trusted; the message says why."""


class BakeError(FeedError):
    """A dataset cannot be baked, or what lies at the path cannot be opened as a bake."""

    exit_code = 2


class NotPlainError(BakeError):
    """A bake holds objects that only code opens: say ``trust=True`` if you trust who made it."""


class StaleBakeError(BakeError):
    """The dataset (its code, parameters, source files) or the format is no longer the one that was baked."""


class DamagedBakeError(BakeError):
    """Files of a bake are missing, cut short, or do not match their checksums."""
