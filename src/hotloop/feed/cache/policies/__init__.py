"""Which samples a full cache holds. One file per policy; a policy is its name in :data:`POLICIES`."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.cache.policies.clairvoyant import Clairvoyant
from hotloop.feed.cache.policies.cost import Cost
from hotloop.feed.cache.policies.keep import Keep
from hotloop.feed.cache.policies.lru import Lru


class Policy(Protocol):
    """What a policy decides; samples are numbers, all state is in the shared table."""

    #: May samples be evicted at all? If not, readers need no check and no copy.
    evicts: bool

    def used(self, items: NDArray[np.int64]) -> None:
        """These samples were read just now, found in the cache or not. Called without the lock."""
        ...

    def urgency(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        """How much each of these samples deserves to go; the largest goes first."""
        ...

    def threshold(self, item: int) -> float:
        """The new sample displaces those whose urgency is above this."""
        ...


POLICIES: dict[str, type[Keep] | type[Lru] | type[Cost] | type[Clairvoyant]] = {
    "keep": Keep,
    "lru": Lru,
    "cost": Cost,
    "clairvoyant": Clairvoyant,
}
