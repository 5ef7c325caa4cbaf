"""What a cache did, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass

from hotloop import units


@dataclass(frozen=True, kw_only=True)
class CacheStats:
    """The use of a cache by all workers of all ranks.

    ``saved_s`` is the time that hits did not spend making samples, summed over all workers.
    """

    num_items: int
    num_bytes: int
    resident_bytes: int
    limit_bytes: int
    hits: int
    misses: int
    saved_s: float
    notes: tuple[str, ...] = ()

    @property
    def hit_rate(self) -> float:
        """Hits among all readings, 0 before the first."""
        return self.hits / max(1, self.hits + self.misses)

    def __str__(self) -> str:
        used, limit = self.num_bytes / (1 << 20), self.limit_bytes / (1 << 20)
        return (
            f"Size {self.num_items} items; Memory {used:.1f}/{limit:.1f} MB; "
            f"Hit Rate {self.hit_rate:.2%} ({self.hits} hits / {self.misses} misses)"
        )

    def details(self) -> str:
        """A second line: time saved, and what else there is to know."""
        return "; ".join([f"{units.duration(self.saved_s)} saved", *self.notes])
