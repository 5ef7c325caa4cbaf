"""``cadence/logging`` in source: histograms or whole models are logged at every step."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import in_steps
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "cadence/logging"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where add_histogram or wandb.Histogram runs at every step, or every N up to 10."""
    return in_steps(
        ID,
        tree,
        lambda region, call: (
            getattr(call.func, "attr", "") == "add_histogram"
            or region.module.dotted(call.func) == "wandb.Histogram"
        ),
        "medium",
        "{} runs {when}: every value is copied to the host and sorted into bins on the training thread.",
        "Log histograms every few hundred steps.",
        most=10,
    )
