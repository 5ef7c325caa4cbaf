"""Deterministic preprocessing done once: any map-style dataset as memory-mapped files, and back."""

from hotloop.feed.baking.baked import Baked
from hotloop.feed.baking.writer import bake

__all__ = ["Baked", "bake"]
