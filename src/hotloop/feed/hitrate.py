"""How often a cache of a fraction of the dataset hits, if every sample is read once per epoch in a new order.

Samples of one size, a warm cache that holds the fraction ``c`` of all of them. Between two uses of a sample
lies one border of epochs, and a hit needs the sample to be there then: no policy hits more than ``c``.
Derivations: docs/guides/hit-rate.md.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

Policy = Literal["keep", "lru"]


def expected_hit_rate(policy: Policy, fraction: float) -> float:
    """The share of reads of shuffled epochs that a warm cache answers.

    Args:
        policy: ``keep`` (fill, then never evict, as :func:`cached` does) or ``lru`` (evict what was not
            used for longest).
        fraction: of the dataset that fits into the cache, in [0, 1].

    The first epoch, when the cache is empty, hits nothing: over E epochs the mean is (E - 1) / E of this.

    Raises:
        ValueError: an argument is out of range.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be in [0, 1], not {fraction}")
    if policy not in get_args(Policy):
        raise ValueError(f"policy must be 'keep' or 'lru', not {policy!r}")
    if policy == "keep" or fraction in (0, 1):
        return float(fraction)
    # A hit if fewer than cN others came between: u (1 - v) > 1 - c, with u and v uniform.
    return fraction + (1 - fraction) * math.log1p(-fraction)
