"""Deterministic preprocessing done once: any map-style dataset as memory-mapped files, and back."""
