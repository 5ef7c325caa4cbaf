"""Which samples a full cache holds; a policy is its name in :data:`POLICIES`."""

from __future__ import annotations

from hotloop.feed.cache.policies.clairvoyant import Clairvoyant
from hotloop.feed.cache.policies.simple import Cost, Keep, Lru

POLICIES: dict[str, type[Keep]] = {"keep": Keep, "lru": Lru, "cost": Cost, "clairvoyant": Clairvoyant}
