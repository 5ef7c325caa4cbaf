"""``input/shallow-prefetch``: workers could keep up, but too few batches lie ready to bridge uneven ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.discovery import ARGUMENT
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.variance import uneven
from hotloop.findings import Finding

ID = "input/shallow-prefetch"
EFFORT = ARGUMENT
COSTED = True

#: Tried in this order; the first that leaves no more than a tenth of the wait beyond the best is advised.
_DEPTHS = (4, 8, 16)


def check(evidence: Evidence) -> Iterator[Finding]:
    """Replay the queue with more batches asked for ahead; speak where the wait shrinks."""
    found = uneven(evidence)
    if found is None or found.prefetch > evidence.limits.shallow_prefetch:
        return
    waits = {depth: found.wait_with(prefetch=depth) for depth in _DEPTHS if depth > found.prefetch}
    feed = found.feed
    best = min(waits.values())
    depth = min(depth for depth, wait in waits.items() if wait <= best + 0.1 * feed.wait_s)
    cost = (feed.wait_s - waits[depth]) * costs.exposed_ratio(evidence.steps, "data_wait")
    if cost < evidence.limits.worth_fixing_ratio * evidence.steps.step_s:
        return
    spread = float(np.percentile(found.make_s, 95) / max(1e-9, float(np.median(found.make_s))))
    yield Finding(
        id=ID,
        message=(
            f"The workers are fast enough on average, yet the step waits {units.duration(feed.wait_s)}: with "
            f"prefetch_factor={found.prefetch} too few batches lie ready when one takes longer."
        ),
        advice=f"Set prefetch_factor={depth}; it costs memory for {depth * feed.workers} batches.",
        evidence=(
            says.waits(feed),
            f"{feed.workers} workers make a batch every {units.duration(feed.make_s / feed.workers)}, "
            f"the step takes {units.duration(feed.busy_s)} itself",
            f"a slow batch (95th percentile) takes {spread:.1f} times the median",
            f"the queue replayed with prefetch_factor={depth} waits {units.duration(waits[depth])} per step",
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=feed.loader.where,
        remedies=("prefetch-factor",),
        data={"prefetch_factor": depth},
    )
