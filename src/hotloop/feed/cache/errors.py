"""The error of the cache."""

from __future__ import annotations

from hotloop.feed.errors import FeedError


class CacheError(FeedError, RuntimeError):
    """A cache cannot be built, shared or trusted; the message says why."""
